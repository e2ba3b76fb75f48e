"""How many connections there may be, and how much of what they send may lie here.

Owns the two bounds of a whole process: connections, and bytes of requests. Knows nothing of sockets and of HTTP.
Laws: a connection that nobody waits for makes room for a new one, the oldest first; what was taken of a Room is given
back once.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from callboard.servers.gateway.http_errors import HttpError

_AGAIN = {"retry-after": "1"}


class ByteBudget:
    """The bytes of requests that are held at once, from their arrival until they are answered.

    Without such a bound, each client may stay below every limit of its own, and all of them together fill the memory.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0

    def take(self, size: int) -> bool:
        """Whether there was room for so many bytes; they are taken then."""
        if self.used + size > self._most:
            return False
        self.used += size
        return True

    def release(self, size: int) -> None:
        """Give back what was taken."""
        self.used -= size


class BudgetShare:
    """What one request has taken of a Room. `with` it, everything is given back."""

    __slots__ = ("_room", "_taken")

    def __init__(self, room: ByteBudget) -> None:
        self._room = room
        self._taken = 0

    def take(self, size: int) -> None:
        """Raises an HttpError where there is no room."""
        if not self._room.take(size):
            raise HttpError("overloaded", "too much is waiting to be answered here", headers=_AGAIN)
        self._taken += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        taken, self._taken = self._taken, 0
        self._room.release(taken)


class Evictable(Protocol):
    """A connection that can be ended while it waits for a request."""

    def evict(self) -> None: ...


class IdleConnections:
    """Those connections that wait for a request, in the order in which they began to."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Evictable, None] = {}

    def admit(self, connection: Evictable, count: int) -> bool:
        """Whether one more may stay, where there are `count` with it. It then waits for a request."""
        if count > self._most:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            del self._waiting[oldest]
            oldest.evict()
        self._waiting[connection] = None
        return True

    def add(self, connection: Evictable) -> None:
        """It has been answered, and waits again."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def remove(self, connection: Evictable) -> None:
        """It has a request, or is gone."""
        self._waiting.pop(connection, None)

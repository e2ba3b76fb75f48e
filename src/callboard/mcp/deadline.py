"""How long a call may take.

Owns both limits of one call: without a sign of life, and altogether. Knows nothing of servers.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal, Self

Expired = Literal["idle", "timeout"]


class Deadline:
    """A context that ends with TimeoutError `idle` seconds after the last sign of life, and after `timeout` seconds
    at the latest; `expired` then says which. While it is held, as when a person is asked, only the latter counts.
    """

    __slots__ = ("_clock", "_held", "_idle", "_latest", "_open", "_scope", "expired")

    def __init__(self, idle: float, timeout: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._idle = idle
        self._latest = self._clock() + timeout
        self._held = 0
        self._open = False
        self._scope = asyncio.timeout_at(self._next())
        self.expired: Expired | None = None

    def alive(self, within: float | None = None) -> None:
        """There was a sign of life; the next may take `within` seconds, by default `idle`."""
        if self._open and not self._scope.expired():
            self._scope.reschedule(self._next(within))

    def hold(self) -> None:
        self._held += 1
        self.alive()

    def release(self) -> None:
        self._held -= 1
        self.alive()

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if self._scope.expired():
            self.expired = "timeout" if self._clock() >= self._latest else "idle"
        await self._scope.__aexit__(kind, error, trace)

    def _next(self, within: float | None = None) -> float:
        return self._latest if self._held else min(self._clock() + (within or self._idle), self._latest)

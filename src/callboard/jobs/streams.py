"""Live events of the jobs that run in this process, for their followers in this process.

Pieces of text are not stored, because the reply repeats them, and a commit for each piece would cost more than the
model. So only followers in the process that runs a job get pieces. All other followers get only entries.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from callboard import core

REPLY_PIECES: Final = (
    core.TextPiece,
    core.ReasoningPiece,
    core.RefusalPiece,
    core.InvocationStarted,
    core.ArgumentsPiece,
)
"""Pieces of a reply that has no entry yet."""
PIECES: Final = (*REPLY_PIECES, core.ToolProgress, core.Nested)
"""Events that followers get. Entries repeat all other events."""
MOST: Final = 10_000
"""Maximum waiting pieces of one follower. A slow follower loses older pieces, but the entries have their text."""
JOBS: Final = 1000
"""Maximum jobs whose last announced entry is remembered."""


class Subscription:
    """The unread news of one follower: events, and numbers of committed entries."""

    def __init__(self, *, pieces: bool, announced: int = 0) -> None:
        self.pieces = pieces
        self._announced = announced
        """Number of the last announced entry."""
        self._passed = 0
        """Number of an entry that was read before its announcement. Pieces are dropped until then."""
        self._news: deque[core.Event | int] = deque(maxlen=MOST)
        self._arrival = asyncio.Event()

    def put(self, news: core.Event | int) -> None:
        if isinstance(news, int):
            self._announced = max(news, self._announced)
        elif self._announced < self._passed:
            return
        self._news.append(news)
        self._arrival.set()

    def drop(self, number: int) -> None:
        """Drop everything before the entry of this number, because its reader does not need its pieces."""
        if self._announced < number:
            self._passed = number
            self._news.clear()
            return
        places = [at for at, each in enumerate(self._news) if isinstance(each, int) and each <= number]
        for _ in range(places[-1] + 1 if places else 0):
            self._news.popleft()

    async def next(self, seconds: float) -> core.Event | int | None:
        """Return the next piece, or the number of a committed entry. Return None after so many seconds without news."""
        if not self._news:
            self._arrival.clear()
            # `wait_for` of Python 3.11 loses a cancellation that arrives together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrival.wait()
        return self._news.popleft() if self._news else None


class JobStreams:
    """The followers of the jobs that run in this process."""

    def __init__(self) -> None:
        self._followers: defaultdict[str, list[Subscription]] = defaultdict(list)
        self._announced: OrderedDict[str, int] = OrderedDict()
        """Last entries of the most recently announced jobs, for new followers."""

    def publish(self, identifier: str, event: core.Event) -> None:
        """Send an event to the followers of a job, if it is a piece."""
        if identifier in self._followers and isinstance(event, PIECES):
            for each in self._followers[identifier]:
                if each.pieces:
                    each.put(event)

    def announce(self, identifier: str, number: int) -> None:
        """Notify the followers of a job that entries up to this number are committed, or that its state has changed."""
        self._announced[identifier] = number
        self._announced.move_to_end(identifier)
        if len(self._announced) > JOBS:
            self._announced.popitem(last=False)
        for each in self._followers.get(identifier, ()):
            each.put(number)

    @contextmanager
    def subscribe(self, identifier: str, *, pieces: bool = True) -> Iterator[Subscription]:
        """Follow the entries of a job and, if `pieces`, its pieces."""
        subscription = Subscription(pieces=pieces, announced=self._announced.get(identifier, 0))
        self._followers[identifier].append(subscription)
        try:
            yield subscription
        finally:
            self._followers[identifier].remove(subscription)
            if not self._followers[identifier]:
                del self._followers[identifier]

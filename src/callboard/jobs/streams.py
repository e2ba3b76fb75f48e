"""What runs in this process is told to those who follow it here, before and beside what the store keeps.

Pieces of text pass the store: they are worth nothing when the reply is there, and a commit for each would cost more than
the model. So whoever follows a job in the process that runs it gets them, and everybody else gets the entries alone.
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
"""Those of a reply that has no entry yet."""
PIECES: Final = (*REPLY_PIECES, core.ToolProgress, core.Nested)
"""The events that are told; the others say what entries say."""
MOST: Final = 10_000
"""Pieces that wait for one follower. One that reads no faster loses the older ones, whose text the entries have."""
JOBS: Final = 1000
"""Jobs of which is known how far they were announced."""


class Subscription:
    """What one follower has not read yet: events, and numbers of entries that were committed."""

    def __init__(self, *, pieces: bool, announced: int = 0) -> None:
        self.pieces = pieces
        self._announced = announced
        """The last entry that this process was told of."""
        self._passed = 0
        """An entry that was read before it was announced: what comes until then are pieces of it."""
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
        """Forget what came before the entry of this number: who has read the entry needs no pieces of it."""
        if self._announced < number:
            self._passed = number
            self._news.clear()
            return
        places = [at for at, each in enumerate(self._news) if isinstance(each, int) and each <= number]
        for _ in range(places[-1] + 1 if places else 0):
            self._news.popleft()

    async def next(self, seconds: float) -> core.Event | int | None:
        """The next piece, or the number of an entry that is there by now; None where nothing comes for so long."""
        if not self._news:
            self._arrival.clear()
            # `wait_for` of Python 3.11 loses a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrival.wait()
        return self._news.popleft() if self._news else None


class JobStreams:
    """The followers of the jobs that run in this process."""

    def __init__(self) -> None:
        self._followers: defaultdict[str, list[Subscription]] = defaultdict(list)
        self._announced: OrderedDict[str, int] = OrderedDict()
        """The last entries of the jobs that were announced last, for those who follow them from now on."""

    def publish(self, identifier: str, event: core.Event) -> None:
        """Tell the followers of a job an event, if it is a piece."""
        if identifier in self._followers and isinstance(event, PIECES):
            for each in self._followers[identifier]:
                if each.pieces:
                    each.put(event)

    def announce(self, identifier: str, number: int) -> None:
        """Tell the followers of a job that entries up to this number are committed, or that its state has changed."""
        self._announced[identifier] = number
        self._announced.move_to_end(identifier)
        if len(self._announced) > JOBS:
            self._announced.popitem(last=False)
        for each in self._followers.get(identifier, ()):
            each.put(number)

    @contextmanager
    def subscribe(self, identifier: str, *, pieces: bool = True) -> Iterator[Subscription]:
        """Follow a job: its pieces and its entries, or its entries alone."""
        subscription = Subscription(pieces=pieces, announced=self._announced.get(identifier, 0))
        self._followers[identifier].append(subscription)
        try:
            yield subscription
        finally:
            self._followers[identifier].remove(subscription)
            if not self._followers[identifier]:
                del self._followers[identifier]

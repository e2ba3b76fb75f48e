"""Live events of the jobs that run in this process, for their followers in this process.

Pieces of text are not stored one by one, because the reply repeats them, and a commit for each piece would cost more
than the model. So only followers in the process that runs a job get pieces, from the beginning of the open reply. All
other followers get entries, and drafts of the open reply (`activity.py`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

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
_FIELDS: Final = {
    core.TextPiece: "text",
    core.ReasoningPiece: "text",
    core.RefusalPiece: "text",
    core.ArgumentsPiece: "json",
}
JOBS: Final = 1000
"""Maximum jobs whose last announced entry is remembered."""


MAX_REPLY: Final = 200_000
"""Maximum characters of an open reply that are kept for later followers."""


class OpenReply:
    """The reply that a model is writing: when it began, its characters, and its pieces with adjoining texts joined."""

    def __init__(self) -> None:
        self.begun_at = datetime.now(UTC)
        self.characters = 0
        self._pieces: list[core.Event] = []
        self._field = ""
        self._texts: list[str] = []
        """Texts of the last piece, which is not among `_pieces` yet; `_field` is the name of its field."""
        self._last: core.Event | None = None

    def add(self, piece: core.Event) -> None:
        field = _FIELDS.get(type(piece), "")
        text: str = getattr(piece, field) if field else ""
        self.characters += len(text)
        if self.characters > MAX_REPLY:
            return
        last = self._last
        if field and type(last) is type(piece) and getattr(last, "index", None) == getattr(piece, "index", None):
            self._texts.append(text)
            return
        self._pieces = self.pieces()
        self._last, self._field, self._texts = piece, field, [text]

    def pieces(self) -> list[core.Event]:
        if self._last is None:
            return []
        joined = {self._field: "".join(self._texts)} if self._field else {}
        return [*self._pieces, structs.replace(self._last, **joined)]


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
        self._replies: dict[str, OpenReply] = {}

    def publish(self, identifier: str, event: core.Event) -> None:
        """Send an event to the followers of a job, if it is a piece."""
        if not isinstance(event, PIECES):
            return
        if isinstance(event, REPLY_PIECES):
            if identifier not in self._replies:
                self._replies[identifier] = OpenReply()
            self._replies[identifier].add(event)
        if identifier in self._followers:
            for each in self._followers[identifier]:
                if each.pieces:
                    each.put(event)

    def announce(self, identifier: str, number: int) -> None:
        """Notify the followers of a job that entries up to this number are committed, or that its state has changed."""
        self._replies.pop(identifier, None)
        self._announced[identifier] = number
        self._announced.move_to_end(identifier)
        if len(self._announced) > JOBS:
            self._announced.popitem(last=False)
        for each in self._followers.get(identifier, ()):
            each.put(number)

    def open_reply(self, identifier: str) -> OpenReply | None:
        """Return the reply that a model is writing for a job of this process."""
        return self._replies.get(identifier)

    def has(self, identifier: str) -> bool:
        """Return whether this process runs the job, or ran it."""
        return identifier in self._announced

    @contextmanager
    def subscribe(self, identifier: str, *, pieces: bool = True) -> Iterator[Subscription]:
        """Follow the entries of a job and, if `pieces`, its pieces."""
        subscription = Subscription(pieces=pieces, announced=self._announced.get(identifier, 0))
        if pieces and (reply := self._replies.get(identifier)) is not None:
            for each in reply.pieces():
                subscription.put(each)
        self._followers[identifier].append(subscription)
        try:
            yield subscription
        finally:
            self._followers[identifier].remove(subscription)
            if not self._followers[identifier]:
                del self._followers[identifier]

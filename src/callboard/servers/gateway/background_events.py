"""Write what a reply says as the events of a job: each text once, in few large pieces.

A piece of a text is four characters, and the row around it a hundred bytes. So pieces that follow each other are joined,
and written a few times a second where somebody may be looking, else once a round.

Why events, and not the frames that a stream sends: a frame is ten times as long as its text, and the last ones hold the
whole response once more. The frames are encoded anew from the events instead, with the same numbers each time.

Law: a call is written with the end of its reply. A client runs what it gets, and of a reply that is asked for again
after a crash it would run the calls twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Unpack

from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyExtra,
    ReplyStarted,
    TextPiece,
)
from callboard.errors import CallboardError
from callboard.jobs.job import Changes
from callboard.jobs.segment import JobSegment

WRITE_SECONDS: Final = 0.3
"""Between two writes of what a reply says, while it comes."""

_CALLS: Final = (InvocationStarted, InvocationEnded, InvocationIncomplete)
_JOINED: Final = (TextPiece, RefusalPiece, ReasoningPiece)
_LEFT_OUT: Final = (ReplyStarted, ReplyExtra, ArgumentsPiece)
"""What a Responses client does not read, and what the end of a call says again."""


class EventWriter:
    """Writes the events of one segment; with `is_streamed` also while a reply comes."""

    def __init__(self, segment: JobSegment, *, is_streamed: bool) -> None:
        self._segment = segment
        self._is_streamed = is_streamed
        self._texts: list[list[Event]] = []
        """What follows in one text, piece by piece, and every other event by itself; joined when it is written."""
        self._calls: list[Event] = []
        """Events of calls, which come last."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def add(self, event: Event) -> None:
        """Take an event that is to be written soon."""
        if isinstance(event, _LEFT_OUT) or (isinstance(event, Note) and event.code != "incomplete"):
            return
        if isinstance(event, InvocationIncomplete):
            self._calls.append(ArgumentsPiece(event.index, event.raw))
        if isinstance(event, _CALLS):
            self._calls.append(_without_offsets(event))
            return
        event = _without_offsets(event)
        if self._texts and _may_join(self._texts[-1][-1], event):
            self._texts[-1].append(event)
        else:
            self._texts.append([event])
        if self._is_streamed and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write_soon)

    async def write(self, *, is_end: bool = False, **changes: Unpack[Changes]) -> None:
        """Commit what was taken. Raises Superseded and DatabaseUnavailable."""
        self.stop()
        events, self._texts = [_join(each) for each in self._texts], []
        if is_end:
            end = [events.pop()] if events else []
            events, self._calls = [*events, *self._calls, *end], []
        if events or changes:
            await self._segment.claim.append(events, **changes)
            self._segment.announce()

    def stop(self) -> None:
        """Write nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_soon(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write_now())

    async def _write_now(self) -> None:
        try:
            await self.write()
        except CallboardError as failure:
            self._segment.abort(failure)


def _may_join(last: Any, event: Any) -> bool:
    """Whether a piece goes on where the last one ended: what sealed a thought has ended it."""
    if type(last) is not type(event) or not isinstance(event, _JOINED):
        return False
    return not isinstance(event, ReasoningPiece) or (not last.opaque and last.origin == event.origin)


def _join(pieces: Sequence[Any]) -> Event:
    """The pieces as one, which is sealed as the last one is."""
    joined: Event = replace(pieces[-1], text="".join([each.text for each in pieces])) if pieces[1:] else pieces[0]
    return joined


def _without_offsets(event: Event) -> Event:
    """The event without its place in a text that nobody has."""
    return replace(event, offsets=None) if getattr(event, "offsets", None) is not None else event

"""One reply that is being read: its text, its calls, and the call that is open.

Owns what the grammars read from and write to. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from callboard.core import Event, InvocationCanister, ReasoningPiece, Why
from callboard.dialects.call_builder import Calls, OpenCall
from callboard.dialects.text_buffer import Reader, Reading, Refused
from callboard.text.marker import Marker, Match


class CannotSay(Exception):  # it says what it is
    """The dialect has no spelling for these calls. `why` says what of them it cannot spell."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Reply:
    """`why` is set when the text has ended."""

    __slots__ = ("call", "calls", "fence", "goes_on", "reader", "thoughts", "why")

    def __init__(self, calls: Calls) -> None:
        self.reader = Reader()
        self.calls = calls
        self.call: OpenCall | None = None
        self.why: Why = "stop"
        self.goes_on = False
        """Whether the line goes on behind what a body read."""
        self.fence = ""
        """What opened the fence that a body stands in."""
        self.thoughts: list[ReasoningPiece] = []
        """What is told before the next call."""

    def open(self, name: str, identifier: str = "", *, declared: bool = False, end: int | None = None) -> OpenCall:
        """It is a call, and begins with what was read and not given. Raises Refused if it had to be declared.

        What it began with went up to `end`, by default up to here.
        """
        if declared and not self.calls.declared(name):
            raise Refused
        reader = self.reader
        call, started = self.calls.open(name, reader.pending, reader.offset if end is None else end, identifier)
        reader.drop()
        reader.decided()
        reader.dropping = True
        reader.out += self.thoughts
        self.thoughts = []
        reader.out.append(started)
        self.call = call
        return call

    def begin_message(self) -> None:
        """What was read is the header of a message: it shows which dialect is spoken, and begins a line."""

    def tell(self, event: Event) -> None:
        """An event that belongs behind what the open call was given so far."""
        if self.call is not None:
            self.call.flush(self.reader.out)
        self.reader.out.append(event)

    def close(self, ahead: int = 0) -> None:
        """The call is whole, and everything that was read is part of it, and so many characters ahead."""
        if self.call is not None:
            self.call.close(self.reader.offset + ahead, self.reader.out)
        self.call = None
        self.reader.drop()
        self.reader.dropping = False

    def forget(self) -> None:
        """The call was none."""
        self.call = None
        self.thoughts = []
        self.reader.drop()
        self.reader.decided()
        self.reader.dropping = False

    def abandon(self) -> None:
        """The text is at its end, and the call is not."""
        reader = self.reader
        reader.at = len(reader.text)
        if self.call is not None:
            self.call.abandon(self.why, reader.offset, reader.out)
        self.call = None
        reader.drop()
        reader.dropping = False


class Body(msgspec.Struct, frozen=True, eq=False):
    """What a call looks like inside its frame: read from a reply, and spelled."""

    @property
    def heads(self) -> Sequence[Marker]:
        """What it begins with."""
        raise NotImplementedError

    def read(self, reply: Reply, head: Match, *, declared: bool) -> Reading[None]:
        """Reads from the head on, which stands at the reader's position.

        Raises Refused before anything was given if it is no call, or none of a declared tool where it has to be.
        """
        raise NotImplementedError

    def spell(self, call: InvocationCanister, place: int = 0) -> str:
        """The call that stands there among those of its reply. Raises CannotSay."""
        raise NotImplementedError

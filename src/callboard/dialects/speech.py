"""A reply with what shows while it is read: which dialect it is in, and which of its frames are open.

Owns what reading text, frames and fences share. Knows nothing of how they read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import Event
from callboard.dialects.calls import Calls, OpenCall
from callboard.dialects.dialect import Dialect
from callboard.dialects.reader import Reading
from callboard.dialects.reply import Reply
from callboard.dialects.signs import layout


class Speech(Reply):
    """`layout` has the markers of the dialect that is spoken, as far as that is known."""

    __slots__ = ("broken", "candidate", "certain", "expected", "fenced", "idle", "layout", "trial", "tried")

    def __init__(self, dialect: Dialect, calls: Calls) -> None:
        super().__init__(calls)
        self.layout = layout(dialect)
        self.candidate = dialect
        """The dialect that a call shows to be spoken."""
        self.expected: set[str] = set()
        """What closes the frames that are open."""
        self.broken = False
        """Whether what follows the last call in its list was none."""
        self.fenced = False
        """Whether the call that was read stands in a fence inside its frame."""
        self.trial: Sequence[str] = ()
        """What closes the reasoning in which a call is being read, if that is one."""
        self.tried = 0
        """How many calls there were before it."""
        self.certain: list[Event] | None = None
        """The events before it."""
        self.idle: re.Pattern[str] | None = None
        """Where nothing is held: what a text has to hold to be more than a text."""

    def open(self, name: str, identifier: str = "", *, declared: bool = False) -> OpenCall:
        call = super().open(name, identifier, declared=declared)
        if self.candidate is not self.layout.dialect:
            self.layout = layout(self.candidate)
        return call

    def idly(self, starts: re.Pattern[str]) -> Reading[None]:
        """Says all there is, and waits for more; what does not hold `starts` is said without being read."""
        reader = self.reader
        reader.at = len(reader.text)
        if not reader.holding:
            reader.say()
            if not self.trial:
                self.idle = starts
        try:
            yield
        finally:
            self.idle = None

    def events(self) -> list[Event]:
        """Those that are certain, once."""
        reader = self.reader
        if self.call is not None:
            self.call.flush(reader.out)
        if self.certain is not None:
            events, self.certain = self.certain, []
        else:
            events, reader.out = reader.out, []
        return events

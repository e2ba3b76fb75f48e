"""The state of parsing one text: its buffer, its calls, and which dialect, frame, fence and reasoning it is in.

Scanner, frames, fences and grammars share one `ParseState`; each is a generator that reads from its buffer.
"""

from __future__ import annotations

import re

import msgspec

from callboard.core import Event, Note, ReasoningPiece, Why
from callboard.dialects.call_builder import CallBuilder, OpenCall
from callboard.dialects.dialect import Dialect
from callboard.dialects.markers import DialectFrame, markers_of
from callboard.dialects.quoting import is_quoted
from callboard.dialects.text_buffer import NotACall, Reading, TextBuffer


class TextFence(msgspec.Struct):
    """A fence whose content is text."""

    run: str
    """The characters that opened the fence."""
    holds_calls: bool
    """True if calls are looked for inside: the fence has no label, or one that says nothing against calls."""
    is_framing: bool = False
    """True if the fence begins with a call, so that its lines are not text."""


class ParseState:
    """`markers` belong to the dialect that the reply uses, as far as the text has shown it."""

    __slots__ = (
        "buffer",
        "call",
        "calls",
        "candidate",
        "certain_events",
        "current_frame",
        "expected_closers",
        "fence",
        "idle_pattern",
        "in_inner_fence",
        "is_list_broken",
        "line_continues",
        "markers",
        "missed",
        "pending_reasoning",
        "text_fence",
        "why",
    )

    def __init__(self, dialect: Dialect, calls: CallBuilder) -> None:
        self.buffer = TextBuffer()
        self.calls = calls
        self.call: OpenCall | None = None
        self.why: Why = "stop"
        """Why the text ended, once it has."""
        self.markers = markers_of(dialect)
        self.candidate = dialect
        """The dialect that a call would show to be spoken."""
        self.current_frame: DialectFrame | None = None
        """The frame of the last call."""
        self.expected_closers: set[str] = set()
        """Closing markers of the open frames."""
        self.fence = ""
        """The run of characters that opened the fence around a frame."""
        self.text_fence: TextFence | None = None
        """The open fence whose content is read as text."""
        self.in_inner_fence = False
        """True if the last call is in a fence inside its frame."""
        self.is_list_broken = False
        """True if the list of the last call continued with something other than a call."""
        self.line_continues = False
        """True if the line continues after the text that a grammar read."""
        self.missed: Note | None = None
        """The first sign of a call that no call came of."""
        self.pending_reasoning: list[ReasoningPiece] = []
        """Emitted before the next call."""
        self.certain_events: list[Event] | None = None
        """The events before a call that is being read inside reasoning, and may be a thought."""
        self.idle_pattern: re.Pattern[str] | None = None
        """If nothing is held, text without a match of this pattern is emitted unread."""

    def open(self, name: str, identifier: str = "", *, declared: bool = False, end: int | None = None) -> OpenCall:
        """Begin a call with all that was read and not emitted; its head went up to `end`, by default up to here.

        Raises:
            NotACall: If the tool had to be declared and is not, or if the line quotes the call.
        """
        buffer = self.buffer
        if declared and not self.calls.is_declared(name):
            raise NotACall
        if (before := buffer.before) and is_quoted(before, lines=buffer.pending_lines):
            self.miss(name, buffer.pending_offset)
            raise NotACall
        buffer.before = ""
        call, started = self.calls.open(name, buffer.pending_offset, buffer.offset if end is None else end, identifier)
        buffer.drop()
        buffer.release()
        buffer.discards = True
        buffer.out += self.pending_reasoning
        self.pending_reasoning = []
        buffer.out.append(started)
        self.call = call
        self.adopt_candidate()
        return call

    @property
    def is_in_code(self) -> bool:
        """Whether a fence of another language is open."""
        return self.text_fence is not None and not self.text_fence.holds_calls

    def begin_message(self) -> None:
        """The header of a message was read: it shows which dialect is spoken, and begins a line."""
        self.adopt_candidate()
        self.buffer.before = ""

    def miss(self, sign: str, begin: int) -> None:
        """Remember a sign of a call at this offset that no call came of."""
        if self.missed is None:
            text = f"the reply holds {sign!r} at character {begin}, and no call came of it"
            self.missed = Note("alert", text, (begin, begin), "missed_call")

    def emit(self, event: Event) -> None:
        """Emit an event after the arguments that the open call has so far."""
        if self.call is not None:
            self.call.flush(self.buffer.out)
        self.buffer.out.append(event)

    def close(self, ahead: int = 0) -> None:
        """Ends the call: all that was read is part of it, and `ahead` characters more."""
        if self.call is not None:
            self.call.close(self.buffer.offset + ahead, self.buffer.out)
        self.call = None
        self.buffer.drop()
        self.buffer.discards = False

    def discard_call(self) -> None:
        self.call = None
        self.pending_reasoning = []
        self.buffer.drop()
        self.buffer.release()
        self.buffer.discards = False

    def abandon(self) -> None:
        """Ends the call as incomplete, since the text has ended."""
        buffer = self.buffer
        buffer.at = len(buffer.text)
        if self.call is not None:
            self.call.abandon(self.why, buffer.offset, buffer.out)
        self.call = None
        buffer.drop()
        buffer.discards = False

    def adopt_candidate(self) -> None:
        """From here on the candidate's markers count."""
        if self.candidate is not self.markers.dialect:
            self.markers = markers_of(self.candidate)

    def emit_until(self, starts: re.Pattern[str]) -> Reading[None]:
        """Emits all buffered text, then waits. Input without a match of `starts` is emitted without being scanned."""
        buffer = self.buffer
        buffer.at = len(buffer.text)
        if not buffer.is_holding:
            buffer.emit()
            if self.certain_events is None:
                self.idle_pattern = starts
        try:
            yield
        finally:
            self.idle_pattern = None

    def take_events(self) -> list[Event]:
        """The events that are certain, once."""
        buffer = self.buffer
        if self.call is not None:
            self.call.flush(buffer.out)
        if self.certain_events is not None:
            events, self.certain_events = self.certain_events, []
        else:
            events, buffer.out = buffer.out, []
        return events

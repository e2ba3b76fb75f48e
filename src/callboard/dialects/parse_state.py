"""The state of parsing one text: its buffer, its calls, and the current dialect, frame, fence and reasoning.

Scanner, frames, fences and grammars share one `ParseState`. Each is a generator that reads from its buffer.
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
    """True if calls are looked for inside: the fence has no label, or its label permits calls."""
    is_framing: bool = False
    """True if the fence begins with a call, so that its lines are not text."""


class ParseState:
    """The state of a parser. `markers` belong to the dialect of the reply, as far as it is known."""

    __slots__ = (
        "buffer",
        "call",
        "calls",
        "candidate",
        "certain_events",
        "current_frame",
        "expected_closers",
        "fence",
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
        """Why the text ended."""
        self.markers = markers_of(dialect)
        self.candidate = dialect
        """The dialect that a call would identify."""
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
        """True if something other than a call followed in the list of the last call."""
        self.line_continues = False
        """True if the line continues after the text that a grammar read."""
        self.missed: Note | None = None
        """Note about the first sign of a call that led to no call."""
        self.pending_reasoning: list[ReasoningPiece] = []
        """Reasoning to emit before the next call."""
        self.certain_events: list[Event] | None = None
        """The events before a possible call inside reasoning, which may be a thought."""

    def open(self, name: str, identifier: str = "", *, declared: bool = False, end: int | None = None) -> OpenCall:
        """Begin a call with all text that was read and not emitted. Its head ends at `end`, by default here.

        Raises:
            NotACall: The tool has to be declared and is not, or the line quotes the call.
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
        """Begin a message after its header, which identifies the dialect and begins a line."""
        self.adopt_candidate()
        self.buffer.before = ""

    def miss(self, sign: str, begin: int) -> None:
        """Remember a sign of a call at this offset that led to no call."""
        if self.missed is None:
            text = f"the reply contains {sign!r} at character {begin}, but no call was found"
            self.missed = Note("alert", text, (begin, begin), "missed_call")

    def emit(self, event: Event) -> None:
        """Emit an event, after the arguments that the open call has so far."""
        if self.call is not None:
            self.call.flush(self.buffer.out)
        self.buffer.out.append(event)

    def close(self, ahead: int = 0) -> None:
        """End the call. All text that was read is part of it, and `ahead` more characters."""
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
        """End the call as incomplete, because the text has ended."""
        buffer = self.buffer
        buffer.at = len(buffer.text)
        if self.call is not None:
            self.call.abandon(self.why, buffer.offset, buffer.out)
        self.call = None
        buffer.drop()
        buffer.discards = False

    def adopt_candidate(self) -> None:
        """Use the candidate's markers from here on."""
        if self.candidate is not self.markers.dialect:
            self.markers = markers_of(self.candidate)

    def emit_until(self, starts: re.Pattern[str]) -> Reading[None]:
        """Emit all buffered text, then wait. Text without a match of `starts` is emitted without being scanned."""
        buffer = self.buffer
        buffer.at = len(buffer.text)
        if not buffer.is_holding:
            buffer.emit()
            if self.certain_events is None:
                buffer.idle_pattern = starts
        try:
            yield
        finally:
            buffer.idle_pattern = None

    def take_events(self) -> list[Event]:
        """Return the certain events, once."""
        buffer = self.buffer
        if self.call is not None:
            self.call.flush(buffer.out)
        if self.certain_events is not None:
            events, self.certain_events = self.certain_events, []
        else:
            events, buffer.out = buffer.out, []
        return events

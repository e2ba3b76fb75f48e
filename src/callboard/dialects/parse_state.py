"""The state of parsing one text: its buffer, its calls, and which dialect, frame and reasoning it is in.

Scanner, frames, fences and grammars share one `ParseState`; each is a generator that reads from its buffer. Two things
can turn out wrong after the fact, so that events are kept back until they are certain:

- A call that may be a quotation (`suspect`): text that follows it, such as `is how one writes it`, makes it text again.
  What comes meanwhile is recorded; `IsQuotation` is raised out of the buffer's `emit` where that is seen.
- A call inside reasoning (`trial_closers`): it counts only if the reasoning is never closed behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import Event, ReasoningPiece, Why
from callboard.dialects.call_builder import CallBuilder, OpenCall
from callboard.dialects.dialect import Dialect
from callboard.dialects.markers import DialectFrame, markers_of
from callboard.dialects.surroundings import CallPosition, Surroundings, TextAfterCall
from callboard.dialects.text_buffer import NotACall, Reading, TextBuffer, TooLong


class IsQuotation(Exception):  # no error: it ends what was read as a call
    """Text behind a call shows that it is a quotation, up to the offset `end`."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class PossibleQuotation:
    """A call that may be a quotation: the text behind it decides."""

    def __init__(self, position: CallPosition, calls_before: int, surroundings: Surroundings) -> None:
        self.position = position
        self.surroundings = surroundings
        """The text before it, and since, if it is a call."""
        self.calls_before = calls_before
        self.text_after = TextAfterCall(position)
        self.fenced: list[tuple[str, int]] = []
        """Text behind it in a fence that is not closed yet."""
        self.is_decided = False
        """It was found to be a call."""


class ParseState:
    """`markers` are those of the dialect that is spoken, as far as that is known."""

    __slots__ = (
        "buffer",
        "call",
        "calls",
        "calls_before_trial",
        "candidate",
        "certain_events",
        "current_frame",
        "expected_closers",
        "fence",
        "idle_pattern",
        "in_inner_fence",
        "is_first_call",
        "is_list_broken",
        "line_continues",
        "markers",
        "pending_reasoning",
        "surroundings",
        "suspect",
        "trial_closers",
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
        """What closes the frames that are open."""
        self.fence = ""
        """The run of characters that opened the fence around a frame."""
        self.in_inner_fence = False
        """The call that was read is in a fence inside its frame."""
        self.is_list_broken = False
        """What followed the last call in its list was no call."""
        self.line_continues = False
        """The line goes on behind what a grammar read."""
        self.is_first_call = False
        """The next call is the first of its frame: its position decides whether it may be a quotation."""
        self.pending_reasoning: list[ReasoningPiece] = []
        """Emitted before the next call."""
        self.trial_closers: Sequence[str] = ()
        """What closes the reasoning inside which a call is being read."""
        self.calls_before_trial = 0
        self.certain_events: list[Event] | None = None
        """The events before a trial or a suspect."""
        self.suspect: PossibleQuotation | None = None
        self.surroundings = Surroundings(self.markers.tags)
        """The text before."""
        self.buffer.on_text = self.surroundings.feed
        self.idle_pattern: re.Pattern[str] | None = None
        """Where nothing is held: text without a match of it is emitted as it is."""

    def open(self, name: str, identifier: str = "", *, declared: bool = False, end: int | None = None) -> OpenCall:
        """Begins a call with all that was read and not emitted; its head went up to `end`, by default up to here.

        Raises NotACall if the tool had to be declared and is not, or if the call is surely a quotation.
        """
        if declared and not self.calls.is_declared(name):
            raise NotACall
        if self.is_first_call:
            self._suspect_quotation()
        buffer = self.buffer
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

    def begin_message(self) -> None:
        """The header of a message was read: it shows which dialect is spoken, and begins a line."""
        self.adopt_candidate()
        self.text_before.end_line()

    def emit(self, event: Event) -> None:
        """Emits an event behind the arguments that the open call has so far."""
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
            if not self.trial_closers and self.suspect is None:
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

    # A call that may be a quotation.

    @property
    def text_before(self) -> Surroundings:
        """The text up to here, by what is known so far."""
        return self.surroundings if self.suspect is None else self.suspect.surroundings

    def _suspect_quotation(self) -> None:
        """Suspects the call that is about to be opened, where its position leaves it open whether it is a quotation.

        Raises NotACall where it is one for sure, or may be one inside reasoning or behind another suspect.
        """
        position = self._position()
        if (self.trial_closers and (position.quoted or position.closers)) or (
            self.suspect is not None and position.quoted
        ):
            raise NotACall
        self.is_first_call = False
        if position.plain or self.trial_closers or self.suspect is not None:
            return
        buffer = self.buffer
        self.certain_events, buffer.out = buffer.out, []
        self.suspect = PossibleQuotation(position, self.calls.count, self.surroundings.copy())
        buffer.record_from_pending()
        buffer.on_text = self._check_quotation

    def _position(self) -> CallPosition:
        text = self.buffer.pending_text
        begin = len(text) - len(text.lstrip())
        position = self.text_before.position(text[begin : begin + 1], text[:begin])
        explained = self.current_frame is not None and self.current_frame[1].allows_explanation
        # Words behind a call in a fence mean nothing: models that write one explain it.
        return position._replace(words=0, words_in_line=0) if self.fence or (explained and position.alone) else position

    def _check_quotation(self, text: str, begin: int) -> None:
        """Takes text that follows the suspect. Raises IsQuotation."""
        suspect = self.suspect
        if suspect is None:
            raise AssertionError
        suspect.surroundings.feed(text, begin)
        if suspect.surroundings.muted:
            suspect.fenced.append((text, begin))
            return
        suspect.fenced.clear()
        if (end := suspect.text_after.feed(text, begin)) is not None:
            raise IsQuotation(end)

    def end_of_quotation(self) -> int | None:
        """At the end of the text: the offset where the quotation ends, None if the suspect is a call."""
        suspect, buffer = self.suspect, self.buffer
        if suspect is None or self.calls.count == suspect.calls_before:
            return None
        try:
            buffer.at = len(buffer.text)
            buffer.emit()
        except IsQuotation as quotation:
            return quotation.end
        if suspect.position.quoted or (self.why != "stop" and suspect.position.closers):
            return buffer.offset
        # A fence that is never closed may be none.
        ends = [suspect.text_after.feed(text, begin) for text, begin in suspect.fenced]
        return next((end for end in (*ends, suspect.text_after.finish()) if end is not None), None)

    def release_overdue(self) -> bool:
        """Confirms a suspect that has held up too much text, if only words could show it to be a quotation."""
        suspect = self.suspect
        if (
            suspect is None
            or suspect.position.closers
            or suspect.position.quoted
            or self.buffer.limit_error is not TooLong
        ):
            return False
        self.confirm_call()
        return True

    def confirm_call(self) -> None:
        """The suspect is a call."""
        suspect, buffer = self.suspect, self.buffer
        if suspect is None:
            return
        self.clear_suspect(suspect.surroundings)
        buffer.stop_recording()
        if self.certain_events is not None:
            self.certain_events += buffer.out
            buffer.out, self.certain_events = self.certain_events, None

    def clear_suspect(self, surroundings: Surroundings) -> None:
        """It is decided; `surroundings` is the text before, as it stands now."""
        if self.suspect is not None:
            self.suspect.is_decided = True
        self.suspect = None
        self.surroundings = surroundings
        self.buffer.on_text = surroundings.feed

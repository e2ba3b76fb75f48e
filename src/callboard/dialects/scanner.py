"""Reads a text: which part of it is text, reasoning, code or a call.

A marker may open a call anywhere but in code. Forms without a marker (a fence, an object, a label) are read at the
beginning of a line only. A call that may be a quotation, or stands inside reasoning, is read on trial: its events are
kept back until the text behind it decides, and where it is no call, the recorded text is read again as text.

Law: text is emitted in its order; a marker that opens no call is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import Event, InvocationEnded, InvocationIncomplete, ReasoningPiece, TextPiece
from callboard.dialects.call_frames import open_frame
from callboard.dialects.fences import read_code, read_fence
from callboard.dialects.markers import Marker, MarkerKind
from callboard.dialects.parse_state import IsQuotation, ParseState, PossibleQuotation
from callboard.dialects.text_buffer import MAX_RUN, EndOfText, NotACall, Reading, TooLong

_INDENT = re.compile(rf"[ \t]{{0,{MAX_RUN}}}")
_SPAN = re.compile(r"`[^`\n]+`(?=[^`])")
"""A code span of one backtick, whole."""


def scan(state: ParseState, *, thinking: bool) -> Reading[None]:
    buffer = state.buffer
    try:
        if thinking:
            yield from _read_reasoning(state, [each.closes for each in state.markers.dialect.reasoning])
        if state.markers.prefilled:
            yield from _begin_prompted(state)
        yield from read_text(state)
    except EndOfText:
        buffer.at = len(buffer.text)
        buffer.emit()


def _begin_prompted(state: ParseState) -> Reading[None]:
    """Reads what a reply may begin with whose prompt ended with a marker."""
    buffer = state.buffer
    buffer.hold()
    try:
        yield from buffer.skip_blank()
        firsts = state.markers.prefilled_first_chars
        begins = not firsts or buffer.text[buffer.at] in firsts
    except NotACall:
        begins = False
    finally:
        buffer.release()
    buffer.unread(buffer.take())
    if begins:
        yield from open_frame(state, Marker("", MarkerKind.CALL, state.markers.prefilled))


def read_text(state: ParseState, *, line: bool = True, suspect: PossibleQuotation | None = None) -> Reading[bool]:
    """Reads text, at the beginning of a `line` or not; whether a line begins behind it.

    It ends only on trial, behind what closes the reasoning, or once the suspect is decided.
    """
    buffer = state.buffer
    while suspect is None or not suspect.is_decided:
        if line:
            line = yield from _read_line(state)
            continue
        match = state.markers.start_pattern.search(buffer.text, buffer.at)
        if match is None:
            yield from state.emit_until(state.markers.start_pattern)
            continue
        buffer.at = match.start()
        if match[0] == "\n":
            buffer.at += 1
            line = True
            continue
        if match[0] == "`":
            if span := _SPAN.match(buffer.text, buffer.at):
                buffer.at = span.end()
            else:
                yield from read_code(state, (yield from buffer.read_run("`")))
            continue
        marker = state.markers.anywhere.find(buffer.text, buffer.at)
        if marker is False:
            marker = yield from state.markers.anywhere.match_at(buffer, emit=True)
        if marker is None:
            buffer.at += 1
            continue
        buffer.emit()
        if marker.text in state.trial_closers:
            buffer.at += len(marker.text)
            return False
        line = yield from _read_marker(state, marker)
    return line


def _read_marker(state: ParseState, marker: Marker) -> Reading[bool]:
    """Reads what the marker begins; whether a line begins behind it."""
    buffer = state.buffer
    if marker.kind is MarkerKind.CALL:
        return (yield from _read_possible_call(state, open_frame(state, marker)))
    buffer.at += len(marker.text)
    if marker.identifies is not None:
        state.candidate = marker.identifies
        state.adopt_candidate()
    if marker.kind is MarkerKind.REASONING_START and not state.trial_closers:
        state.confirm_call()
        buffer.drop()
        yield from _read_reasoning(state, [marker.closes])
        return True
    if marker.kind is MarkerKind.CLOSE and marker.text not in state.expected_closers:
        return False
    state.expected_closers.discard(marker.text)
    buffer.drop()
    if marker.text in state.markers.drops:
        state.text_before.end_line()
    return False


def _read_possible_call(state: ParseState, opening: Reading[bool]) -> Reading[bool]:
    """Reads what may be a call, and the text behind it as long as that may make it a quotation.

    Whether it may be one shows when the call is opened. Calls behind a suspect share its fate.
    """
    buffer, calls = state.buffer, state.calls
    count, inner = calls.count, state.suspect is not None
    before = state.markers, set(state.expected_closers)
    state.is_first_call = True
    try:
        line = yield from opening
        if calls.count > count:
            state.text_before.end_line()
        suspect = state.suspect
        if suspect is None or inner:
            return line
        if not suspect.position.quoted:
            return (yield from read_text(state, line=line, suspect=suspect))
        end = buffer.offset
    except IsQuotation as quoted:
        if inner:
            raise
        end = quoted.end
    except TooLong:
        if inner or state.suspect is None:
            raise
        end = buffer.offset
    except EndOfText:
        if inner or state.suspect is None:
            raise
        shown = state.end_of_quotation()
        if shown is None:
            state.confirm_call()
            raise
        end = shown
    _emit_quotation(state, end)
    state.markers, state.expected_closers = before
    return False


def _emit_quotation(state: ParseState, end: int) -> None:
    """The suspect is text, up to the offset `end`."""
    buffer, suspect = state.buffer, state.suspect
    if suspect is None:
        raise AssertionError
    state.calls.take_back(suspect.calls_before, buffer.out)
    buffer.out, state.certain_events = state.certain_events or [], None
    state.clear_suspect(state.surroundings)
    state.discard_call()
    buffer.piece_type = TextPiece
    recorded = buffer.stop_recording()
    begin = buffer.offset - len(recorded)
    buffer.unread(recorded[end - begin :])
    quotation = recorded[: end - begin]
    buffer.out.append(TextPiece(quotation, offsets=(begin, end)))
    state.surroundings.feed(quotation)
    state.surroundings.quoted = state.surroundings.quoted or not suspect.position.alone


def _read_line(state: ParseState) -> Reading[bool]:
    """Reads what only the beginning of a line may hold; whether another line begins behind it."""
    buffer = state.buffer
    if not (yield from _may_begin_line(state)):
        return False
    at = _INDENT.match(buffer.text, buffer.at).end()  # type: ignore[union-attr]  # it matches nothing, too
    char = buffer.text[at]
    buffer.emit()
    buffer.at = at
    if char in "`~":
        return (yield from _read_possible_call(state, read_fence(state, char)))
    marker = yield from state.markers.line.match_at(buffer)
    if marker is None or marker.kind is not MarkerKind.CALL:
        return False
    return (yield from _read_possible_call(state, open_frame(state, marker)))


def _may_begin_line(state: ParseState) -> Reading[bool]:
    """Whether the line's first character is one that means something there. Nothing is read."""
    buffer = state.buffer
    while True:
        indent = _INDENT.match(buffer.text, buffer.at)
        at = buffer.at if indent is None else indent.end()
        if at < len(buffer.text):
            return buffer.text[at] in state.markers.line_first_chars
        buffer.emit()
        yield


def _read_reasoning(state: ParseState, closes: Sequence[str]) -> Reading[None]:
    """Reads reasoning, to one of its closing markers or to a call that ends it."""
    buffer = state.buffer
    buffer.piece_type = ReasoningPiece
    state.text_before.begin()
    line, over = True, False
    while not over:
        if line:
            line = False
            if (yield from _may_begin_line(state)):
                over = yield from _try_call_in_reasoning(state, _read_line(state), closes)
            continue
        match = state.markers.reasoning_start_pattern.search(buffer.text, buffer.at)
        if match is None:
            yield from state.emit_until(state.markers.reasoning_start_pattern)
            continue
        buffer.at = match.start()
        if match[0] == "\n":
            buffer.at += 1
            line = True
            continue
        marker = yield from state.markers.in_reasoning.match_at(buffer, emit=True)
        if marker is None or (marker.kind is MarkerKind.REASONING_END and marker.text not in closes):
            buffer.at += 1
            continue
        buffer.emit()
        if marker.kind is not MarkerKind.CALL:
            buffer.at += len(marker.text)
            buffer.drop()
            if marker.identifies is not None:
                state.candidate = marker.identifies
                state.adopt_candidate()
            over = True
        else:
            over = yield from _try_call_in_reasoning(state, open_frame(state, marker), closes)
    buffer.piece_type = TextPiece
    state.text_before.begin()
    yield from buffer.skip_blank()
    buffer.drop()


def _try_call_in_reasoning(state: ParseState, opening: Reading[bool], closes: Sequence[str]) -> Reading[bool]:
    """Reads what may be a call, in reasoning that may have no end: whether the reasoning is over.

    A call inside reasoning counts only if the reasoning is never closed; until then the text is buffered.
    """
    buffer, calls = state.buffer, state.calls
    buffer.emit()
    state.is_first_call = True
    before = state.markers, set(state.expected_closers), calls.count
    state.certain_events, buffer.out = buffer.out, []
    state.trial_closers, state.calls_before_trial = closes, calls.count
    buffer.piece_type = TextPiece
    buffer.start_recording()
    buffer.on_text = None
    over = False
    try:
        yield from opening
        if calls.count > before[2]:
            yield from read_text(state)
    except (NotACall, TooLong):
        pass
    except EndOfText:
        over = True
    recorded = buffer.stop_recording()
    closer, end = _last_closer(recorded, closes)
    events, buffer.out = buffer.out, state.certain_events
    state.certain_events, state.trial_closers = None, ()
    if over and _is_call(state, events, closed=bool(closer)):
        buffer.out += events
        raise EndOfText
    calls.take_back(before[2], events)
    state.markers, state.expected_closers = before[:2]
    state.discard_call()
    begin = buffer.offset - len(recorded)
    buffer.on_text = state.surroundings.feed
    state.surroundings.feed(recorded[:end])
    if end:
        buffer.out.append(ReasoningPiece(recorded[:end], offsets=(begin, begin + end)))
    if closer:
        buffer.unread(recorded[end + len(closer) :])
        return True
    buffer.piece_type = ReasoningPiece
    if over:
        raise EndOfText
    return False


def _is_call(state: ParseState, events: list[Event], *, closed: bool) -> bool:
    """Whether what was read to the text's end, in reasoning that is open, is a call.

    Where the text was cut, the reasoning may have gone on: a whole call was then a thought.
    """
    kinds = {type(event) for event in events}
    if InvocationEnded in kinds:
        return state.why == "stop"
    return InvocationIncomplete in kinds and not closed


def _last_closer(text: str, closes: Sequence[str]) -> tuple[str, int]:
    """The marker that stands last in the text, and where; "" and the text's end if there is none."""
    match = max(((text.rfind(each), each) for each in closes), default=(-1, ""))
    return (match[1], match[0]) if match[0] >= 0 else ("", len(text))

"""Read a text, and tell text, reasoning, code and calls apart.

A marker may open a call anywhere except in inline code and in fences of another language. Forms without a marker (a
fence, an object, a label) are read only at the beginning of a line. A call inside reasoning counts only if nothing
closes the reasoning after it, so the text from there on waits.

Law: text is emitted in order. A marker that opens no call is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import ReasoningPiece, TextPiece
from callboard.dialects.call_frames import open_frame, pass_other_text
from callboard.dialects.fences import pass_code_fence, read_code, read_fence
from callboard.dialects.markers import Marker, MarkerKind, Markers
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import MAX_RUN, EndOfText, NotACall, Reading, TooLong

_INDENT = re.compile(rf"[ \t]{{0,{MAX_RUN}}}")


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
    """Read the beginning of a reply whose prompt ended with a marker."""
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


def read_text(state: ParseState) -> Reading[None]:
    """Read text to its end."""
    buffer = state.buffer
    line, line_has_code = True, False
    while True:
        if line:
            line_has_code = False
            line = not _pass_line_start(state) and (yield from _read_line(state))
            continue
        markers = state.markers
        match = _find_start(state, line_has_code=line_has_code)
        if match is None:
            yield from state.emit_until(markers.fence_pattern if state.is_in_code else markers.start_or_code_pattern)
            continue
        buffer.at = match.start()
        if match[0] == "\n":
            buffer.at += 1
            line = True
            continue
        if match[0] == "`":
            line_has_code = True
            if code := markers.plain_code.match(buffer.text, buffer.at):
                buffer.at = code.end()
            else:
                yield from read_code(state, (yield from buffer.read_run("`")))
            continue
        marker = markers.anywhere.find(buffer.text, buffer.at)
        if marker is False:
            marker = yield from markers.anywhere.match_at(buffer, emit=True)
        if marker is None:
            buffer.at += 1
            continue
        buffer.emit()
        line = yield from _read_marker(state, marker)


def _find_start(state: ParseState, *, line_has_code: bool) -> re.Match[str] | None:
    """Find the next text that may have a meaning.

    Inline code ends with its line. So backticks matter only before a marker in the same line, and in the last line.
    """
    markers, text, at = state.markers, state.buffer.text, state.buffer.at
    if state.text_fence is not None and not state.text_fence.holds_calls:
        return markers.fence_pattern.search(text, at)
    if line_has_code:
        return markers.start_or_code_pattern.search(text, at, text.find("\n", at) + 1 or len(text))
    match = markers.start_pattern.search(text, at)
    if match is not None and match[0] == "\n":
        return match
    end = len(text) if match is None else match.start()
    code = text.find("`", max(at, text.rfind("\n", at, end)), end)
    return match if code < 0 else markers.start_or_code_pattern.match(text, code)


def _read_marker(state: ParseState, marker: Marker) -> Reading[bool]:
    """Read what the marker begins. Return True if a line begins after it."""
    buffer = state.buffer
    if state.is_in_code:
        if marker.kind is MarkerKind.CALL:
            state.miss(marker.text, buffer.offset)
        buffer.at += 1
        return False
    if marker.kind is MarkerKind.CALL:
        return (yield from open_frame(state, marker))
    buffer.at += len(marker.text)
    if marker.identifies is not None:
        state.candidate = marker.identifies
        state.adopt_candidate()
    if marker.kind is MarkerKind.REASONING_START:
        buffer.drop()
        yield from _read_reasoning(state, [marker.closes])
        return True
    if marker.kind is MarkerKind.CLOSE and marker.text not in state.expected_closers:
        return False
    state.expected_closers.discard(marker.text)
    buffer.drop()
    if marker.text in state.markers.drops:
        buffer.before = ""
    return False


def _pass_line_start(state: ParseState) -> bool:
    """Read the beginning of a line that is certainly text. Return False if the line has to be examined."""
    buffer, markers = state.buffer, state.markers
    at = buffer.at
    char = buffer.text[at : at + 1]
    if char in " \t":
        at = _INDENT.match(buffer.text, at).end()  # type: ignore[union-attr]  # it also matches nothing
        char = buffer.text[at : at + 1]
    if char not in markers.line_first_chars:
        return bool(char)
    if char in "`~":
        return pass_code_fence(state, at)
    marker = None if state.is_in_code else markers.line.find(buffer.text, at)
    return marker is None or (marker is not False and pass_other_text(state, marker, at))


def _read_line(state: ParseState) -> Reading[bool]:
    """Read forms that are valid only at the beginning of a line. Return True if another line begins after them."""
    buffer = state.buffer
    if not (yield from _may_begin_line(state)):
        return False
    at = _INDENT.match(buffer.text, buffer.at).end()  # type: ignore[union-attr]  # it also matches nothing
    char = buffer.text[at]
    buffer.emit()
    buffer.at = at
    if char in "`~":
        return (yield from read_fence(state, char))
    if state.is_in_code:
        return False
    marker = yield from state.markers.line.match_at(buffer)
    if marker is None or marker.kind is not MarkerKind.CALL:
        return False
    return (yield from open_frame(state, marker))


def _may_begin_line(state: ParseState) -> Reading[bool]:
    """Return True if the first character of the line may begin a call or a fence. Read nothing."""
    buffer = state.buffer
    while True:
        at = _INDENT.match(buffer.text, buffer.at).end()  # type: ignore[union-attr]  # it also matches nothing
        if at < len(buffer.text):
            return buffer.text[at] in state.markers.line_first_chars
        buffer.emit()
        yield


def _read_reasoning(state: ParseState, closes: Sequence[str]) -> Reading[None]:
    """Read reasoning up to one of its closing markers, or up to a call that ends it."""
    buffer = state.buffer
    buffer.piece_type = ReasoningPiece
    buffer.before = ""
    line, over = True, False
    while not over:
        if line:
            line = False
            if (yield from _may_begin_line(state)):
                yield from _try_call_in_reasoning(state, _read_line(state), closes)
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
            yield from _try_call_in_reasoning(state, open_frame(state, marker), closes)
    buffer.piece_type = TextPiece
    buffer.before = ""
    yield from buffer.skip_blank()
    buffer.drop()


def _try_call_in_reasoning(state: ParseState, opening: Reading[bool], closes: Sequence[str]) -> Reading[None]:
    """Read text in reasoning that may be a call.

    The text is a thought if it is not a call, or if something closes the reasoning after it.
    """
    buffer, calls = state.buffer, state.calls
    buffer.emit()
    before = state.markers, set(state.expected_closers), calls.count, buffer.before, state.missed, state.text_fence
    state.certain_events, buffer.out = buffer.out, []
    buffer.piece_type = TextPiece
    buffer.start_recording()
    ended = False
    try:
        yield from opening
    except (NotACall, TooLong):
        pass
    except EndOfText:
        ended = True
    has_call = calls.count > before[2]
    recorded = buffer.stop_recording()
    calls.take_back(before[2], buffer.out)
    buffer.out, state.certain_events = state.certain_events, None
    state.markers, state.expected_closers, _, buffer.before, state.missed, state.text_fence = before
    state.discard_call()
    buffer.unread(recorded)
    buffer.piece_type = ReasoningPiece
    if has_call:
        yield from _wait_for_closer(state, closes)
        return
    end = min([at for each in closes if (at := recorded.find(each)) >= 0], default=len(recorded))
    buffer.at += end
    buffer.emit()
    if ended:
        raise EndOfText


def _wait_for_closer(state: ParseState, closes: Sequence[str]) -> Reading[None]:
    """Read reasoning with a call in it, up to its closing marker. If the text ends first, the call counts."""
    buffer = state.buffer
    closers = Markers([Marker(each, MarkerKind.REASONING_END) for each in closes])
    buffer.hold()
    try:
        while True:
            match = closers.start_pattern.search(buffer.text, buffer.at)
            buffer.at = len(buffer.text) if match is None else match.start()
            if match is None:
                yield
            elif (yield from closers.match_at(buffer)) is None:
                buffer.at += 1
            else:
                break
    except NotACall:
        pass
    except EndOfText:
        buffer.at = len(buffer.text)
        if state.why == "stop":
            buffer.unread(buffer.take())
            buffer.release()
            buffer.piece_type = TextPiece
            yield from read_text(state)
        raise
    buffer.release()
    buffer.emit()

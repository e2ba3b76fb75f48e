"""Read calls in their frames: the markers around calls, and text inside a frame that is not a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from callboard.dialects.grammar import Grammar
from callboard.dialects.grammars.json_objects import JsonObjects
from callboard.dialects.grammars.other_json import end_of_other_json
from callboard.dialects.markers import DialectFrame, Marker, MarkerKind, markers_after_call, markers_that_open
from callboard.dialects.parse_state import ParseState
from callboard.dialects.text_buffer import EndOfText, NotACall, Reading
from callboard.text.marker_pattern import MarkerPattern, compile_marker

_BLANK = " \t\r\n"
_FENCES = (compile_marker("```json"), compile_marker("```"))
_FENCE = 3
SEPARATORS = f"{_BLANK},;"


def pass_other_text(state: ParseState, sign: Marker, at: int) -> bool:
    """Read JSON, or the bracket, that the sign begins, if they certainly begin no call, as most brackets in a text."""
    if sign.is_opener or len(sign.text) > 1:
        return False
    buffer = state.buffer
    if _may_begin(sign.frames).match(buffer.text, at):
        return pass_json(state, sign.frames, at)
    buffer.at = at + 1
    return True


def pass_json(state: ParseState, frames: Sequence[DialectFrame], at: int) -> bool:
    """Read an object, or a list of objects, that is not a call of these frames. Return False if that is not certain."""
    if not _bodies(tuple(frames)).only_if_named:
        return False
    end = end_of_other_json(state.buffer.text, at, state.calls.is_declared)
    state.buffer.at = end or state.buffer.at
    return end is not None


def open_frame(state: ParseState, sign: Marker) -> Reading[bool]:
    """Read a call that may begin here. Return whether a line begins after it."""
    buffer = state.buffer
    begin, count = buffer.offset, state.calls.count
    state.line_continues = False
    buffer.hold()
    if sign.is_opener:
        buffer.at += len(sign.text)
    try:
        framed = yield from read_body(state, sign.frames)
    except NotACall:
        if buffer.offset == begin and sign.text:
            if token := state.markers.drops.get(sign.text):
                _drop_marker(state, token)
                return False
            buffer.at += 1
        _miss(state, sign, begin)
        buffer.emit()
        return False
    except EndOfText:
        if state.calls.count == count:
            _miss(state, sign, begin)
        if sign.is_opener and buffer.pending_words and (sign.is_control_token or state.why != "stop"):
            _drop_cut_call(state)
        raise
    finally:
        buffer.release()
    yield from _read_after_call(state, framed)
    return not state.line_continues


def _miss(state: ParseState, sign: Marker, begin: int) -> None:
    if any(char.isalpha() for char in sign.text):  # a bracket may begin any data
        state.miss(sign.text, begin)


def _drop_marker(state: ParseState, token: Marker) -> None:
    """Skip a token that began nothing."""
    state.buffer.at += len(token.text)
    state.buffer.drop()
    if token.identifies is not None:
        state.candidate = token.identifies
        state.adopt_candidate()


def _drop_cut_call(state: ParseState) -> None:
    """Drop the beginning of a call at the end of the text."""
    buffer = state.buffer
    begin = buffer.pending_offset
    buffer.at = len(buffer.text)
    cut = buffer.take()
    buffer.note("dropped", f"the text ends where a call begins: {cut.strip()}", begin)


def read_body(state: ParseState, frames: Sequence[DialectFrame]) -> Reading[DialectFrame]:
    """Read a call and any framing before it. Raises NotACall if there is no call."""
    buffer = state.buffer
    while True:
        yield from buffer.skip_blank()
        opener = yield from markers_that_open(tuple(frames)).match_at(buffer)
        if opener is None:
            break
        buffer.at += len(opener.text)
        frames = opener.frames
    state.in_inner_fence = fenced = yield from _pass_fence(state, frames)
    bodies = _bodies(tuple(frames))
    match = yield from buffer.match_first(bodies.heads)
    if match is None:
        raise NotACall
    framed, body = bodies.owners[match[0]]
    if fenced and not isinstance(body, JsonObjects):
        raise NotACall
    state.candidate, frame = state.current_frame = framed
    count = state.calls.count
    try:
        yield from body.read(state, match[1], declared=frame.declared_only)
    except NotACall:
        if state.calls.count == count:
            raise
        state.is_list_broken = True
    else:
        state.is_list_broken = False
    state.expected_closers.update(frame.closers)
    return framed


class _Bodies(NamedTuple):
    """The heads of calls that may begin in a frame, first choices before alternatives, each with its frame and grammar."""

    heads: list[MarkerPattern]
    owners: list[tuple[DialectFrame, Grammar]]
    only_if_named: bool
    """True if JSON is a call only if it names a declared tool."""


@lru_cache(maxsize=1024)
def _bodies(frames: tuple[DialectFrame, ...]) -> _Bodies:
    ranked = [(rank, framed, body) for framed in frames for rank, body in enumerate(framed[1].grammars)]
    bodies = [(framed, body) for _, framed, body in sorted(ranked, key=itemgetter(0))]
    pairs = [(head, each) for each in bodies for head in each[1].heads]
    only_if_named = all(framed[1].declared_only and body.only_if_named for framed, body in bodies)
    return _Bodies([head for head, _ in pairs], [each for _, each in pairs], only_if_named)


@lru_cache(maxsize=1024)
def _may_begin(frames: tuple[DialectFrame, ...]) -> re.Pattern[str]:
    """Return a pattern for text that begins with a head, or may if more text follows."""
    return re.compile("|".join([head.source(named=False) for head in _bodies(frames).heads]))


def _pass_fence(state: ParseState, frames: Sequence[DialectFrame]) -> Reading[bool]:
    """Skip a fence that some models put around the JSON inside their markers."""
    buffer = state.buffer
    in_fence = state.fence or state.text_fence
    if in_fence or buffer.text[buffer.at] != "`" or not any(frame.openers for _, frame in frames):
        return False
    match = yield from buffer.match_first(_FENCES)
    if match is None:
        return False
    buffer.at = match[1].end
    yield from buffer.skip_blank()
    return True


def _read_after_call(state: ParseState, framed: DialectFrame) -> Reading[None]:
    """Read the framing after a call, and the next calls in the same frame."""
    buffer = state.buffer
    signs = markers_after_call(framed)
    inside, opened = True, False
    try:
        while not state.is_list_broken:
            buffer.hold()
            opened = False
            yield from buffer.read_run(SEPARATORS if inside else _BLANK)
            sign = yield from signs.match_at(buffer)
            if sign is not None and sign.kind is not MarkerKind.CALL:
                state.expected_closers.discard(sign.text)
                inside = inside and sign.kind is MarkerKind.IGNORED
                buffer.at += len(sign.text)
                buffer.drop()
            elif (
                sign is None and inside and state.in_inner_fence and (yield from buffer.read_run("`", _FENCE)) == _FENCE
            ):
                state.in_inner_fence = False
                buffer.drop()
            elif sign is not None or inside:
                opened = sign is not None
                yield from read_body(state, [framed])
                inside = True
            else:
                break
    except NotACall:
        pass
    except EndOfText:
        begun = buffer.pending_words
        if not begun or signs.is_prefix(begun):
            buffer.at = len(buffer.text)
            buffer.drop()
        elif state.why != "stop" and (opened or framed[1].closers):
            _drop_cut_call(state)
        raise
    finally:
        buffer.release()
    if inside and framed[1].drops_rest:
        yield from _drop_rest(state, framed)
    else:
        buffer.emit()


def _drop_rest(state: ParseState, framed: DialectFrame) -> Reading[None]:
    """Skip the rest of the frame up to its closing marker."""
    buffer = state.buffer
    begin = buffer.pending_offset
    closers = markers_after_call(framed)
    rest: list[str] = []
    try:
        while True:
            match = closers.start_pattern.search(buffer.text, buffer.at)
            buffer.at = len(buffer.text) if match is None else match.start()
            rest.append(buffer.take())
            if match is None:
                yield
                continue
            sign = yield from closers.match_at(buffer)
            if sign is not None and sign.kind is MarkerKind.CLOSE:
                break
            buffer.at += 1
    except EndOfText:
        buffer.at = len(buffer.text)
        rest.append(buffer.take())
        _note_rest(state, rest, begin)
        raise
    _note_rest(state, rest, begin)
    buffer.at += len(sign.text)
    state.expected_closers.discard(sign.text)
    buffer.drop()


def _note_rest(state: ParseState, rest: list[str], begin: int) -> None:
    if text := "".join(rest).strip():
        state.buffer.note("dropped", f"after the call in its block: {text}", begin)

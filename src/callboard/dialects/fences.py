"""Read fences and inline code: some contain calls, others contain code that is not searched.

A fence ends as in CommonMark: at a line with only a run at least as long as the opening run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from callboard.dialects.call_frames import SEPARATORS, open_frame, pass_json, read_body
from callboard.dialects.markers import DialectFrame, MarkerKind
from callboard.dialects.parse_state import ParseState, TextFence
from callboard.dialects.text_buffer import MAX_RUN, EndOfText, NotACall, Reading, TextBuffer

_INFO_END = re.compile(r"[\n`{\[]")
_LINE_END = re.compile(r"\n")
_BLANK = " \t\r"
_FENCE = 3
_FENCE_LINE = re.compile(
    rf"(`{{{_FENCE},{MAX_RUN}}}+(?!`)|~{{{_FENCE},{MAX_RUN}}}+(?!~))([^`~{{\[\n]{{0,{MAX_RUN}}}+)(?=\n)"
)
CALL_LABELS = frozenset({"", "json", "tool", "tool_call", "tool_calls", "tool_use", "tools", "xml"})
"""Labels of fences that may contain calls. Any other label means that the fence contains code."""


def pass_code_fence(state: ParseState, at: int) -> bool:
    """Read the line of a fence around code, or around JSON without a call. Return False if the line has to be examined."""
    buffer, markers = state.buffer, state.markers
    line = _FENCE_LINE.match(buffer.text, at)
    if line is None:
        return False
    run, fence = line[1], state.text_fence
    if fence is None:
        label = line[2].strip().lower()
        own, after = markers.fences.get(label), line.end() + 1
        if own is None and label not in CALL_LABELS:
            match = markers.fence_pattern.search(buffer.text, line.end())
            buffer.at = len(buffer.text) if match is None else match.start()
        elif own is None or markers.anywhere.find(buffer.text, after) is not None or not pass_json(state, [own], after):
            return False
        if buffer.text.startswith(f"\n{run}\n", buffer.at):  # as nearly always
            buffer.at += 1 + len(run)
        else:
            state.text_fence = TextFence(run, label in CALL_LABELS)
        return True
    if fence.is_framing:
        return False
    if not line[2].strip(_BLANK) and run.startswith(fence.run):
        state.text_fence = None
        buffer.at = line.end()
    else:
        buffer.at = line.end(1)
    return True


def read_fence(state: ParseState, char: str) -> Reading[bool]:
    """Read the line of a fence and a call after it. Return True if a line begins after that."""
    buffer = state.buffer
    buffer.hold()
    try:
        run = yield from buffer.read_run(char, MAX_RUN + 1)
        if not _FENCE <= run <= MAX_RUN:
            buffer.release()
            if char == "`":
                yield from read_code(state, run)
            return False
        if state.text_fence is not None:
            yield from _read_closing_line(state, char * run)
        else:
            yield from _open_fence(state, char * run)
    except NotACall:
        pass
    except EndOfText:
        if state.text_fence is not None and state.text_fence.is_framing and not buffer.pending_words.strip(char):
            buffer.at = len(buffer.text)
            buffer.drop()
        raise
    finally:
        buffer.release()
    buffer.emit()
    return not buffer.before.rpartition("\n")[2].strip()


def _read_closing_line(state: ParseState, run: str) -> Reading[None]:
    """Read the rest of a line that closes the open fence. Any other line is text."""
    buffer, fence = state.buffer, state.text_fence
    if fence is None or not run.startswith(fence.run):
        return
    yield from buffer.read_run(_BLANK, MAX_RUN)
    if (yield from buffer.peek()) != "\n":
        return
    state.text_fence = None
    if fence.is_framing:
        buffer.at += 1
        buffer.drop()


def _open_fence(state: ParseState, run: str) -> Reading[None]:
    """Read the label of a fence, and the calls at its beginning."""
    buffer = state.buffer
    language = yield from _read_language(state, run[0])
    if language is None:
        return
    holds_calls = language in CALL_LABELS
    if holds_calls:
        state.text_fence = fence = TextFence(run, holds_calls)
        yield from buffer.skip_blank()
        marker = yield from state.markers.anywhere.match_at(buffer)
        if marker is not None and marker.kind is MarkerKind.CALL:
            count = state.calls.count
            try:
                yield from open_frame(state, marker)
            finally:
                fence.is_framing = state.calls.count > count
            return
    own = state.markers.fences.get(language)
    if own is not None:
        state.text_fence, state.fence = None, run
        try:
            yield from read_body(state, [own])
            if state.fence:
                yield from _read_after_call(state, own, run)
        except NotACall:
            pass
        else:
            return
        finally:
            state.fence = ""
    state.text_fence = TextFence(run, holds_calls)


def _read_language(state: ParseState, char: str) -> Reading[str | None]:
    """Return the label of a fence, or None if the run of characters opens inline code."""
    buffer = state.buffer
    info = ""
    while True:
        match = _INFO_END.search(buffer.text, buffer.at)
        end = len(buffer.text) if match is None else match.start()
        end = min(end, buffer.at + MAX_RUN + 1 - len(info))
        info += buffer.text[buffer.at : end]
        buffer.at = end
        if len(info) > MAX_RUN:
            return info
        if match is None:
            yield
            continue
        language = info.strip().lower()
        if match[0] == "`" and char == "`":
            return None
        if match[0] == "\n" or (language in state.markers.fences and match[0] in "{["):
            return language
        info += match[0]
        buffer.at += 1


def _read_to_closing_line(state: ParseState, char: str, run: int) -> Reading[None]:
    """Read the text of a fence without calls, and its closing line. Emit or hold all of it."""
    buffer = state.buffer
    line = _closing_line(char, run)
    while True:
        if match := line.search(buffer.text, buffer.at):
            buffer.at = match.end()
            return
        buffer.at = max(buffer.at, buffer.text.rfind("\n", buffer.at))
        while (newline := buffer.text.find("\n", buffer.at)) < 0:
            yield from state.emit_until(_LINE_END)
        buffer.at = newline + 1
        yield from buffer.read_run(" \t")
        closes = (yield from buffer.read_run(char)) >= run
        yield from buffer.read_run(_BLANK)
        if closes and buffer.text[buffer.at] == "\n":
            buffer.at += 1
            return


def _read_after_call(state: ParseState, framed: DialectFrame, fence: str) -> Reading[None]:
    """Read more calls after a call in its fence, and the closing line. Note the rest."""
    buffer = state.buffer
    try:
        while not state.is_list_broken:
            buffer.hold()
            yield from buffer.read_run(SEPARATORS)
            run = yield from buffer.read_run(fence[0], MAX_RUN)
            if run >= len(fence):
                yield from buffer.read_run(_BLANK)
                buffer.drop()
                buffer.at += buffer.text[buffer.at] == "\n"
                buffer.drop()
                return
            if run:
                break
            buffer.drop()
            yield from read_body(state, [framed])
    except NotACall:
        pass
    except EndOfText:
        _note_rest(state, fence)
        raise
    finally:
        buffer.release()
    while True:
        buffer.hold()
        try:
            yield from _read_to_closing_line(state, fence[0], len(fence))
        except NotACall:
            _note_rest(state, fence)
            continue
        except EndOfText:
            _note_rest(state, fence)
            raise
        finally:
            buffer.release()
        _note_rest(state, fence)
        return


def _note_rest(state: ParseState, fence: str) -> None:
    buffer = state.buffer
    begin = buffer.pending_offset
    rest = buffer.take().strip().rstrip(fence[0]).rstrip(" \t\r\n,;")
    if rest.strip(fence[0]):
        buffer.note("dropped", f"after the call in its block: {rest}", begin)


def read_code(state: ParseState, run: int) -> Reading[None]:
    """Read inline code, up to as many backticks as opened it, or to the end of the line."""
    buffer, markers = state.buffer, state.markers
    while True:
        match = markers.code_pattern.search(buffer.text, buffer.at)
        if match is None:
            yield from state.emit_until(markers.code_pattern)
            continue
        buffer.at = match.start()
        if match[0] == "\n":
            return
        if match[0] == "`":
            if (yield from buffer.read_run("`")) == run:
                return
            continue
        if marker := (yield from markers.calls.match_at(buffer, emit=True)):
            state.miss(marker.text, buffer.offset)
        buffer.at += 1


@lru_cache(maxsize=64)
def _closing(char: str, run: int) -> re.Pattern[str]:
    """Return a pattern for the closing line with the newline before it, or for its beginning at the text's end."""
    pattern = rf"{char}{{0,{MAX_RUN}}}+(?:\Z|[ \t]{{0,{MAX_RUN}}}+(?:\Z|\n(?P<done>)))"
    for _ in range(run):
        pattern = rf"(?:\Z|{char}{pattern})"
    return re.compile(rf"\n(?:\Z|[ \t]{{0,{MAX_RUN}}}+{pattern})")


@lru_cache(maxsize=64)
def _closing_line(char: str, run: int) -> re.Pattern[str]:
    """Return a pattern for a closing line, with the newline before it."""
    return re.compile(rf"\n[ \t]*{char}{{{run},}}[ \t\r]*\n")


def read_fence_text(buffer: TextBuffer, fence: str, write: Callable[[str, int], object]) -> Reading[None]:
    """Write the content of the fence with its end offsets, and read the closing line.

    If that line is missing, raise EndOfText after everything is written.
    """
    pattern = _closing(fence[0], len(fence))
    while True:
        at = buffer.text.find("\n", buffer.at)
        end = len(buffer.text) if at < 0 else at
        if end > buffer.at:
            write(buffer.text[buffer.at : end], buffer.base + end)
            buffer.at = end
        if at < 0:
            yield
            continue
        match = pattern.match(buffer.text, at)
        while match is not None and match["done"] is None:
            try:
                yield
            except EndOfText:
                # The text ends with the closing line or with a part of it.
                if buffer.text[buffer.at :].strip().strip(fence[0]):
                    write(buffer.text[buffer.at :], buffer.base + len(buffer.text))
                buffer.at = len(buffer.text)
                raise
            match = pattern.match(buffer.text, buffer.at)
        if match is not None:
            buffer.at = match.end()
            return
        write("\n", buffer.offset + 1)
        buffer.at += 1

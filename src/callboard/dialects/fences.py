"""Fences and code spans.

Owns what they hold: calls, or text in which nothing is looked for. Knows nothing of how a call is
spelled.
"""

from __future__ import annotations

import re

from callboard.dialects.call_frames import SEPARATORS, read_body
from callboard.dialects.fence_end import MOST, whole_closing_line
from callboard.dialects.markers import Framed
from callboard.dialects.speech import Speech
from callboard.dialects.text_buffer import Over, Reading, Refused

_INFO_END = re.compile(r"[\n`{\[]")
_CODE = re.compile(r"[`\n]")
_LINE_END = re.compile(r"\n")
_FENCE = 3


def read_fence(speech: Speech, char: str) -> Reading[bool]:
    """Reads a fence, or what is none; whether a line begins behind it."""
    reader = speech.reader
    reader.begin()
    run = yield from reader.run(char, MOST + 1)
    if not _FENCE <= run <= MOST:
        reader.decided()
        if char == "`":
            yield from read_code(speech, run)
        return False
    language = yield from _language(speech, char)
    if language is None:
        reader.decided()
        reader.say()
        return False
    found = speech.layout.fences.get(language)
    if found is not None:
        dialect, fence = found
        speech.fence = char * run
        try:
            yield from read_body(speech, [(dialect, fence.frame)])
        except Refused:
            pass
        else:
            if speech.fence:
                yield from _behind(speech, (dialect, fence.frame), char * run)
            return True
        finally:
            speech.fence = ""
            reader.decided()
    reader.decided()
    if speech.trial and not speech.calls.count > speech.tried:
        raise Refused
    reader.say()
    speech.said.muted = True
    yield from _quoted(speech, char, run)
    reader.say()
    speech.said.unmute()
    return True


def _language(speech: Speech, char: str) -> Reading[str | None]:
    """What stands behind a fence's run, up to where something else begins; None if it was no fence."""
    reader = speech.reader
    info = ""
    while True:
        found = _INFO_END.search(reader.text, reader.at)
        end = len(reader.text) if found is None else found.start()
        end = min(end, reader.at + MOST + 1 - len(info))
        info += reader.text[reader.at : end]
        reader.at = end
        if len(info) > MOST:
            return info
        if found is None:
            yield
            continue
        language = info.strip().lower()
        if found[0] == "`" and char == "`":
            return None
        if found[0] == "\n" or (language in speech.layout.fences and found[0] in "{["):
            return language
        info += found[0]
        reader.at += 1


def _quoted(speech: Speech, char: str, run: int) -> Reading[None]:
    """Reads the text of a fence that holds no call, with its closing line. All of it is said, or held."""
    reader = speech.reader
    line = whole_closing_line(char, run)
    while True:
        if found := line.search(reader.text, reader.at):
            reader.at = found.end()
            return
        reader.at = max(reader.at, reader.text.rfind("\n", reader.at))
        while (newline := reader.text.find("\n", reader.at)) < 0:
            yield from speech.idly(_LINE_END)
        reader.at = newline + 1
        yield from reader.run(" \t")
        closes = (yield from reader.run(char)) >= run
        yield from reader.run(" \t\r")
        if closes and reader.text[reader.at] == "\n":
            reader.at += 1
            return


def _behind(speech: Speech, framed: Framed, fence: str) -> Reading[None]:
    """Reads what stands behind a call in its fence: more of them, the closing line; the rest is noted."""
    reader = speech.reader
    try:
        while not speech.broken:
            reader.begin()
            yield from reader.run(SEPARATORS)
            run = yield from reader.run(fence[0], MOST)
            if run >= len(fence):
                yield from reader.run(" \t\r")
                reader.drop()
                reader.at += reader.text[reader.at] == "\n"
                reader.drop()
                return
            if run:
                break
            reader.drop()
            yield from read_body(speech, [framed])
    except Refused:
        pass
    except Over:
        _note_rest(speech, fence)
        raise
    finally:
        reader.decided()
    while True:
        reader.begin()
        try:
            yield from _quoted(speech, fence[0], len(fence))
        except Refused:
            _note_rest(speech, fence)
            continue
        except Over:
            _note_rest(speech, fence)
            raise
        finally:
            reader.decided()
        _note_rest(speech, fence)
        return


def _note_rest(speech: Speech, fence: str) -> None:
    reader = speech.reader
    begin = reader.pending
    rest = reader.take().strip().rstrip(fence[0]).rstrip(" \t\r\n,;")
    if rest.strip(fence[0]):
        reader.note("dropped", f"after the call in its block: {rest}", begin)


def read_code(speech: Speech, run: int) -> Reading[None]:
    """Reads a code span: to as many backticks as opened it, or to the end of the line."""
    reader = speech.reader
    while True:
        found = _CODE.search(reader.text, reader.at)
        if found is None:
            yield from speech.idly(_CODE)
            continue
        reader.at = found.start()
        if found[0] == "\n" or (yield from reader.run("`")) == run:
            return

"""Fences of backticks or tildes.

Owns where one ends (CommonMark: at a line that holds nothing but a run at least as long as its opening
one). Knows nothing of what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from callboard.dialects.text_buffer import Over, Reader, Reading

MOST = 64
"""Characters of a run that opens or closes a fence, of its language, and of white space around them."""


@lru_cache(maxsize=64)
def _closing(char: str, run: int) -> re.Pattern[str]:
    """The line that closes, with the newline before it, or as much of it as there is before the text's end."""
    pattern = rf"{char}{{0,{MOST}}}+(?:\Z|[ \t]{{0,{MOST}}}+(?:\Z|\n(?P<done>)))"
    for _ in range(run):
        pattern = rf"(?:\Z|{char}{pattern})"
    return re.compile(rf"\n(?:\Z|[ \t]{{0,{MOST}}}+{pattern})")


@lru_cache(maxsize=64)
def whole_closing_line(char: str, run: int) -> re.Pattern[str]:
    """A line that closes, with the newline before it."""
    return re.compile(rf"\n[ \t]*{char}{{{run},}}[ \t\r]*\n")


def fenced(reader: Reader, fence: str, write: Callable[[str, int], object]) -> Reading[None]:
    """Gives what stands in the fence, with the offsets up to which it goes, and reads its closing line.

    Raises Over where that is missing, with everything given.
    """
    pattern = _closing(fence[0], len(fence))
    while True:
        at = reader.text.find("\n", reader.at)
        end = len(reader.text) if at < 0 else at
        if end > reader.at:
            write(reader.text[reader.at : end], reader.base + end)
            reader.at = end
        if at < 0:
            yield
            continue
        found = pattern.match(reader.text, at)
        while found is not None and found["done"] is None:
            try:
                yield
            except Over:
                # The text ends with the line that closes, or with a part of it.
                if reader.text[reader.at :].strip().strip(fence[0]):
                    write(reader.text[reader.at :], reader.base + len(reader.text))
                reader.at = len(reader.text)
                raise
            found = pattern.match(reader.text, reader.at)
        if found is not None:
            reader.at = found.end()
            return
        write("\n", reader.offset + 1)
        reader.at += 1

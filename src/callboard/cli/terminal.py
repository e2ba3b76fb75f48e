"""Texts on a terminal: their colors and widths, and lines that break between words."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final, TextIO
from unicodedata import category, east_asian_width

STATE_COLORS: Final = {
    "completed": "32",
    "failed": "31",
    "interrupted": "31",
    "cancelled": "33",
    "running": "36",
    "waiting": "35",
}
"""Colors of the states of a job, as numbers of ANSI."""
_MIN_WIDTH: Final = 20
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
_WORD: Final = re.compile(r"\s*\S+|\s+")


def has_color(stream: TextIO) -> bool:
    """Return whether the stream is a terminal whose user wants colors."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, color: str, is_on: bool = True) -> str:
    """Return the text in a color."""
    return f"\x1b[{color}m{text}\x1b[0m" if is_on and color and text else text


def find_width(stream: TextIO | None = None) -> int:
    """Return the columns of a terminal. The default is the terminal of standard output. COLUMNS overrides both."""
    columns = shutil.get_terminal_size().columns
    if stream is not None and not os.environ.get("COLUMNS"):
        with suppress(OSError, ValueError):  # not a terminal, or without a descriptor
            columns = os.get_terminal_size(stream.fileno()).columns
    return max(_MIN_WIDTH, columns)


@cache
def _measure_char(char: str) -> int:
    return 0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1


def measure(text: str) -> int:
    """Return the columns that a text takes, without its colors."""
    plain = _ESCAPE.sub("", text)
    return len(plain) if plain.isascii() else sum(map(_measure_char, plain))


def crop(text: str, width: int) -> str:
    """Return the text in at most `width` columns; a cut text ends with an ellipsis."""
    if measure(text) <= width:
        return text
    room = width - 1
    for end, char in enumerate(text):
        room -= _measure_char(char)
        if room < 0:
            return f"{text[:end].rstrip()}…" if width > 0 else ""
    return text


def wrap(text: str, width: int, indent: str | None = None) -> str:
    """Break the lines of a text between words. Every other line starts with `indent`. The default is the indent of its line.

    A word that is longer than a line is broken anywhere. Colors take no room. No character is lost, except blanks at a
    break.
    """
    return "\n".join([_wrap_line(line, width, indent) for line in text.split("\n")])


def _wrap_line(line: str, width: int, indent: str | None) -> str:
    if measure(line) <= width:
        return line
    own = line[: len(line) - len(line.lstrip(" "))] if indent is None else indent
    own = own if len(own) <= width // 2 else ""
    lines: list[str] = []
    now, room = "", width
    for word in _WORD.findall(line):
        if measure(word) > room and now.strip():
            lines.append(now.rstrip())
            now, room, word = own, width - len(own), word.lstrip()  # noqa: PLW2901
        while measure(word) > room:
            head = _split(word, room)
            lines.append(now + head)
            now, room, word = own, width - len(own), word[len(head) :]  # noqa: PLW2901
        now, room = now + word, room - measure(word)
    return "\n".join([*lines, now.rstrip()])


def _split(word: str, room: int) -> str:
    """Return the beginning of a word that fits, at least one character."""
    end = 0
    while end < len(word):
        if color := _ESCAPE.match(word, end):
            end = color.end()
            continue
        room -= _measure_char(word[end])
        if room < 0 and end:
            break
        end += 1
    return word[:end]


def align(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column of a table."""
    return [max(map(measure, column), default=0) for column in zip(*rows, strict=True)]


def pad(text: str, width: int) -> str:
    """Return the text with blanks up to a width."""
    return text + " " * (width - measure(text))

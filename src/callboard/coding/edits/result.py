"""The result of an edit: the new text with the spans that differ, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

_LONGEST: Final = 1000
"""Characters of a line that are shown."""


class EditRefused(ValueError):
    """An edit that does not fit. Its text says why, and shows what would."""


class Span(NamedTuple):
    """`removed` lines of the old text, from line `start` (from 1), became `added` lines."""

    start: int
    removed: int
    added: int


class Change(msgspec.Struct, frozen=True):
    """The new text, and where it differs from the old: spans in order, none in another."""

    text: str
    spans: tuple[Span, ...]


def split_lines(text: str) -> list[str]:
    """Split a text into lines without their ends; text behind the last line end is a line, an empty rest is not."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def join_lines(lines: Sequence[str], like: str) -> str:
    """Join lines to a text that ends as `like` does, with a line end if `like` is empty."""
    return "\n".join(lines) + "\n" * bool(lines and (not like or like.endswith("\n")))


def number_lines(lines: Sequence[str], start: int) -> str:
    """Format lines with their numbers, the first with `start`."""
    return "\n".join([f"{number}| {_shorten_line(line)}" for number, line in enumerate(lines, start)])


def format_line_range(start: int, count: int) -> str:
    """Such as `line 3` or `lines 3 to 5`."""
    return f"line {start}" if count == 1 else f"lines {start} to {start + count - 1}"


def _shorten_line(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}... ({len(line) - _LONGEST} more characters)"

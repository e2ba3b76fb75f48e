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
    """`removed` lines of the old text from `start` on, 1-based, of which `added` lines were made."""

    start: int
    removed: int
    added: int


class Change(msgspec.Struct, frozen=True):
    """The new text, and where it differs from the old: spans in order, none in another."""

    text: str
    spans: tuple[Span, ...]


def split_lines(text: str) -> list[str]:
    """The lines of a text without their ends; what stands behind the last end is one more, if there is anything."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def join_lines(lines: Sequence[str], like: str) -> str:
    """The text of these lines; the last one ends as the last of another text does, or as all do in an empty one."""
    return "\n".join(lines) + "\n" * bool(lines and (not like or like.endswith("\n")))


def number_lines(lines: Sequence[str], start: int) -> str:
    """Lines as they are shown, the first with the number `start`."""
    return "\n".join([f"{number}| {_shorten_line(line)}" for number, line in enumerate(lines, start)])


def format_line_range(start: int, count: int) -> str:
    """Such as `line 3` or `lines 3 to 5`."""
    return f"line {start}" if count == 1 else f"lines {start} to {start + count - 1}"


def _shorten_line(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}... ({len(line) - _LONGEST} more characters)"

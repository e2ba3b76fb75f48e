"""Edit a text by line numbers, which count from 1. The end of the last line is kept."""

from __future__ import annotations

import re
from typing import Final

from callboard.coding.edits.result import Change, EditRefused, Span, join_lines, split_lines

_RANGE: Final = re.compile(r"\s*(\d{1,9})\s*(?:[:,-]\s*(\d{1,9})?\s*)?", re.ASCII)


def parse_range(text: str) -> tuple[int, int | None]:
    """The first and the last line of `3:9`, `3-9` or `3`; of `3:` the last is None. Raises EditRefused."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise EditRefused(f"{text[:40]!r} is no range of lines; write 3:9, or 3 for one line")
    first = int(match[1])
    if match[2] is not None:
        return first, int(match[2])
    return first, None if text.strip()[-1] in ":,-" else first


def replace_lines(text: str, start: int, end: int, content: str) -> Change:
    """Replace the lines from `start` to `end`; an empty content deletes them. Raises EditRefused."""
    lines = split_lines(text)
    check_range(lines, start, end)
    new = split_lines(content)
    lines[start - 1 : end] = new
    return Change(join_lines(lines, text), (Span(start, end - start + 1, len(new)),))


def insert_lines(text: str, line: int, content: str) -> Change:
    """Insert the content before `line`. Raises EditRefused."""
    lines = split_lines(text)
    if not 1 <= line <= len(lines) + 1:
        raise EditRefused(f"the file has {_count(lines)}; content can be put at 1 to {len(lines) + 1}")
    # A blank line is a line.
    new = split_lines(content) or [""]
    lines[line - 1 : line - 1] = new
    return Change(join_lines(lines, text), (Span(line, 0, len(new)),))


def check_range(lines: list[str], start: int, end: int) -> None:
    """Raise EditRefused for a range that is not in these lines."""
    if start < 1 or end < start or end > len(lines):
        raise EditRefused(f"the file has {_count(lines)}; {start}:{end} is no range of them")


def _count(lines: list[str]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines)} lines"

"""Edit a text by line numbers, which count from 1, or by a text that is in it exactly. The end of the last line is kept."""

from __future__ import annotations

import re
from typing import Final

from callboard.coding.edits.closest_match import describe_closest_match
from callboard.coding.edits.result import Change, EditRefused, Span, join_lines, split_lines

_LISTED: Final = 10
"""Line numbers that an error lists."""


def replace_text(text: str, old: str, new: str, *, every: bool = False) -> Change:
    """The text with `new` for `old`, which it has once; with `every`, for each, from left to right.

    Raises EditRefused that names the places where it is more than once, or shows what is nearest.
    """
    if not old:
        raise EditRefused("old is empty; to add lines, insert them at a line, or append them")
    if old == new:
        raise EditRefused("old and new are the same: nothing would change")
    places = _find_all(text, old)
    if not places:
        raise EditRefused(f"old is not in the file: {describe_closest_match(text, old)}")
    if len(places) > 1 and not every:
        numbers = _line_numbers(text, places)
        listed = ", ".join(map(str, numbers[:_LISTED])) + (" ..." if len(numbers) > _LISTED else "")
        raise EditRefused(
            f"old is {len(places)} times in the file, at lines {listed}; "
            "give more of the lines around the one that is meant, or all=true to replace each"
        )
    return Change(text.replace(old, new), tuple(_changed_spans(text, places, old, new)))


def _find_all(text: str, old: str) -> list[int]:
    places: list[int] = []
    at = text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + len(old))
    return places


def _line_numbers(text: str, places: list[int]) -> list[int]:
    numbers: list[int] = []
    number, since = 1, 0
    for place in places:
        number += text.count("\n", since, place)
        since = place
        numbers.append(number)
    return numbers


def _changed_spans(text: str, places: list[int], old: str, new: str) -> list[Span]:
    """The spans of changed lines; replacements in the same line are one span."""
    spans: list[Span] = []
    lines, more = old.count("\n"), new.count("\n")
    ends = old.endswith("\n") and (not new or new.endswith("\n"))
    for place, start in zip(places, _line_numbers(text, places), strict=True):
        if spans and start < spans[-1].start + spans[-1].removed:
            last = spans.pop()
            spans.append(Span(last.start, last.removed + lines, last.added + more))
            continue
        # Whole lines leave the one behind them alone.
        touched = not (ends and text[place - 1 : place] in ("", "\n"))
        spans.append(Span(start, lines + touched, more + touched))
    return spans


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

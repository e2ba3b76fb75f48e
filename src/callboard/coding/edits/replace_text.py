"""Replace a text that has to be in the file exactly, and once unless all are meant."""

from __future__ import annotations

from typing import Final

from callboard.coding.edits.closest_match import describe_closest_match
from callboard.coding.edits.result import Change, EditRefused, Span

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

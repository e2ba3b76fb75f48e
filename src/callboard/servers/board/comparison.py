"""Two lists of entries side by side, from their first difference: two jobs, or two readings of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import to_builtins

from callboard.core import InvocationCanister
from callboard.jobs.entries import JobEntry
from callboard.servers.board.entry_view import EntryView
from callboard.servers.gateway.traffic_values import ReplyReading
from callboard.text.display import display

MAX_COMPARED: Final = 100
"""Maximum entries of each side after the first difference."""
_NAMES: Final = frozenset({"timestamp", "identifier", "invocation_id", "took"})
"""Fields that differ between two runs that do the same."""
_MAX_NAME: Final = 80


class Side(NamedTuple):
    """One side: its entries after the common ones, the number of those that are not shown, and the names of its calls."""

    articles: Sequence[Markup]
    hidden: int
    calls: Sequence[str]


class Comparison(NamedTuple):
    """The number of first entries that say the same, and both sides after them. `is_equal` if nothing differs."""

    same: int
    sides: Sequence[Side]
    is_equal: bool


def compare_entries(
    one: Sequence[JobEntry],
    two: Sequence[JobEntry],
    places: Sequence[str] = ("", ""),
    prefixes: Sequence[str] = ("a", "b"),
) -> Comparison:
    """Compare two lists of entries. `places` are the paths of their jobs, and `prefixes` begin the ids of articles."""
    same = count_same(one, two)
    sides = [
        _show_side(place, prefix, entries, same)
        for place, prefix, entries in zip(places, prefixes, (one, two), strict=True)
    ]
    return Comparison(same, sides, is_equal=len(one) == len(two) == same)


def compare_readings(one: ReplyReading, two: ReplyReading, prefixes: Sequence[str] = ("a", "b")) -> Comparison:
    """Compare two readings of a reply, or the readings of two replies."""
    lists = [[JobEntry(number, 0, line) for number, line in enumerate(each.entries, 1)] for each in (one, two)]
    return compare_entries(lists[0], lists[1], prefixes=prefixes)


def count_same(one: Sequence[JobEntry], two: Sequence[JobEntry]) -> int:
    """Return the number of first entries that say the same, whatever their times and the identifiers of calls."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a.line != b.line and _read(a) != _read(b)),
        min(len(one), len(two)),
    )


def _read(entry: JobEntry) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(entry.item)
    names = _NAMES if fields.get("arguments") is None else {*_NAMES, "raw"}  # the arguments say the same
    return {name: value for name, value in fields.items() if name not in names}


def _show_side(place: str, prefix: str, entries: Sequence[JobEntry], same: int) -> Side:
    view = EntryView(place, prefix)
    shown = entries[same : same + MAX_COMPARED]
    for entry in entries[:same]:
        if shown and entry.round == shown[0].round:  # the view needs the calls of this round only
            view.feed(entry)
    articles = [article for entry in shown for article in view.feed(entry)]
    calls = [display(each.item.name, _MAX_NAME) for each in entries if isinstance(each.item, InvocationCanister)]
    return Side(articles, len(entries) - same - len(shown), calls)

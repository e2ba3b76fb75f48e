"""Sum up the rows of a gateway's log of requests.

Law: the same rows give the same overview, in whatever order they come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median, quantiles
from typing import Final

from callboard.servers.gateway.traffic_values import (
    BackendState,
    ModelFigures,
    Overview,
    RequestRow,
    RowFilter,
    RowPage,
)

_MINUTE: Final = 60.0
_HIGH: Final = 20
"""Of so many requests one is slower than `seconds_high`."""
_MAX_LISTED: Final = 100


def make_overview(
    rows: Sequence[RequestRow],
    backends: Iterable[BackendState],
    now: float,
    workers: Sequence[str],
    missing_workers: int = 0,
) -> Overview:
    """The overview of these rows; `now` is in seconds since 1970."""
    groups: defaultdict[tuple[str, str], list[RequestRow]] = defaultdict(list)
    for row in rows:
        groups[row.model, row.backend].append(row)
    figures = [_sum_up(*names, group) for names, group in groups.items()]
    return Overview(
        open=sum([row.is_open for row in rows]),
        last_minute=sum([now - row.at <= _MINUTE for row in rows]),
        count=len(rows),
        since=min([row.at for row in rows], default=now),
        models=tuple(sorted(figures, key=lambda each: (-each.count, each.model, each.backend))[:_MAX_LISTED]),
        dropped=sum([bool(row.dropped) for row in rows]),
        repaired=sum([row.repaired for row in rows]),
        recovered=sum([row.recovered for row in rows]),
        labels=_count([label.name for row in rows for label in row.labels]),
        failures=_count([row.why.partition(":")[0] or row.end for row in rows if row.is_failure]),
        backends=tuple(backends),
        workers=tuple(workers),
        missing_workers=missing_workers,
    )


def select_page(rows: Iterable[RequestRow], row_filter: RowFilter, before: str, limit: int) -> RowPage:
    """A page of rows, the newest first; `before` is the cursor of the page before it."""
    last = _read_cursor(before)
    newest = sorted(rows, key=_place, reverse=True)
    chosen = [row for row in newest if (last is None or _place(row) < last) and matches(row, row_filter)]
    shown = tuple(chosen[:limit])
    return RowPage(shown, f"{shown[-1].at!r} {shown[-1].identifier}" if len(chosen) > limit else "")


def matches(row: RequestRow, row_filter: RowFilter) -> bool:
    """Whether a filter lets a row pass."""
    named = (("model", row.model), ("backend", row.backend), ("end", row.end), ("again_of", row.again_of))
    if any((value := getattr(row_filter, name)) and value != own for name, own in named):
        return False
    problems = {
        "failed": row.is_failure,
        "dropped": bool(row.dropped),
        "repaired": bool(row.repaired),
        "recovered": bool(row.recovered),
        "labels": bool(row.labels),
    }
    return not row_filter.problem or problems.get(row_filter.problem, False)


def _sum_up(model: str, backend: str, rows: Sequence[RequestRow]) -> ModelFigures:
    ended = [row for row in rows if not (row.is_open or row.is_failure)]
    seconds = [row.seconds for row in ended]
    first = [row.first_seconds for row in ended if row.first_seconds is not None]
    return ModelFigures(
        model=model,
        backend=backend,
        count=len(rows),
        open=sum([row.is_open for row in rows]),
        failed=sum([row.is_failure for row in rows]),
        seconds=median(seconds) if seconds else None,
        seconds_high=quantiles(seconds, n=_HIGH, method="inclusive")[-1] if len(seconds) > 1 else None,
        first_seconds=median(first) if first else None,
        output=sum([row.output for row in rows]),
    )


def _count(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0]))[:_MAX_LISTED])


def _place(row: RequestRow) -> tuple[float, str]:
    """Where a row is in the list; requests of two workers may begin at the same time."""
    return row.at, row.identifier


def _read_cursor(before: str) -> tuple[float, str] | None:
    at, _, identifier = before.partition(" ")
    try:
        return (float(at), identifier) if at else None
    except ValueError:
        return None

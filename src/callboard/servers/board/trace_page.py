"""Where the time, tokens and money of a job went; and two jobs side by side.

Both pages read at most `MAX_ENTRIES` entries of a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.jobs.entries import JobEntry
from callboard.jobs.job import DurableJob
from callboard.jobs.steps import CallSpan, RoundSpan, build_trace, place_spans, sum_seconds
from callboard.servers.board.browser import read_value
from callboard.servers.board.entry_view import EntryView

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

MAX_ENTRIES: Final = 10_000
MAX_ROWS: Final = 2000
"""Maximum rounds and calls of a trace. The first ones are shown."""
MAX_COMPARED: Final = 100
"""Maximum entries of each job after the first difference."""
_BAR: Final = 1000
"""Units of a bar's width."""
_NAMES: Final = frozenset({"timestamp", "identifier", "invocation_id", "took"})
"""Fields that differ between two runs that do the same."""


class Bar(NamedTuple):
    """A row of the trace: a round or a call, and the place of its bar in units."""

    span: RoundSpan | CallSpan
    is_call: bool
    begin: int
    width: int


class Side(NamedTuple):
    """One of two jobs: the job, its entries after the common ones, and the number of those that are not shown."""

    job: DurableJob
    articles: Sequence[Markup]
    hidden: int


def routes(board: Board) -> Sequence[BaseRoute]:
    async def trace(request: Request) -> Response:
        job, entries = await read(request.path_params["job"])
        rounds = await asyncio.to_thread(build_trace, entries)
        bars = [
            Bar(span, isinstance(span, CallSpan), int(begin * _BAR), max(1, int(width * _BAR)) if width else 0)
            for span, begin, width in place_spans(rounds)
        ]
        return board.render(
            request,
            "trace.html",
            job=job,
            bars=bars[:MAX_ROWS],
            seconds=sum_seconds(rounds),
            hidden=len(bars) - MAX_ROWS,
        )

    async def compare(request: Request) -> Response:
        one, two = [
            await read(each) for each in (request.path_params["job"], read_value(request.query_params.get("with")))
        ]
        same = await asyncio.to_thread(count_same, one[1], two[1])
        base = request.scope.get("root_path", "")
        sides = [
            show_side(f"{base}/jobs/{job.id}", prefix, job, entries, same)
            for prefix, (job, entries) in zip(("a", "b"), (one, two), strict=True)
        ]
        return board.render(request, "compare.html", sides=sides, same=same)

    async def read(identifier: str) -> tuple[DurableJob, Sequence[JobEntry]]:
        job = await board.jobs.store.get(identifier)
        return job, await board.jobs.store.read_entries(job.id, 0, MAX_ENTRIES)

    return [Route("/jobs/{job}/trace", trace), Route("/jobs/{job}/compare", compare)]


def count_same(one: Sequence[JobEntry], two: Sequence[JobEntry]) -> int:
    """Return the number of first entries that say the same, whatever their times and the identifiers of calls."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a.line != b.line and _read(a) != _read(b)),
        min(len(one), len(two)),
    )


def _read(entry: JobEntry) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(entry.item)
    return {name: value for name, value in fields.items() if name not in _NAMES}


def show_side(place: str, prefix: str, job: DurableJob, entries: Sequence[JobEntry], same: int) -> Side:
    view = EntryView(place, prefix)
    for entry in entries[:same]:
        view.feed(entry)
    shown = entries[same : same + MAX_COMPARED]
    return Side(job, [article for entry in shown for article in view.feed(entry)], len(entries) - same - len(shown))

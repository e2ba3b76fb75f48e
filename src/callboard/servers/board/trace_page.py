"""Where the time, tokens and money of a job went; and two jobs side by side.

Both pages read at most `MAX_ENTRIES` entries of a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.jobs.entries import JobEntry
from callboard.jobs.job import DurableJob
from callboard.jobs.steps import build_trace, place_spans, sum_seconds
from callboard.servers.board.browser import read_value
from callboard.servers.board.comparison import compare_entries

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

MAX_ENTRIES: Final = 10_000
MAX_ROWS: Final = 2000
"""Maximum rounds and calls of a trace. The first ones are shown."""


def routes(board: Board) -> Sequence[BaseRoute]:
    async def trace(request: Request) -> Response:
        job, entries = await read(request.path_params["job"])
        rounds = await asyncio.to_thread(build_trace, entries)
        bars = list(place_spans(rounds))
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
        base = request.scope.get("root_path", "")
        places = [f"{base}/jobs/{job.id}" for job, _ in (one, two)]
        comparison = await asyncio.to_thread(compare_entries, one[1], two[1], places)
        return board.render(request, "compare.html", comparison=comparison, jobs=[one[0], two[0]])

    async def read(identifier: str) -> tuple[DurableJob, Sequence[JobEntry]]:
        job = await board.jobs.store.get(identifier)
        return job, await board.jobs.store.read_entries(job.id, 0, MAX_ENTRIES)

    return [Route("/jobs/{job}/trace", trace), Route("/jobs/{job}/compare", compare)]

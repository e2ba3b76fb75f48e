"""The list of jobs, and above it what waits for a person."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.jobs.job import DurableState, JobSummary
from callboard.jobs.overview import JobOverview
from callboard.servers.board import job_actions, job_page
from callboard.servers.board.input import read_value
from callboard.servers.board.job_view import describe_state
from callboard.servers.board.live import PageUpdate, send_updates, wait
from callboard.servers.board.templating import render

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

PAGE_SIZE: Final = 50
LOOK_SECONDS: Final = 0.5
"""Between two looks at all jobs while somebody watches the list."""
STATES: Final[tuple[DurableState, ...]] = get_args(DurableState)


class ListedJob(NamedTuple):
    """A row of the list; `why` says for whom it waits, or why it ended so."""

    job: JobSummary
    why: str


class Filter(NamedTuple):
    """Which jobs a list shows: of a state or of any, older than one or the newest."""

    state: str
    before: str

    @property
    def states(self) -> list[DurableState]:
        """For the store; none is any."""
        return [each for each in STATES if each == self.state]


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of the list and of its jobs."""

    async def show(request: Request) -> Response:
        parts = await _render_parts(board, board.values(request), _read_filter(request))
        query = request.url.query
        return board.render(request, "jobs.html", parts=parts, live=f"/jobs/live{f'?{query}' if query else ''}")

    async def stream(request: Request) -> Response:
        return send_updates(board, request, _follow(board, board.values(request), _read_filter(request)))

    return [
        Route("/jobs", show),
        Route("/jobs/live", stream),
        *job_actions.routes(board),
        *job_page.routes(board),
    ]


def _read_filter(request: Request) -> Filter:
    state = request.query_params.get("state", "")
    return Filter(state if state in STATES else "", read_value(request.query_params.get("before")))


async def _render_parts(board: Board, common: Mapping[str, Any], chosen: Filter) -> dict[str, Markup]:
    """The parts of the page that change, by the ids of their elements."""
    overview = JobOverview(board.jobs.store.database)
    listed = await board.jobs.store.list(chosen.states, before=chosen.before, limit=PAGE_SIZE + 1)
    values: dict[str, Any] = {
        **common,
        "chosen": chosen,
        "rows": [ListedJob(job, describe_state(job)) for job in listed[:PAGE_SIZE]],
        "has_more": len(listed) > PAGE_SIZE,
        "counts": await overview.count_states(),
        "states": STATES,
        "asked": await overview.open_questions(),
    }
    return {name: render(f"jobs_{name}.html", values) for name in ("waiting", "states", "rows", "more")}


async def _follow(board: Board, common: Mapping[str, Any], chosen: Filter) -> AsyncGenerator[PageUpdate]:
    """The parts of the list that change, for as long as somebody watches."""
    overview = JobOverview(board.jobs.store.database)
    seen: Any = None
    parts: dict[str, Markup] = {}
    while True:
        now = (await overview.last_change(), [each.digest for each in await overview.open_questions()])
        if now != seen:
            fresh = await _render_parts(board, common, chosen)
            changed = {name: markup for name, markup in fresh.items() if parts.get(name) != markup}
            seen, parts = now, fresh
            if changed:
                yield PageUpdate(event="parts", data=changed)
        if not await wait(board, LOOK_SECONDS):
            return

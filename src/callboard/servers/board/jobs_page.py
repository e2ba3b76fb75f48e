"""The list of jobs, and above it what waits for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.jobs.job import DurableState

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

PAGE_SIZE: Final = 50
STATES: Final[tuple[DurableState, ...]] = get_args(DurableState)


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of the list."""

    async def show_list(request: Request) -> Response:
        state = request.query_params.get("state", "")
        before = request.query_params.get("before", "")[:100]
        states = [each for each in STATES if each == state]
        listed = await board.jobs.store.list(states, before=before, limit=PAGE_SIZE + 1)
        return board.render(
            request,
            "jobs.html",
            jobs=listed[:PAGE_SIZE],
            has_more=len(listed) > PAGE_SIZE,
            states=STATES,
            state=state,
            before=before,
        )

    return [Route("/jobs", show_list)]

"""The list of the runs that commands made themselves, as they are recorded in folders.

Law: a page reads the records that it shows, however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.servers.board import run_page
from callboard.servers.board.browser import PageUpdate, read_value, send_updates, wait
from callboard.servers.board.run_page import find_records
from callboard.servers.board.run_view import ListedRun, find_key, list_runs
from callboard.servers.board.templating import render

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

PAGE_SIZE: Final = 50
LOOK_SECONDS: Final = 1.0
"""Between two looks at the records of a page while somebody watches it."""


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of the list and of its runs."""

    async def show(request: Request) -> Response:
        before = read_value(request.query_params.get("before"))
        listed = await asyncio.to_thread(list_runs, find_records(board), before, PAGE_SIZE + 1)
        parts = _render_parts(board.values(request), listed, before)
        return board.render(request, "runs.html", parts=parts, before=before)

    async def stream(request: Request) -> Response:
        before = read_value(request.query_params.get("before"))
        return send_updates(board, request, _follow(board, board.values(request), before))

    return [Route("/runs", show), Route("/runs/live", stream), *run_page.routes(board)]


def _render_parts(common: Mapping[str, Any], listed: Sequence[ListedRun], before: str) -> dict[str, Markup]:
    """The parts of the page that change, by the ids of their elements."""
    rows = listed[:PAGE_SIZE]
    values = {**common, "rows": rows, "before": before, "find_key": find_key, "has_more": len(listed) > PAGE_SIZE}
    return {name: render(f"runs_{name}.html", values) for name in ("rows", "more")}


async def _follow(board: Board, common: Mapping[str, Any], before: str) -> AsyncGenerator[PageUpdate]:
    """The parts of the list that change, for as long as somebody watches."""
    seen: Sequence[ListedRun] | None = None
    parts: dict[str, Markup] = {}
    while True:
        listed = await asyncio.to_thread(list_runs, find_records(board), before, PAGE_SIZE + 1)
        if listed != seen:
            fresh = _render_parts(common, listed, before)
            changed = {name: markup for name, markup in fresh.items() if parts.get(name) != markup}
            seen, parts = listed, fresh
            if changed:
                yield PageUpdate(event="parts", data=changed)
        if not await wait(board, LOOK_SECONDS):
            return

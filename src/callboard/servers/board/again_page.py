"""Run a job again with something changed: an entry, the prompt or the model. Each makes a new job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.jobs.changed_fork import find_prompt, fork_with_change, read_changeable
from callboard.jobs.entries import JobEntry
from callboard.servers.board.browser import Form, read_number
from callboard.servers.board.job_page import read_entry
from callboard.servers.board.tests_page import list_models

if TYPE_CHECKING:
    from callboard.servers.board.app import Board


def routes(board: Board) -> Sequence[BaseRoute]:
    async def show_change(request: Request) -> Response:
        return await show_form(request, await read_entry(board, request))

    async def show_again(request: Request) -> Response:
        entry = await find_prompt(board.jobs.store, request.path_params["job"])
        return await show_form(request, entry, read_number(request.query_params.get("round", "")) or 0)

    async def show_form(request: Request, entry: JobEntry, at_round: int | None = None) -> Response:
        return board.render(
            request,
            "change.html",
            job=await board.jobs.store.read_summary(request.path_params["job"]),
            entry=entry,
            text=read_changeable(entry),
            at_round=at_round,
            models=await list_models(board),
        )

    async def change(request: Request, form: Form) -> Response:
        number, at_round = read_number(form.get("entry", "")) or 0, read_number(form.get("round", ""))
        # A form sends line ends as CR LF.
        text, model = form.get("text", "").replace("\r\n", "\n"), form.get("model", "").strip()
        job = await fork_with_change(
            board.jobs.store, request.path_params["job"], number, text, model=model, at_round=at_round
        )
        await board.start_worker(job)
        return board.redirect(request, f"/jobs/{job.id}")

    return [
        Route("/jobs/{job}/entries/{number}/change", show_change),
        Route("/jobs/{job}/again", show_again),
        Route("/jobs/{job}/change", board.action(change), methods=["POST"]),
    ]

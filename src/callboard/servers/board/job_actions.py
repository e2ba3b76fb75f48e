"""What is done with a job: answer what it asks, cancel it, let it go on, do it again, fork it.

Law: an answer is about what was shown: it carries the digest of that, and the store refuses it when the call is another
by now, when it was answered before, or when the job waits no more. It counts only if the question was shown for
`LOOK_SECONDS`, and the page that follows an answer has no question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.errors import CallerError
from callboard.jobs.entries import read_conversation
from callboard.jobs.job import DurableJob
from callboard.servers.board.entry_view import read_object
from callboard.servers.board.input import Form, read_number
from callboard.servers.board.job_view import look_subject
from callboard.servers.board.login import LOOK_SECONDS, name_session
from callboard.servers.gateway.traffic_values import KeptReply

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

VERDICTS: Final[dict[str, Literal["allow", "deny"]]] = {
    "allow": "allow",
    "edit": "allow",
    "answer": "allow",
    "deny": "deny",
}
"""What a form's button says, and what the store takes it for."""
_CANCEL_PATIENCE: Final = 3.0
"""Seconds that a request waits for the worker of a cancelled job to end it."""


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes that change a job."""

    async def answer(request: Request, form: Form) -> Response:
        verdict = VERDICTS.get(form.get("verdict", ""))
        if verdict is None:
            raise HTTPException(400, "say allow or deny")
        session, call, digest = request.state.session, form.get("call", ""), form.get("digest", "")
        question = look_subject(request.path_params["job"], call, digest)
        seconds = board.login.find_look(session, question, form.get("look", ""))
        if seconds is None:
            raise HTTPException(400, "the form is not of this question; load the page again")
        if seconds < LOOK_SECONDS:
            hint = "go back, look at the question, and answer again"
            raise CallerError("nothing was done: the question was not shown for long enough", path=call, hint=hint)
        job = await board.jobs.store.answer(
            request.path_params["job"],
            call,
            verdict,
            digest=digest,
            by=name_session(session),
            via="board",
            reason=form.get("reason", "") if verdict == "deny" else "",
            text=form.get("text", "") if form["verdict"] == "answer" else "",
            edited=_read_edited(form) if form["verdict"] == "edit" else None,
        )
        await board.start_worker(job)
        # That page has no question, so that a second click answers nothing.
        return board.redirect(request, f"/jobs/{job.id}?answered=1")

    async def cancel(request: Request, _: Form) -> Response:
        job = await board.jobs.store.request_cancel(request.path_params["job"], "cancelled on the board")
        for _attempt in range(int(_CANCEL_PATIENCE / 0.1)):
            if job.has_ended:
                break
            await asyncio.sleep(0.1)
            job = await board.jobs.store.get(job.id)
        await _settle(job)
        return await _lead_to(request, job)

    async def resume(request: Request, _: Form) -> Response:
        return await _lead_to(request, await board.jobs.store.resume(request.path_params["job"]))

    async def retry(request: Request, _: Form) -> Response:
        return await _lead_to(request, await board.jobs.store.retry(request.path_params["job"]))

    async def fork(request: Request, form: Form) -> Response:
        number = read_number(form.get("round", ""))
        if number is None:
            raise HTTPException(400, "say at which round")
        return await _lead_to(request, await board.jobs.store.fork(request.path_params["job"], number))

    async def keep(request: Request, _: Form) -> Response:
        """Make a test of the job's conversation."""
        if board.parts.keep_test is None:
            raise HTTPException(404)
        job = await board.jobs.store.get(request.path_params["job"])
        entries = await board.jobs.store.read_entries(job.id)
        conversation = read_conversation([entry.item for entry in entries])
        test = await asyncio.to_thread(board.parts.keep_test, KeptReply(job.id, tuple(conversation)))
        return board.render(request, "kept_test.html", test=test, back=f"/jobs/{job.id}")

    async def _lead_to(request: Request, job: DurableJob) -> Response:
        await board.start_worker(job)
        return board.redirect(request, f"/jobs/{job.id}")

    actions = {"answer": answer, "cancel": cancel, "resume": resume, "retry": retry, "fork": fork, "keep": keep}
    return [
        Route(f"/jobs/{{job}}/{name}", board.action(handler), methods=["POST"]) for name, handler in actions.items()
    ]


def _read_edited(form: Form) -> dict[str, Any]:
    arguments = read_object(form.get("arguments", "").strip() or "null")
    if arguments is None:
        raise CallerError("the arguments are no JSON object", path="arguments", hint="go back and write all of them")
    return arguments


async def _settle(job: DurableJob) -> None:
    """Put what a coding job changed onto its branch, where no process ran it."""
    from callboard.jobs.coding_kind import settle_cancelled  # noqa: PLC0415  # it imports the coding agents

    with suppress(CallerError):  # its repository may be gone
        await settle_cancelled(job)

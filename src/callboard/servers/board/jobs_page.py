"""The list of jobs, and above it the questions for a person.

Actions on a job: answer its question, cancel, resume, retry, fork.

Law: an answer carries the digest of the call that was shown. The store refuses the answer if the call has changed, was
answered before, or if the job no longer waits. An answer counts only if the question was shown for `LOOK_SECONDS`, and
the page after an answer shows no question.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, get_args
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.errors import CallerError
from callboard.jobs.activity import read_activities
from callboard.jobs.declared_tools import merge_tools, read_tools
from callboard.jobs.entries import read_conversation
from callboard.jobs.job import DurableJob, DurableState
from callboard.jobs.queries import JobFilter, JobOrder
from callboard.servers.board import again_page, job_page, trace_page
from callboard.servers.board.browser import Form, follow_parts, read_number, read_value, send_updates
from callboard.servers.board.charts import DAYS, chart_costs
from callboard.servers.board.edited_arguments import read_edited
from callboard.servers.board.job_page import describe_state, look_subject
from callboard.servers.board.login import LOOK_SECONDS, name_session
from callboard.servers.board.session_rows import KIND, list_with_sessions, select_sessions
from callboard.servers.board.templating import digest, now, render
from callboard.servers.board.tests_page import keep_routes
from callboard.servers.gateway.traffic_values import KeptReply

if TYPE_CHECKING:
    from callboard.servers.board.app import Board
    from callboard.servers.gateway.sessions import RequestSession

VERDICTS: Final[dict[str, Literal["allow", "deny"]]] = {
    "allow": "allow",
    "edit": "allow",
    "answer": "allow",
    "deny": "deny",
}
"""Labels of the buttons of a form, and the decisions that the store records."""
_CANCEL_PATIENCE: Final = 3.0
"""Seconds that a request waits for a cancelled job to end."""


def action_routes(board: Board) -> Sequence[BaseRoute]:
    async def answer(request: Request, form: Form) -> Response:
        verdict = VERDICTS.get(form.get("verdict", ""))
        if verdict is None:
            raise HTTPException(400, "choose allow or deny")
        session, call, digest = request.state.session, form.get("call", ""), form.get("digest", "")
        question = look_subject(request.path_params["job"], call, digest)
        seconds = board.login.find_look(session, question, form.get("look", ""))
        if seconds is None:
            raise HTTPException(400, "the form belongs to another question: reload the page")
        if seconds < LOOK_SECONDS:
            hint = "go back, read the question, and answer again"
            raise CallerError("nothing was done: the question was not shown for long enough", path=call, hint=hint)
        edited = None
        if form["verdict"] == "edit":
            approvals = await board.jobs.store.read_approvals(request.path_params["job"])
            fields, edited = await asyncio.to_thread(read_edited, approvals, form)
            if any(each.mistake for each in fields):
                return await job_page.show_job(board, request, edits={call: fields}, status=422)
        job = await board.jobs.store.answer(
            request.path_params["job"],
            call,
            verdict,
            digest=digest,
            by=name_session(session),
            via="board",
            reason=form.get("reason", "") if verdict == "deny" else "",
            text=form.get("text", "") if form["verdict"] == "answer" else "",
            edited=edited,
        )
        await board.start_worker(job)
        # That page has no question, so a second click answers nothing.
        return board.redirect(request, f"/jobs/{job.id}?answered=1")

    async def cancel(request: Request, _: Form) -> Response:
        """Cancel a job. If no process ran it, move the changes of a coding job onto its branch."""
        from callboard.jobs.coding_kind import settle_cancelled  # noqa: PLC0415  # it imports the coding agents

        job = await board.jobs.store.request_cancel(request.path_params["job"], "cancelled on the board")
        for _attempt in range(int(_CANCEL_PATIENCE / 0.1)):
            if job.has_ended:
                break
            await asyncio.sleep(0.1)
            job = await board.jobs.store.get(job.id)
        with suppress(CallerError):  # its repository may be gone
            await settle_cancelled(job)
        return await _lead_to(request, job)

    async def resume(request: Request, _: Form) -> Response:
        return await _lead_to(request, await board.jobs.store.resume(request.path_params["job"]))

    async def retry(request: Request, _: Form) -> Response:
        return await _lead_to(request, await board.jobs.store.retry(request.path_params["job"]))

    async def fork(request: Request, form: Form) -> Response:
        number = read_number(form.get("round", ""))
        if number is None:
            raise HTTPException(400, "choose a round")
        return await _lead_to(request, await board.jobs.store.fork(request.path_params["job"], number))

    async def read_reply(request: Request) -> KeptReply:
        job = await board.jobs.store.get(request.path_params["job"])
        entries = await board.jobs.store.read_entries(job.id)
        sets = await read_tools(board.jobs.store.database, job.id)
        conversation = read_conversation([entry.item for entry in entries])
        return KeptReply(job.id, tuple(conversation), merge_tools(sets[-1:]))

    async def _lead_to(request: Request, job: DurableJob) -> Response:
        await board.start_worker(job)
        return board.redirect(request, f"/jobs/{job.id}")

    actions = {
        "answer": answer,
        "cancel": cancel,
        "resume": resume,
        "retry": retry,
        "fork": fork,
    }
    return [
        *again_page.routes(board),
        *keep_routes(board, "/jobs/{job}/keep", read_reply),
        *(Route(f"/jobs/{{job}}/{name}", board.action(handler), methods=["POST"]) for name, handler in actions.items()),
    ]


PAGE_SIZE: Final = 50
LIST_SECONDS: Final = 0.5
"""Seconds between polls of all jobs while a browser watches the list."""
STATES: Final[tuple[DurableState, ...]] = get_args(DurableState)
ORDERS: Final[tuple[JobOrder, ...]] = get_args(JobOrder)


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "state": STATES.index,
    "day": date.fromisoformat,
    "cost": float,
    "order": ORDERS.index,
}
"""Raise a ValueError for a value of a field that makes no sense."""


class Search(NamedTuple):
    """What a list shows: the fields of its form, as the browser sent them. Values that make no sense are empty."""

    text: str = ""
    state: str = ""
    kind: str = ""
    model: str = ""
    day: str = ""
    cost: str = ""
    order: str = ""
    page: int = 1

    @classmethod
    def read(cls, query: QueryParams) -> Self:
        fields: dict[str, Any] = {name: read_value(query.get(name)).strip() for name in cls._fields}
        for name, check in _CHECKS.items():
            try:
                check(fields[name])
            except ValueError:
                fields[name] = ""
        return cls(**{**fields, "page": read_number(fields["page"]) or 1})

    @property
    def is_filtered(self) -> bool:
        return self._replace(order="", page=1) != Search()

    def chosen_jobs(self) -> JobFilter:
        return JobFilter(
            states=[each for each in STATES if each == self.state],
            kind=self.kind,
            model=self.model,
            day=date.fromisoformat(self.day) if self.day else None,
            least_cost=float(self.cost or 0),
            text=self.text,
        )

    def query(self, **changes: Any) -> str:
        """Return the query of a link: this search with changes, from its first page unless they name another."""
        fields = self._replace(**{"page": 1, **changes})._asdict()
        return urlencode({name: value for name, value in fields.items() if value and (name, value) != ("page", 1)})


def routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        search, today = Search.read(request.query_params), now().date()
        choices, sessions = await board.jobs.store.read_choices(), await _read_sessions(board)
        return board.render(
            request,
            "jobs.html",
            parts=await _render_parts(board, board.values(request), search),
            search=search,
            kinds=[*choices.kinds, *([KIND] if sessions else [])],
            models=sorted({*choices.models, *[name for each in sessions for name in each.models]}),
            costs=chart_costs(await board.jobs.store.read_costs(today - timedelta(days=DAYS)), today),
            states=STATES,
            orders=ORDERS,
            live=f"/jobs/live?{search.query(page=search.page)}",
        )

    async def stream(request: Request) -> Response:
        common, search = board.values(request), Search.read(request.query_params)
        seen: object = None
        parts: dict[str, Markup] = {}

        async def read() -> dict[str, Markup]:
            nonlocal seen, parts
            state = (
                await board.jobs.store.last_change(),
                [each.digest for each in await board.jobs.store.open_questions()],
                digest(await _read_sessions(board, PAGE_SIZE)),
            )
            if state != seen:
                seen, parts = state, await _render_parts(board, common, search)
            return parts

        return send_updates(board, request, follow_parts(board, read, LIST_SECONDS))

    return [
        Route("/jobs", show),
        Route("/jobs/live", stream),
        *action_routes(board),
        *trace_page.routes(board),
        *job_page.routes(board),
    ]


async def _read_sessions(board: Board, limit: int = sys.maxsize) -> Sequence[RequestSession]:
    return [] if board.parts.traffic is None else await board.parts.traffic.sessions(limit)


async def _render_parts(board: Board, common: Mapping[str, Any], search: Search) -> dict[str, Markup]:
    """Render the parts of the page that change, by the ids of their elements."""
    store = board.jobs.store
    order: JobOrder = next((each for each in ORDERS if each == search.order), "newest")
    before = (search.page - 1) * PAGE_SIZE
    chosen, questions, today = search.chosen_jobs(), await store.open_questions(), now().date()
    every = await _read_sessions(board)
    sessions = select_sessions(every, chosen)
    listed = await list_with_sessions(store, chosen, sessions, order=order, offset=before, limit=PAGE_SIZE + 1)
    activities = await read_activities(store.database, [job.id for job in listed if job.state == "running"])
    values: dict[str, Any] = {
        **common,
        "search": search,
        "today": today,
        "rows": [
            (job, describe_state(job, [each for each in questions if each.job_id == job.id]), activities.get(job.id))
            for job in listed[:PAGE_SIZE]
        ],
        "session_count": len(every),
        "has_more": len(listed) > PAGE_SIZE,
        "figures": await store.read_figures(today),
        "budget": board.parts.read_budget(),
        "states": STATES,
        "asked": questions,
    }
    return {name: render(f"jobs_{name}.html", values) for name in ("waiting", "figures", "states", "rows", "more")}

"""The page of one job: its past entries, and new ones as they happen.

The page is rendered with the entries up to a number, and its stream starts after that number. Stream events have the id
`EPOCH-NUMBER`: the number of the entry, and an epoch that identifies the job and the format of the page.

Law: each entry is shown once, even if connections break and servers restart.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import json, to_builtins
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from callboard import __version__
from callboard.coding.job import UNTESTED
from callboard.core import AssistantCanister, Event
from callboard.errors import CallerError
from callboard.jobs.activity import find_new_pieces, read_activities, read_draft
from callboard.jobs.declared_tools import merge_tools, read_tools
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import QUEUE, Approval, DurableJob, JobSummary
from callboard.jobs.queries import JobReader
from callboard.jobs.streams import Subscription
from callboard.servers.board.browser import (
    POLL_SECONDS,
    PageUpdate,
    read_number,
    read_value,
    send_updates,
)
from callboard.servers.board.edited_arguments import ArgumentField, list_fields
from callboard.servers.board.entry_view import DiffLine, EntryView, PieceView, show_arguments, split_diff
from callboard.servers.board.templating import render
from callboard.text.display import display
from callboard.text.plural import format_count
from callboard.text.truncate import truncate, truncate_middle

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

WINDOW: Final = 200
"""Maximum entries of one page."""
AT_ONCE: Final = 500
"""Maximum entries of one message."""
IDLE_SECONDS: Final = 1.0
"""Seconds between polls of a job that has ended. It may be resumed."""


class EntryWindow(NamedTuple):
    """The entries of one page: those after `after`, up to `last`. `is_last` is True if the log ends there."""

    after: int
    last: int
    is_last: bool


def routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        return await show_job(board, request)

    async def show_entry(request: Request) -> Response:
        return PlainTextResponse((await read_entry(board, request)).line)

    async def stream(request: Request) -> Response:
        job = await board.jobs.store.read_summary(request.path_params["job"])
        position = read_value(request.headers.get("last-event-id") or request.query_params.get("position"))
        epoch, _, number = position.rpartition("-")
        if epoch != find_epoch(job):
            return send_updates(board, request, tell_to_reload())
        is_answered = "answered" in request.query_params
        updates = _follow(board, board.values(request), job, read_number(number) or 0, is_answered=is_answered)
        return send_updates(board, request, updates)

    return [
        Route("/jobs/{job}", show),
        Route("/jobs/{job}/entries/{number}", show_entry),
        Route("/jobs/{job}/live", stream),
    ]


async def read_entry(board: Board, request: Request) -> JobEntry:
    """Return the entry that the path names. Raises HTTPException if there is none."""
    number, job = read_number(request.path_params["number"]) or 0, request.path_params["job"]
    shown = await board.jobs.store.read_entries(job, number - 1, 1) if number else ()
    if not shown:
        raise HTTPException(404, "entry not found")
    return shown[0]


async def show_job(
    board: Board,
    request: Request,
    *,
    edits: Mapping[str, Sequence[ArgumentField]] = MappingProxyType({}),
    status: int = 200,
) -> Response:
    """Show the page of a job. `edits` are the fields that a person has filled in wrongly, by the calls' identifiers."""
    store = board.jobs.store
    job = await store.get(request.path_params["job"])
    if job.id != request.path_params["job"]:
        return board.redirect(request, f"/jobs/{job.id}")
    begin, before = [read_number(request.query_params.get(name, "")) or 0 for name in ("from", "before")]
    window = choose_window(job.entries, begin, before)
    is_answered = "answered" in request.query_params
    place = f"{request.scope['root_path']}/jobs/{job.id}"
    view = await _open_view(store, place, job.id, window.after)
    entries = await store.read_entries(job.id, window.after, window.last - window.after)
    return board.render(
        request,
        "job.html",
        status=status,
        job=job,
        description=truncate(job.description, MAX_TEXT),
        place=place,
        window=window,
        articles=[article for entry in entries for article in view.feed(entry)],
        tools=merge_tools(await read_tools(store.database, job.id)),
        parts=await render_parts(
            board,
            board.values(request),
            job,
            [] if job.has_ended and not is_answered else await store.read_approvals(job.id),
            is_answered=is_answered,
            edits=edits,
        )
        | {"now": await _render_activity(board, board.values(request), job)},
        is_answered=is_answered,
        epoch=find_epoch(job),
    )


def find_epoch(job: JobSummary) -> str:
    """Return what entry numbers refer to: the job, and the format of this release."""
    return sha256(f"{job.id} {job.created_at.isoformat()} {__version__}".encode()).hexdigest()[:12]


def choose_window(entries: int, begin: int, before: int) -> EntryWindow:
    """Choose the entries to show: those from number `begin`, those before a number, or the last ones."""
    if begin:
        after = min(begin, max(1, entries)) - 1
        last = min(entries, after + WINDOW)
    else:
        last = min(entries, before - 1) if before > 1 else entries
        after = max(0, last - WINDOW)
    return EntryWindow(after, last, last >= entries)


async def _open_view(store: JobReader, place: str, job: str, after: int) -> EntryView:
    """Return a view for the entries after `after`, which knows the calls of their round."""
    begin = max([each.first for each in await store.rounds(job) if each.first <= after + 1], default=1) - 1
    view = EntryView(place)
    for entry in await store.read_entries(job, begin, after - begin):
        view.feed(entry)
    return view


async def tell_to_reload() -> AsyncGenerator[PageUpdate]:
    yield PageUpdate(event="reload")


async def _follow(
    board: Board, common: Mapping[str, Any], job: JobSummary, after: int, *, is_answered: bool
) -> AsyncGenerator[PageUpdate]:
    """Yield updates of a job after entry `after`, while the browser watches."""
    asks = is_answered or not job.has_ended
    store, epoch = board.jobs.store, find_epoch(job)
    view = await _open_view(store, f"{common['base']}/jobs/{job.id}", job.id, after)
    parts: dict[str, Markup] = {}
    seen: object = None
    pieces = PieceView(job.id)
    draft: list[Event] = []
    with board.jobs.streams.subscribe(job.id) as news:
        while True:
            job = await store.read_summary(job.id)
            while after < job.entries and (entries := await store.read_entries(job.id, after, AT_ONCE)):
                articles = [article for entry in entries for article in view.feed(entry)]
                after = entries[-1].number
                pieces, draft = PieceView(job.id), []  # new entries replace the open reply on the page
                yield PageUpdate(event="entries", data={"html": "".join(articles)}, id=f"{epoch}-{after}")
            approvals = await store.read_approvals(job.id) if asks or not job.has_ended else []
            fresh = {**parts, "now": await _render_activity(board, common, job)}
            if (job, approvals) != seen:  # an answer to one of several calls changes only the approvals
                fresh |= await render_parts(board, common, job, approvals, is_answered=is_answered)
            changed = {name: markup for name, markup in fresh.items() if parts.get(name) != markup}
            seen, parts = (job, approvals), fresh
            if changed:
                yield PageUpdate(event="parts", data=changed)
            if "now" in changed and job.state == "running" and not board.jobs.streams.has(job.id):
                before, draft = draft, await read_draft(store.database, job.id, after)
                if operations := [each for piece in find_new_pieces(before, draft) for each in pieces.feed(piece)]:
                    yield PageUpdate(event="pieces", data=operations)
            news.drop(after)
            async for update in _read_pieces(pieces, news, IDLE_SECONDS if job.has_ended else POLL_SECONDS):
                yield update
            if board.closing.is_set():
                return


async def _render_activity(board: Board, common: Mapping[str, Any], job: JobSummary) -> Markup:
    activities = await read_activities(board.jobs.store.database, [job.id] if job.state == "running" else [])
    return render("job_now.html", {**common, "job": job, "activity": activities.get(job.id)})


async def _read_pieces(view: PieceView, news: Subscription, seconds: float) -> AsyncGenerator[PageUpdate]:
    """Yield pieces of the open reply until an entry arrives or the time is up."""
    while isinstance(piece := await news.next(seconds), Event):
        if operations := view.feed(piece):
            yield PageUpdate(event="pieces", data=operations)


MAX_TEXT: Final = 100_000
"""Maximum characters of the input or output of a job."""
MAX_DIFF: Final = 1_000_000
"""Maximum characters of a diff."""
MAX_DIFF_LINES: Final = 3000
MAX_ANSWERED: Final = 3
"""Maximum answered questions above the open ones."""
_MAX_FACT: Final = 1000
_MAX_WORDS: Final = 500
_LAST_ENTRIES: Final = 20
"""Last entries in which the model's words before a call are searched."""
MOST_ROUNDS: Final = 500
"""Maximum rounds in the timeline. The last rounds are shown."""
_LONG: Final = frozenset({"text", "summary", "diff", "tests", "branch"})


def describe_state(job: JobSummary, questions: Collection[Approval] = ()) -> str:
    """Return why a job is in its state, and for whom it waits. `questions` are open."""
    waits, reason = "", job.error or job.reason
    if job.state == "waiting" and (waits := _WAITS.get(job.waits_for, "")):
        reason = reason if job.waits_for == "rate_limit" else ""  # it counts the calls that were open at first
        waits = _describe_questions(questions) or waits
    elif job.state == "pending":
        waits = "Waiting for a worker"
    elif job.state == "running" and job.cancel_requested:
        waits = "Is being cancelled"
    return " · ".join([display(each, _MAX_FACT) for each in (waits, reason) if each and each != job.state])


def _describe_questions(questions: Collection[Approval]) -> str:
    answers = sum(each.is_question for each in questions)
    needs = ((len(questions) - answers, "your approval", "call"), (answers, "your answer", "question"))
    counted = [f"{what} ({format_count(number, noun)})" for number, what, noun in needs if number]
    return f"Needs {' and '.join(counted)}" if counted else ""


def look_subject(job: str, call: str, digest: str) -> str:
    """Return the question that a look token belongs to."""
    return f"{job} {call} {digest}"


async def render_parts(
    board: Board,
    common: Mapping[str, Any],
    job: JobSummary,
    approvals: Sequence[Approval],
    *,
    is_answered: bool,
    edits: Mapping[str, Sequence[ArgumentField]] = MappingProxyType({}),
) -> dict[str, Markup]:
    """Render the parts of the page that change while the job runs, by the ids of their elements.

    `common` holds the values of every template. A stream keeps its own copy, so that unchanged parts render the same.
    If `is_answered`, the page follows an answer: it has no button at the same place, and links to the next question.
    """
    store = board.jobs.store
    approvals = sorted(approvals, key=lambda each: each.asked_at or job.created_at)
    opened = [
        (
            each,
            show_arguments(each.arguments),
            look_subject(job.id, each.call_id, each.digest),
            edits.get(each.call_id) or list_fields(each),
        )
        for each in approvals
        if not each.verdict and job.state == "waiting"
    ]
    decided = [each for each in approvals if each.verdict]
    answers = {each.invocation.identifier: each for each in await store.read_answers(job.id)} if decided else {}
    values = {
        **common,
        "job": job,
        "place": f"{common['base']}/jobs/{job.id}",
        "key": job.updated_at.timestamp(),
        "why": describe_state(job, [each for each, *_ in opened]),
        "parent_title": await _find_title(store, job),
        "queue": "" if job.queue == QUEUE else job.queue,
        "answered": [(each, answers.get(each.call_id)) for each in decided[-MAX_ANSWERED:]],
        "opened": opened,
        "is_answered": is_answered,
        "words": await _find_words(store, job) if opened else "",
        "outcome": read_outcome(await store.get(job.id)) if job.has_ended else {},
        "rounds": (await store.rounds(job.id))[-MOST_ROUNDS:],
    }
    names = ("state", "facts", "waits", "actions", "outcome", "rounds")
    return {name: render(f"job_{name}.html", values) for name in names}


async def _find_words(store: JobReader, job: JobSummary) -> str:
    """Return the end of what the model said before its calls. They are among the last entries."""
    entries = await store.read_entries(job.id, max(0, job.entries - _LAST_ENTRIES))
    texts = [
        each.item.text for each in entries if each.round == job.rounds and isinstance(each.item, AssistantCanister)
    ]
    return truncate_middle(" ".join(" ".join(texts).split()), _MAX_WORDS)


async def _find_title(store: JobReader, job: JobSummary) -> str:
    """Return the title of the job that a fork was made of, "" if it was deleted."""
    with suppress(CallerError):
        return (await store.read_summary(job.parent.partition("@")[0])).title if job.parent else ""
    return ""


class FileDiff(NamedTuple):
    """The part of a diff for one file, and its numbers of added and removed lines."""

    name: str
    lines: Sequence[DiffLine]
    added: int
    removed: int


def read_outcome(job: DurableJob) -> dict[str, Any]:
    """Return the output of a job: its answer, its tests, its diff by file, and the rest as rows. Empty if it has none."""
    output = job.output or {}
    if not any(output.values()):
        return {}
    diff = str(output.get("diff") or "")
    lines = split_diff(diff[:MAX_DIFF]) if diff else []
    tests = display(str(output.get("tests") or ""), _MAX_FACT)
    return {
        "text": truncate(str(output.get("text") or output.get("summary") or ""), MAX_TEXT),
        "tests": tests,
        "verdict": "waiting" if tests.startswith(UNTESTED) else "failed" if output.get("missing") else "completed",
        "branch": display(str(output.get("branch") or ""), _MAX_FACT),
        "files": _split_files(lines[:MAX_DIFF_LINES]),
        "hidden": max(0, len(lines) - MAX_DIFF_LINES) + diff.count("\n", MAX_DIFF),
        "rows": {
            name.replace("_", " ").capitalize(): truncate(_describe(value), MAX_TEXT)
            for name, value in output.items()
            if value not in (None, "", [], {}) and name not in _LONG
        },
    }


def _split_files(lines: Sequence[DiffLine]) -> list[FileDiff]:
    """Split a diff at the headings of its files. A heading may have several lines."""
    parts: list[list[DiffLine]] = []
    for line in lines:
        if not parts or (line.kind == "file" and parts[-1][-1].kind != "file"):
            parts.append([])
        parts[-1].append(line)
    return [
        FileDiff(
            name=_file_name(part),
            lines=part,
            added=sum(line.kind == "added" for line in part),
            removed=sum(line.kind == "removed" for line in part),
        )
        for part in parts
    ]


def _file_name(lines: Sequence[DiffLine]) -> str:
    """Return the file's name after the change, or the one before it if the file was removed."""
    headings = [line.text for line in lines if line.kind == "file"]
    names = [text[4:] for begin in ("+++ ", "--- ") for text in headings if text.startswith(begin)]
    named = next((name for name in names if name != "/dev/null"), "Diff")
    return display(named.removeprefix("a/").removeprefix("b/"), _MAX_FACT)


def _describe(value: Any, levels: int = 5) -> str:
    """Describe a value in words. Deeper levels are JSON."""
    match value:
        case str():
            return value
        case list() | dict() if not levels:
            return json.encode(value).decode()
        case list():
            return "\n".join([_describe(each, levels - 1) for each in value])
        case dict():
            fields = [
                f"{name}: {_describe(each, levels - 1)}" for name, each in value.items() if each not in (None, "")
            ]
            return ("\n" if any("\n" in each for each in fields) else ", ").join(fields)
        case _:
            return str(to_builtins(value))


_WAITS: Final = {
    "approval": "Needs your approval",
    "question": "Needs your answer",
    "rate_limit": "Waiting for a provider's rate limit",
}

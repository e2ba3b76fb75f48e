"""The page of one job: what it did up to now, and what it does from now on.

The page is rendered with the entries up to some number, and its stream begins behind that number. An event of the stream
is called `EPOCH-NUMBER`: the number is the entry's, and the epoch says of which job and of which form of the page it is.

Law: each entry is shown once, whatever connection breaks and whichever server is started anew in between.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from callboard import __version__
from callboard.core import Event
from callboard.jobs.job import JobSummary
from callboard.jobs.queries import JobRound
from callboard.jobs.streams import Subscription
from callboard.servers.board.browser import (
    POLL_SECONDS,
    PageUpdate,
    last_event_id,
    read_number,
    read_value,
    send_updates,
)
from callboard.servers.board.entry_view import EntryView, PieceView
from callboard.servers.board.job_view import MAX_TEXT, find_place, render_parts
from callboard.text.truncate import truncate

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

WINDOW: Final = 200
"""Entries of one page."""
AT_ONCE: Final = 500
"""Entries that one message carries at most."""
IDLE_SECONDS: Final = 1.0
"""Between two looks at a job that has ended; it may be resumed."""


class EntryWindow(NamedTuple):
    """The entries that one page shows: those behind `after`, up to `last`. `is_last` says whether the log ends there."""

    after: int
    last: int
    is_last: bool


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of one job, but for what is done with it."""

    async def show(request: Request) -> Response:
        store = board.jobs.store
        job = await store.get(request.path_params["job"])
        if job.id != request.path_params["job"]:
            return board.redirect(request, f"/jobs/{job.id}")
        rounds = await store.rounds(job.id)
        begin, before = [read_number(request.query_params.get(name, "")) or 0 for name in ("from", "before")]
        window = choose_window(job.entries, begin, before)
        is_answered = "answered" in request.query_params
        place = find_place(request.scope["root_path"], job.id)
        articles = await _read_articles(board, place, job.id, rounds, window)
        return board.render(
            request,
            "job.html",
            job=job,
            description=truncate(job.description, MAX_TEXT),
            place=place,
            window=window,
            earlier=window.after,
            articles=articles,
            parts=await render_parts(
                board,
                board.values(request),
                job,
                [] if job.has_ended and not is_answered else await store.read_approvals(job.id),
                is_answered=is_answered,
            ),
            is_answered=is_answered,
            epoch=find_epoch(job),
        )

    async def show_entry(request: Request) -> Response:
        number = read_number(request.path_params["number"]) or 0
        entries = await board.jobs.store.read_entries(request.path_params["job"], number - 1, 1)
        if not entries or entries[0].number != number:
            raise HTTPException(404, "the job has no such entry")
        return PlainTextResponse(entries[0].line)

    async def stream(request: Request) -> Response:
        job = await board.jobs.store.read_summary(request.path_params["job"])
        position = last_event_id(request) or read_value(request.query_params.get("position"))
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


def find_epoch(job: JobSummary) -> str:
    """What the numbers of entries are counted in: this very job, and the form in which this release shows it."""
    return sha256(f"{job.id} {job.created_at.isoformat()} {__version__}".encode()).hexdigest()[:12]


def choose_window(entries: int, begin: int, before: int) -> EntryWindow:
    """The entries to show: from number `begin` on, or those before a number, or the last ones."""
    if begin:
        after = min(begin, max(1, entries)) - 1
        last = min(entries, after + WINDOW)
    else:
        last = min(entries, before - 1) if before > 1 else entries
        after = max(0, last - WINDOW)
    return EntryWindow(after, last, last >= entries)


async def _read_articles(
    board: Board, place: str, job: str, rounds: Sequence[JobRound], window: EntryWindow
) -> list[Markup]:
    """The articles of the entries of a window."""
    view = EntryView(job, place)
    begin = _begin_of_round(rounds, window.after)
    articles: list[Markup] = []
    for entry in await board.jobs.store.read_entries(job, begin, window.last - begin):
        shown = view.feed(entry)
        articles += shown if entry.number > window.after else []
    return articles


def _begin_of_round(rounds: Sequence[JobRound], after: int) -> int:
    """Behind which entry a view has to begin to know what those behind `after` refer to."""
    return max([each.first for each in rounds if each.first <= after + 1], default=1) - 1


async def tell_to_reload() -> AsyncGenerator[PageUpdate]:
    """What a page gets that is of another time."""
    yield PageUpdate(event="reload")


async def _follow(
    board: Board, common: Mapping[str, Any], job: JobSummary, after: int, *, is_answered: bool
) -> AsyncGenerator[PageUpdate]:
    """What is new of a job behind entry `after`, for as long as somebody watches."""
    asks = is_answered or not job.has_ended
    store, epoch = board.jobs.store, find_epoch(job)
    view = EntryView(job.id, find_place(common["base"], job.id))
    begin = _begin_of_round(await store.rounds(job.id), after)
    for entry in await store.read_entries(job.id, begin, after - begin):
        view.feed(entry)
    parts: dict[str, Markup] = {}
    seen: object = None
    pieces = PieceView(job.id)
    with board.jobs.streams.subscribe(job.id) as news:
        while True:
            job = await store.read_summary(job.id)
            while after < job.entries and (entries := await store.read_entries(job.id, after, AT_ONCE)):
                articles = [article for entry in entries for article in view.feed(entry)]
                after = entries[-1].number
                pieces = PieceView(job.id)  # the page takes what was said just now away when it gets entries
                yield PageUpdate(event="entries", data={"html": "".join(articles)}, id=f"{epoch}-{after}")
            approvals = await store.read_approvals(job.id) if asks or not job.has_ended else []
            if (job, approvals) != seen:  # an answer to one of several calls changes these, and not the job
                fresh = await render_parts(board, common, job, approvals, is_answered=is_answered)
                changed = {name: markup for name, markup in fresh.items() if parts.get(name) != markup}
                seen, parts = (job, approvals), fresh
                if changed:
                    yield PageUpdate(event="parts", data=changed)
            news.drop(after)
            async for update in _read_pieces(pieces, news, IDLE_SECONDS if job.has_ended else POLL_SECONDS):
                yield update
            if board.closing.is_set():
                return


async def _read_pieces(view: PieceView, news: Subscription, seconds: float) -> AsyncGenerator[PageUpdate]:
    """What is said just now, until an entry comes, or nothing for so long."""
    while isinstance(piece := await news.next(seconds), Event):
        if operations := view.feed(piece):
            yield PageUpdate(event="pieces", data=operations)

"""The page of one run that a command made itself: what it did up to now, and what it does from now on.

It is the page of a durable job, whose entries are made of the lines of the run's log. An event of its stream is called
`EPOCH-NUMBER`: the number is that of a line, behind which the stream goes on.

Law: each entry is shown once, whatever connection breaks and whichever server is started anew in between.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup
from msgspec import structs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from callboard.coding.jobs.job import Job
from callboard.coding.jobs.log import EVENTS
from callboard.coding.jobs.store import JobStore
from callboard.jobs.job import DurableJob
from callboard.servers.board.browser import (
    POLL_SECONDS,
    Form,
    PageUpdate,
    last_event_id,
    read_number,
    read_value,
    send_updates,
    wait,
)
from callboard.servers.board.entry_view import EntryView
from callboard.servers.board.job_page import (
    AT_ONCE,
    IDLE_SECONDS,
    EntryWindow,
    choose_window,
    find_epoch,
    tell_to_reload,
)
from callboard.servers.board.job_view import MAX_TEXT, MOST_ROUNDS, JobFact, list_facts, read_outcome
from callboard.servers.board.run_entries import RunEntries
from callboard.servers.board.run_log import RunLog
from callboard.servers.board.run_view import describe_run, find_key, find_resumption, read_run
from callboard.servers.board.templating import render
from callboard.text.truncate import truncate

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

LINES_AT_ONCE: Final = 50_000
"""Lines that are read at once at most while somebody watches."""
_CANCEL_PATIENCE: Final = 3.0
"""Seconds that a request waits for a run to end that was cancelled; then its end is seen on its page."""


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of one run."""
    cancelling: set[asyncio.Task[Job]] = set()

    async def show(request: Request) -> Response:
        name, base = request.path_params["run"], request.scope["root_path"]
        begin, before = [read_number(request.query_params.get(each, "")) or 0 for each in ("from", "before")]
        page = await asyncio.to_thread(_read_page, find_records(board), base, name, begin, before)
        if page.job.id != name:
            return board.redirect(request, f"/runs/{page.job.id}")
        return board.render(
            request,
            "job.html",
            job=page.job,
            description=truncate(page.job.description, MAX_TEXT),
            place=_find_place(base, page.job.id),
            window=page.window,
            earlier=page.earlier,
            articles=page.articles,
            parts={"waits": "", **_render_parts(find_records(board), board.values(request), page.job, page.log)},
            is_answered=False,
            epoch=find_epoch(page.job),
        )

    async def show_entry(request: Request) -> Response:
        number = read_number(request.path_params["number"]) or 0
        line = await asyncio.to_thread(_read_entry, find_records(board), request.path_params["run"], number)
        if not line:
            raise HTTPException(404, "the run has no such entry")
        return PlainTextResponse(line)

    async def stream(request: Request) -> Response:
        job = await asyncio.to_thread(read_run, find_records(board), request.path_params["run"])
        position = last_event_id(request) or read_value(request.query_params.get("position"))
        epoch, _, number = position.rpartition("-")
        if epoch != find_epoch(job):
            return send_updates(board, request, tell_to_reload())
        return send_updates(board, request, _follow(board, board.values(request), job, read_number(number) or 0))

    async def cancel(request: Request, _: Form) -> Response:
        records, name = find_records(board), request.path_params["run"]
        task = asyncio.create_task(records.cancel(name))
        cancelling.add(task)  # it goes on when the request is answered: a run that does not end is killed
        task.add_done_callback(cancelling.discard)
        await asyncio.wait({task}, timeout=_CANCEL_PATIENCE)
        if task.done():
            task.result()
        # A chat without a turn leaves no record.
        is_there = await asyncio.to_thread(records.find, name)
        return board.redirect(request, f"/runs/{name}" if is_there else "/runs")

    return [
        Route("/runs/{run}", show),
        Route("/runs/{run}/entries/{number}", show_entry),
        Route("/runs/{run}/live", stream),
        Route("/runs/{run}/cancel", board.action(cancel), methods=["POST"]),
    ]


def find_records(board: Board) -> JobStore:
    """Where the runs are recorded. Raises HTTPException where the board shows none."""
    if board.parts.runs is None:
        raise HTTPException(404)
    return board.parts.runs


class _RunPage(NamedTuple):
    job: DurableJob
    log: RunLog
    window: EntryWindow
    """In numbers of lines."""
    earlier: int
    """How many lines before the window may have an entry."""
    articles: Sequence[Markup]


def _find_place(base: str, run: str) -> str:
    return f"{base}/runs/{run}"


def _open_log(records: JobStore, run: str) -> RunLog:
    return RunLog(records.folder(run) / EVENTS)


def _read_page(records: JobStore, base: str, name: str, begin: int, before: int) -> _RunPage:
    job = read_run(records, name)
    log = _open_log(records, job.id)
    log.skim()
    window, earlier = _choose_lines(log, begin, before)
    view = EntryView(job.id, _find_place(base, job.id))
    place = log.begin_before(window.after)
    stage = RunEntries(place.rounds)
    articles: list[Markup] = []
    for line in log.read(place, window.last):
        for entry in stage.feed(line):
            shown = view.feed(entry)
            articles += shown if line.number > window.after else []
    return _RunPage(job, log, window, earlier, articles)


def _choose_lines(log: RunLog, begin: int, before: int) -> tuple[EntryWindow, int]:
    """The lines to show, and how many may have an entry before them."""
    marks = log.marks
    places = [bisect_left(marks, number) + 1 if number else 0 for number in (begin, before)]
    chosen = choose_window(len(marks), *places)
    after = marks[chosen.after - 1] if chosen.after else 0
    last = log.lines if chosen.is_last else marks[chosen.last - 1]
    return EntryWindow(after, last, chosen.is_last), chosen.after


def _read_entry(records: JobStore, name: str, number: int) -> str:
    """The entry of a number as a durable job would store it; "" where there is none."""
    log = _open_log(records, read_run(records, name).id)
    log.skim(number)
    place = log.begin_before(number)
    stage = RunEntries(place.rounds)
    for line in log.read(place, sys.maxsize):
        for entry in stage.feed(line):
            if entry.number >= number:
                return entry.line if entry.number == number else ""
    return ""


def _render_parts(records: JobStore, common: Mapping[str, Any], job: DurableJob, log: RunLog) -> dict[str, Markup]:
    """The parts of the page that change while the run goes on, by the ids of their elements."""
    rounds = log.rounds
    # The record counts them when the run, or a chat's turn, is over.
    took = {} if job.usage else {"usage": log.usage, "cost": log.cost}
    job = structs.replace(job, rounds=max(job.rounds, len(rounds)), **took)
    values = {**common, "job": job, "place": _find_place(common["base"], job.id), "key": find_key(job)}
    facts = [*list_facts(job), JobFact("Record", str(records.folder(job.id)))]
    outcome = read_outcome(job) if job.has_ended else None
    actions = {"actions": [("cancel", "Cancel", not job.has_ended)], "resumption": find_resumption(job)}
    return {
        "facts": render("job_facts.html", {**values, "facts": facts, "why": describe_run(job)}),
        "actions": render("run_actions.html", {**values, **actions}),
        "outcome": render("job_outcome.html", {**values, "outcome": outcome}),
        "rounds": render("job_rounds.html", {**values, "rounds": rounds[-MOST_ROUNDS:], "most_forked": 0}),
    }


class _Follower:
    """What one page has not seen yet of a run. Its methods read files, and are called in a thread."""

    def __init__(self, records: JobStore, common: Mapping[str, Any], job: DurableJob) -> None:
        self.job = job
        self.log = _open_log(records, job.id)
        self._records = records
        self._common = common
        self._view = EntryView(job.id, _find_place(common["base"], job.id))
        self._stage = RunEntries()
        self._parts: dict[str, Markup] = {}
        self._seen: object = None

    def begin(self, after: int) -> None:
        """Go to the line that the page has seen last."""
        self.log.skim(after)
        place = self.log.begin_before(after)
        self._stage = RunEntries(place.rounds)
        for line in self.log.read(place, after):
            for entry in self._stage.feed(line):
                self._view.feed(entry)

    def read(self) -> tuple[list[Markup], bool]:
        """New articles, and whether there may be more."""
        self.job = read_run(self._records, self.job.id)
        begin = self.log.lines
        articles: list[Markup] = []
        for line in self.log.read_on(begin + LINES_AT_ONCE):
            articles += [article for entry in self._stage.feed(line) for article in self._view.feed(entry)]
            if len(articles) >= AT_ONCE:
                break
        return articles, self.log.lines > begin

    def render_changed(self) -> dict[str, Markup]:
        """The parts of the page that are others by now."""
        seen = (self.job, len(self.log.marks), self.log.usage)
        if seen == self._seen:
            return {}
        fresh = _render_parts(self._records, self._common, self.job, self.log)
        changed = {name: markup for name, markup in fresh.items() if self._parts.get(name) != markup}
        self._seen, self._parts = seen, fresh
        return changed


async def _follow(board: Board, common: Mapping[str, Any], job: DurableJob, after: int) -> AsyncGenerator[PageUpdate]:
    """What is new of a run behind line `after`, for as long as somebody watches."""
    epoch = find_epoch(job)
    follower = _Follower(find_records(board), common, job)
    await asyncio.to_thread(follower.begin, after)
    while True:
        articles, has_more = await asyncio.to_thread(follower.read)
        if articles:
            yield PageUpdate(event="entries", data={"html": "".join(articles)}, id=f"{epoch}-{follower.log.lines}")
        if has_more:
            continue
        changed = await asyncio.to_thread(follower.render_changed)
        if changed:
            yield PageUpdate(event="parts", data=changed)
        if not await wait(board, IDLE_SECONDS if follower.job.has_ended else POLL_SECONDS):
            return

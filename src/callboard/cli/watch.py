"""`callboard jobs watch`: show a durable job while it runs, on any host.

The command reads the entries that the job's worker commits, so it continues after another worker has taken over. It
shows each entry once, with its number.

Rule: watching changes nothing. Ctrl-C stops the command and leaves the job running.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer

from callboard.cli import interrupt
from callboard.cli.display import JobDisplay
from callboard.cli.durable_store import find_job, open_store
from callboard.cli.options import JobName
from callboard.cli.outcome import describe_result, find_exit_code
from callboard.cli.status_line import StatusLine
from callboard.cli.terminal import find_width, has_color, paint, wrap
from callboard.core.ports import Clock
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import QUEUE, DurableJob, JobSummary, agent_queue
from callboard.jobs.steps import EntrySteps
from callboard.profiles import format_cost
from callboard.text.display import escape, make_visible
from callboard.text.duration import format_clock
from callboard.text.plural import format_count
from callboard.text.truncate import truncate

if TYPE_CHECKING:
    from callboard.jobs.activity import JobActivity
    from callboard.jobs.store import DurableStore

POLL_SECONDS: Final = 0.3
TAKEOVER_POLLS: Final = 10
"""Polls to wait until another worker takes over a job whose worker died."""
MOST: Final = 500
"""Maximum entries to read at once."""

_MARGIN: Final = 6
"""Width of the numbers, in columns."""
_MOST_TOOLS: Final = 3
"""Maximum running tools to name."""
_MAX_TASK: Final = 600
"""Maximum characters of the task to show."""


def watch(
    name: JobName,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each entry, and each state of the job, as one line of JSON.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show rounds, prompts, reasoning and notes.")
    ] = False,
) -> None:
    """Show a job from its start to its end while a worker runs it. Ctrl-C leaves the job running.

    The exit code is the job's, as for `callboard build`.
    """
    job = find_job(name)
    viewer = JsonViewer() if as_json else Viewer(verbose=verbose)

    try:
        with open_store() as store, viewer:
            job = interrupt.run(show_job(store, job.id, viewer))
    except KeyboardInterrupt:
        # After the viewer has cleared its line.
        typer.echo(f"the job continues; callboard jobs cancel {job.id} ends it", err=True)
        raise
    raise typer.Exit(find_exit_code(job))


async def follow(
    store: DurableStore, identifier: str, pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[tuple[DurableJob, Sequence[JobEntry]]]:
    """Yield the job and its new entries at each change, until the job has ended.

    The job is read before its entries, so no entry of an ended job is missed. If a job's worker died and no other worker
    claims the job for `TAKEOVER_POLLS` polls, the job has ended as interrupted. On PostgreSQL other workers may only be
    busy, so following continues.
    """
    after = polls = 0
    before: DurableJob | None = None
    while True:
        stored = await store.get(identifier)
        entries = await store.read_entries(identifier, after, MOST)
        (job,) = await asyncio.to_thread(store.mark_abandoned, [stored])
        polls = 0 if job is stored else polls + 1
        if polls < TAKEOVER_POLLS:
            job = stored
        if entries or before is None or (job.updated_at, job.state) != (before.updated_at, before.state):
            yield job, entries
        before = job
        after = entries[-1].number if entries else after
        if (stored.has_ended or (job.has_ended and store.database.is_sqlite)) and len(entries) < MOST:
            return
        if len(entries) < MOST:
            await pause()


async def wait_for_poll() -> None:
    """Wait until the next poll."""
    await asyncio.sleep(POLL_SECONDS)


async def show_job(
    store: DurableStore,
    identifier: str,
    viewer: Viewer | JsonViewer,
    pause: Callable[[], Awaitable[None]] = wait_for_poll,
) -> DurableJob:
    """Show a job until it has ended, and return it."""
    from callboard.jobs.activity import read_activities  # noqa: PLC0415  # a quarter of a second

    async def pause_and_look() -> None:
        await pause()
        viewer.show_activity((await read_activities(store.database, [identifier])).get(identifier))

    state = ("", "", "", 0)
    async for job, entries in follow(store, identifier, pause_and_look):
        now = (job.state, job.reason, job.executor, job.segment)
        lines = await describe_waiting(store, job)
        # Entries come before the line that the job ended or waits, and after the line that it runs.
        is_over = job.has_ended or job.state == "waiting"
        viewer.show_progress(job)
        for entry in entries if is_over else ():
            viewer.show_entry(entry)
        if now != state:
            viewer.show_state(job, lines, is_new_runner=state[0] == now[0] == "running" and state[2] != now[2])
        for entry in entries if not is_over else ():
            viewer.show_entry(entry)
        state = now
    return job


async def describe_waiting(store: DurableStore, job: DurableJob) -> list[str]:
    """Describe what a job waits for, with the commands that continue it, one per line."""
    if job.state == "pending":
        return [f"Waiting for a worker. Start one: {_describe_worker(job)}"]
    if job.state != "waiting":
        return []
    lines = []
    for each in await store.read_approvals(job.id):
        if each.verdict:
            continue
        call = f"{job.id} {escape(each.call_id)}"
        why = f"{make_visible(each.why, keep='')}: " if each.why else ""
        lines.append(f"{why}{make_visible(each.name, keep='')} {json.dumps(each.arguments or {})}")
        if each.is_question:
            lines.append(f"  callboard jobs answer {job.id} TEXT {escape(each.call_id)}")
        else:
            digest = f" --digest {each.digest}" if each.digest else ""
            lines += [f"  callboard jobs approve {call}{digest}", f"  callboard jobs deny {call}"]
    return lines


def describe_runner(job: DurableJob) -> str:
    """Say who runs a new job: a worker that was started, or the command that starts one."""
    from callboard.cli.background import runs_here  # noqa: PLC0415  # not for --help

    return "A worker runs it" if runs_here(job) else f"Waiting for a worker. Start one: {_describe_worker(job)}"


def _describe_worker(job: DurableJob) -> str:
    from callboard.jobs.coding_kind import host_queue  # noqa: PLC0415  # not for --help

    queue, prefix = escape(job.queue), agent_queue("")
    if queue.startswith(prefix):
        return f"callboard worker --agents {queue.removeprefix(prefix)}"
    if job.kind == "run":
        return f"callboard worker, in {escape(job.directory)}"
    if job.kind == "response":
        return "callboard serve, with the same --store"
    return "callboard worker" if queue in {QUEUE, host_queue()} else f"callboard worker --queue {queue}"


class Viewer:
    """Shows a job to a person; on a terminal with a progress line below."""

    def __init__(self, *, verbose: bool) -> None:
        self._terminal = sys.stdout.isatty()
        width = find_width(sys.stdout) - _MARGIN if self._terminal else sys.maxsize
        self._buffer = _Buffer(is_terminal=self._terminal)
        self._display = JobDisplay(self._buffer, self._buffer, verbose=verbose, as_json=False, width=width)
        self._width = width
        self._steps = EntrySteps()
        self._count = 0
        """Number of shown entries."""
        self._progress = JobProgress(lambda: datetime.now(UTC))
        self._status = StatusLine(sys.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.clear()

    def show_entry(self, entry: JobEntry) -> None:
        """Print an entry's text. Entries with a text are numbered."""
        for step in self._steps.feed(entry):
            self._display.step(step)
        self._display.end_text()
        text = self._buffer.take().strip("\n")
        if not text:
            return
        self._count += 1
        number = f"{self._count:>{_MARGIN - 2}}  "
        for line in text.split("\n"):
            self._print(f"{number}{line}")
            number = " " * _MARGIN

    def show_progress(self, job: DurableJob) -> None:
        """Update the progress line. Print the task of the job when it is first shown."""
        if self._progress.job is None and job.description:
            task = make_visible(truncate(job.description.strip(), _MAX_TASK), keep="\n")
            self._print(wrap(f"Task: {task}", self._width, "      "))
        self._progress.job = job

    def show_activity(self, activity: JobActivity | None) -> None:
        """Draw the progress line with what the job does now."""
        self._progress.activity = activity
        self._status.draw(self._progress.describe())

    def show_state(self, job: DurableJob, lines: Sequence[str], *, is_new_runner: bool) -> None:
        """Print the job's state, the reason for it, and the commands for it."""
        sentence, color = describe_result(job)
        waits = f" for {job.waits_for.replace('_', ' ')}" if job.state == "waiting" and job.waits_for else ""
        taken = " (another worker took it over)" if is_new_runner else ""
        sentence = f"{job.state}{waits}{sentence[len(job.state) :]}{taken}"
        self._print(paint(wrap(f"== {sentence}", self._width, "   "), color, has_color(sys.stdout)))
        for line in lines:
            self._print(f"   {line}")
        if job.has_ended:
            self._print(f"   {self._progress.describe()}")
            if job.state != "completed":
                self._print(f"   Continue: callboard jobs resume {job.id}")
                self._print(f"   Start again: callboard jobs retry {job.id}")

    def _print(self, line: str) -> None:
        self._status.clear()
        typer.echo(line, color=self._terminal)


class JsonViewer:
    """Shows a job to a program: one line of JSON for each entry and state."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_entry(self, entry: JobEntry) -> None:
        """Print the entry with its number and round."""
        fields = {"type": "entry", "number": entry.number, "round": entry.round, "entry": json.loads(entry.line)}
        typer.echo(json.dumps(fields))

    def show_progress(self, job: DurableJob) -> None:
        """Do nothing: programs count on their own."""

    def show_activity(self, activity: JobActivity | None) -> None:
        """Do nothing."""

    def show_state(self, job: DurableJob, _: Sequence[str], *, is_new_runner: bool) -> None:
        """Print the job."""
        typer.echo(json.dumps({**job.as_json(), "type": "job", "is_new_runner": is_new_runner}))


class _Buffer(StringIO):
    """Collects a display's output, with colors if there is a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def take(self) -> str:
        """Return the new text."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


class JobProgress:
    """The progress line: what a job does now, for how long, and what it has used."""

    def __init__(self, clock: Clock) -> None:
        self.job: JobSummary | None = None
        self.activity: JobActivity | None = None
        self._clock = clock

    def describe(self) -> str:
        """Return the line's text."""
        job = self.job
        if job is None:
            return ""
        usage = job.usage
        tokens = f"{usage.get('input', 0):,} tokens in, {usage.get('output', 0):,} out" if usage else ""
        parts = [
            f"{job.state} {escape(job.phase)}".strip(),
            self._describe_activity(job) if job.state == "running" else "",
            f"round {job.rounds}",
            format_count(job.calls, "call"),
            tokens,
            format_cost(job.cost),
            format_clock(self._count_seconds(job.started_at or job.created_at, job.completed_at)),
        ]
        return " · ".join([part for part in parts if part])

    def _describe_activity(self, job: JobSummary) -> str:
        """Return what runs and for how long: the tools, the reply, or the wait for it."""
        calls, draft = self.activity or ((), None)
        if calls:
            names = [name for name, _ in calls]
            more = f" and {len(names) - _MOST_TOOLS} more" if len(names) > _MOST_TOOLS else ""
            doing, since = escape(", ".join(names[:_MOST_TOOLS])) + more, calls[0][1]
        elif draft is not None:
            doing, since = "writing", draft.begun_at
        else:
            doing, since = "waiting for the model", job.updated_at
        return f"{doing}, {format_clock(self._count_seconds(since))}"

    def _count_seconds(self, begin: datetime, end: datetime | None = None) -> float:
        return ((end or self._clock()) - begin).total_seconds()

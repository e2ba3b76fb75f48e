"""Tell the user's commands and webhooks that a job waits for a person, or has ended.

The row of a notification is written in the transaction of that change, so it is there exactly if the change is. Who tells
it takes it for a while, and removes it when everybody was told.

Laws:
- Everybody is told at least once, and twice only if a process died while it told. A place that could not be reached is
  tried again for three days.
- A place that hangs holds neither a job nor the worker: each has `SECONDS`, and then its processes are killed.
- No shell reads what is told, no secret of ours goes along, and no address is printed beyond its host.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, select, update

from callboard.configuration.jobs import NotifySettings
from callboard.core.ports import Clock
from callboard.errors import CallboardError, CallerError
from callboard.jobs.database import Database
from callboard.jobs.job import END_STATES, Approval, DurableJob, JobSummary
from callboard.jobs.tables import approvals, from_rows, insert_once, jobs, notifications, to_microseconds, to_moment
from callboard.programs import absolute_search_path
from callboard.text.surrogates import encode_json

SECONDS: Final = 10.0
"""Time limit of a command or a webhook."""
POLL_SECONDS: Final = 1.0
AT_ONCE: Final = 16
"""Notifications that are told at once."""
LEASE: Final = timedelta(seconds=60)
"""How long nobody else takes a notification that somebody tells."""
PAUSES: Final = (10, 60, 600, 3600)
"""Seconds until another attempt; the last counts for all that follow."""
LONGEST: Final = timedelta(days=3)
"""Age from which a notification is dropped."""
ENVIRONMENT: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
)
"""The variables that a command gets: those of a session, and no key of any API."""
_FIELDS: Final = ("kind", "title", "directory", "model", "phase", "error", "rounds", "calls", "usage", "cost")


class Notification(NamedTuple):
    """A change of a job that is told. `done` are the places that know of it already."""

    its: tuple[ColumnElement[bool], ...]
    """The conditions of its row."""
    attempts: int
    done: tuple[str, ...]
    payload: dict[str, Any]


def add_notification(connection: Connection, key: int, before: DurableJob, job: DurableJob) -> None:
    """Note that somebody is to be told, if the change of a job is news to a person."""
    waits = job.state == "waiting" and job.waits_for != "rate_limit"
    if job.state != before.state and (waits or job.state in END_STATES):
        names = ("segment", "state", "reason", "waits_for")
        at = to_microseconds(job.updated_at)
        row = {"job": key, "at": at, "due_at": at, **{name: getattr(job, name) for name in names}}
        connection.execute(insert_once(notifications, connection), row)


class Notifier:
    """Tells what is due while it is entered as an asynchronous context manager, beside a worker.

    Without anybody to tell it does nothing: a worker of another host may have somebody.
    """

    def __init__(
        self,
        database: Database,
        places: Sequence[NotifySettings],
        show: Callable[[str], None],
        *,
        seconds: float = SECONDS,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """Takes the database, who is told, and what shows a failure to the user, in one line."""
        self._database = database
        self._places = tuple(places)
        self._show = show
        self._seconds = seconds
        self._clock = clock
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._places:
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Tell what is due once more; that takes `seconds` at most, as what is being told does."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            # What happened until it stops is told as well: the worker may have ended its last job just now.
            is_last = self._stopping.is_set()
            count = 0
            with suppress(CallboardError):  # the database is away, and this is tried again
                count = await self.tell_due()
            if count < AT_ONCE and not is_last:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), POLL_SECONDS)

    async def tell_due(self) -> int:
        """Tell what is due to everybody who does not know it yet; how many notifications that were.

        Raises:
            DatabaseUnavailable: What was told may be told again.
        """
        taken = await self._database.run(partial(_take, self._clock()))
        await asyncio.gather(*[self._tell(each) for each in taken])
        return len(taken)

    async def _tell(self, notification: Notification) -> None:
        body = encode_json({**notification.payload, "attempt": notification.attempts})
        # A place is known by its number too: two webhooks may be of one host.
        places = {f"{number} {each.place}": each for number, each in enumerate(self._places)}
        waiting = [name for name in places if name not in notification.done]
        failures = await asyncio.gather(*[self._send(places[name], body) for name in waiting])
        done = [*notification.done]
        for name, failure in zip(waiting, failures, strict=True):
            if failure:
                self._show(f"{places[name].place} was not told of job {notification.payload['job']}: {failure}")
            else:
                done.append(name)
        pause = timedelta(seconds=PAUSES[min(notification.attempts, len(PAUSES)) - 1])
        again = {"done": encode_json(done).decode(), "due_at": to_microseconds(self._clock() + pause)}
        later = update(notifications).values(again) if any(failures) else delete(notifications)
        await self._database.run(lambda connection: connection.execute(later.where(*notification.its)))

    async def _send(self, place: NotifySettings, body: bytes) -> str:
        """Why a place could not be told; "" if it was."""
        send = run_command(place.command, body) if place.command else post(place.url, body)
        try:
            async with asyncio.timeout(self._seconds):
                return await send
        except TimeoutError:
            return f"it took more than {self._seconds:g} s"


def _take(now: datetime, connection: Connection) -> list[Notification]:
    """Those that are due, which nobody else gets for `LEASE`."""
    table = notifications.c
    connection.execute(delete(notifications).where(table.at < to_microseconds(now - LONGEST)))
    due = select(notifications).where(table.due_at <= to_microseconds(now)).order_by(table.due_at).limit(AT_ONCE)
    taken = []
    for row in connection.execute(due.with_for_update(skip_locked=True)).all():
        its = (table.job == row.job, table.segment == row.segment, table.state == row.state)
        try:
            done = msgspec.json.decode(row.done, type=tuple[str, ...])
            payload = _describe(connection, row)
        except (CallerError, msgspec.MsgspecError):  # rows in another format, which would come first for ever
            connection.execute(delete(notifications).where(*its))
            continue
        changed = {"attempts": row.attempts + 1, "due_at": to_microseconds(now + LEASE)}
        connection.execute(update(notifications).where(*its).values(changed))
        taken.append(Notification(its, row.attempts + 1, done, payload))
    return taken


def _describe(connection: Connection, row: Any) -> dict[str, Any]:
    """What is told: where the job is, and what it asks, but nothing that was said or passed, which may be secret."""
    columns = [jobs.c[name] for name in JobSummary.__struct_fields__]
    job = next(from_rows(connection.execute(select(*columns).where(jobs.c.key == row.job)), JobSummary))
    asks = []
    if row.state == "waiting":
        query = select(approvals).where(approvals.c.job == row.job, approvals.c.verdict == "")
        open_approvals = from_rows(connection.execute(query.order_by(approvals.c.position)), Approval)
        names = ("call_id", "name", "digest", "is_question")
        asks = [{name: getattr(each, name) for name in names} for each in open_approvals]
    return {
        "id": f"{job.id}-{row.segment}-{row.state}",
        "job": job.id,
        "state": row.state,
        "reason": row.reason,
        "waits_for": row.waits_for,
        "at": to_moment(row.at),
        "asks": asks,
        **{name: getattr(job, name) for name in _FIELDS},
    }


async def run_command(command: Sequence[str], body: bytes) -> str:
    """Run a program with the body as its standard input; why that failed, or "". Cancelled, it kills its processes."""
    path = shutil.which(command[0], path=absolute_search_path())
    if path is None:
        return "no such program"
    try:
        process = await asyncio.create_subprocess_exec(
            *(path, *command[1:]),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            cwd=Path.home(),
            env={name: value for name in ENVIRONMENT if (value := os.environ.get(name))},
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or "it cannot be run"
    try:
        await process.communicate(body)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return f"it ended with status {process.returncode}" if process.returncode else ""


async def post(url: str, body: bytes) -> str:
    """Send the body to an address; why that failed, or "". A redirect is not followed, and no answer is read."""
    import aiohttp  # noqa: PLC0415  # costs 100 ms, on first use

    headers = {"content-type": "application/json", "user-agent": "callboard"}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return "" if response.status // 100 == 2 else f"it answered with status {response.status}"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"it cannot be reached ({type(error).__name__})"

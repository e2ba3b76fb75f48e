"""Notify the user's commands and webhooks that a job waits for a person, or has ended.

A notification is written in the same transaction as the change of the job. A worker claims the notification for a
while, sends it to all places, and then deletes it.

Laws:
- Each place gets a notification at least once, and twice only if a process died while it sent. Failed notifications are
  sent again for three days.
- A place that hangs delays neither a job nor the worker. After `SECONDS`, its processes are killed.
- No shell reads the text, the text has no secret, and messages show only the host of an address.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, select, update

from callboard.configuration.jobs import JobSettings, NotifySettings
from callboard.core.ports import Clock
from callboard.errors import CallboardError, CallerError
from callboard.jobs.database import Database
from callboard.jobs.job import END_STATES, Approval, DurableJob, JobSummary
from callboard.jobs.notification_formats import Message, find_format, make_message
from callboard.jobs.tables import approvals, from_rows, insert_once, jobs, notifications, to_microseconds, to_moment
from callboard.programs import absolute_search_path
from callboard.text.surrogates import encode_json

SECONDS: Final = 10.0
"""Time limit of a command or a webhook, in seconds."""
POLL_SECONDS: Final = 1.0
AT_ONCE: Final = 16
"""Maximum notifications that are sent at once."""
LEASE: Final = timedelta(seconds=60)
"""Time for which a worker claims a notification."""
PAUSES: Final = (10, 60, 600, 3600)
"""Seconds before each further attempt. The last value repeats."""
LONGEST: Final = timedelta(days=3)
"""Age at which a notification is dropped."""
ENVIRONMENT: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
)
"""Environment variables of a command. They contain no API key."""
_FIELDS: Final = ("kind", "title", "directory", "model", "phase", "error", "rounds", "calls", "usage", "cost")


def _now() -> datetime:
    return datetime.now(UTC)


class Notification(NamedTuple):
    """A change of a job to send."""

    its: tuple[ColumnElement[bool], ...]
    """Conditions that select its row."""
    attempts: int
    done: tuple[str, ...]
    """Names of the places that have received it."""
    payload: dict[str, Any]


def add_notification(connection: Connection, key: int, before: DurableJob, job: DurableJob) -> None:
    """Add a notification if the job now waits for a person, or has ended."""
    waits = job.state == "waiting" and job.waits_for != "rate_limit"
    if job.state != before.state and (waits or job.state in END_STATES):
        names = ("segment", "state", "reason", "waits_for")
        at = to_microseconds(job.updated_at)
        row = {"job": key, "at": at, "due_at": at, **{name: getattr(job, name) for name in names}}
        connection.execute(insert_once(notifications, connection), row)


@asynccontextmanager
async def open_notifier(
    database: Database,
    places: Sequence[NotifySettings],
    show: Callable[[str], None],
    board_url: str = JobSettings().board_url,
    *,
    clock: Clock = _now,
) -> AsyncIterator[None]:
    """Send due notifications while a worker runs. `show` shows a failure to the user, in one line.

    Without places, send nothing, because a worker of another host may have places. On exit, send due notifications once
    more, because the worker may have just ended a job. This takes at most `SECONDS`.
    """
    stopping = asyncio.Event()

    async def tell_always() -> None:
        is_last = False
        while not is_last:
            is_last = stopping.is_set()
            count = 0
            with suppress(CallboardError):  # the database is away; the next loop tries again
                count = await tell_due(database, places, show, board_url, clock=clock)
            if count < AT_ONCE and not is_last:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), POLL_SECONDS)

    if not places:
        yield
        return
    task = asyncio.create_task(tell_always())
    try:
        yield
    finally:
        stopping.set()
        await task


async def tell_due(
    database: Database,
    places: Sequence[NotifySettings],
    show: Callable[[str], None],
    board_url: str = JobSettings().board_url,
    *,
    seconds: float = SECONDS,
    clock: Clock = _now,
) -> int:
    """Send the due notifications to their remaining places, each within `seconds`. Return the number of notifications.

    Raises:
        DatabaseUnavailable: Notifications that were sent may be sent again.
    """

    async def tell(notification: Notification) -> None:
        payload = {**notification.payload, "attempt": notification.attempts}
        # The name of a place has a number, because two webhooks may have the same host.
        names = {f"{number} {each.place}": each for number, each in enumerate(places)}
        waiting = [name for name in names if name not in notification.done]
        failures = await asyncio.gather(*[_send(names[name], payload, board_url, seconds) for name in waiting])
        done = [*notification.done]
        for name, failure in zip(waiting, failures, strict=True):
            if failure:
                show(f"{names[name].place} could not be notified of job {notification.payload['job']}: {failure}")
            else:
                done.append(name)
        pause = timedelta(seconds=PAUSES[min(notification.attempts, len(PAUSES)) - 1])
        again = {"done": encode_json(done).decode(), "due_at": to_microseconds(clock() + pause)}
        later = update(notifications).values(again) if any(failures) else delete(notifications)
        await database.run(lambda connection: connection.execute(later.where(*notification.its)))

    taken = await database.run(partial(_take, clock()))
    await asyncio.gather(*[tell(each) for each in taken])
    return len(taken)


async def _send(place: NotifySettings, payload: Mapping[str, Any], board_url: str, seconds: float) -> str:
    """Send a notification to a place. Return the reason for a failure, "" if there is none."""
    if place.command:
        send = run_command(place.command, encode_json(payload))
    else:
        send = post(place.url, make_message(place.format or find_format(place.url), payload, board_url))
    try:
        async with asyncio.timeout(seconds):
            return await send
    except TimeoutError:
        return f"it took more than {seconds:g} s"


def _take(now: datetime, connection: Connection) -> list[Notification]:
    """Claim due notifications for `LEASE`."""
    table = notifications.c
    connection.execute(delete(notifications).where(table.at < to_microseconds(now - LONGEST)))
    due = select(notifications).where(table.due_at <= to_microseconds(now)).order_by(table.due_at).limit(AT_ONCE)
    taken = []
    for row in connection.execute(due.with_for_update(skip_locked=True)).all():
        its = (table.job == row.job, table.segment == row.segment, table.state == row.state)
        try:
            done = msgspec.json.decode(row.done, type=tuple[str, ...])
            payload = _describe(connection, row)
        except (CallerError, msgspec.MsgspecError):  # rows in another format, which would stay first forever
            connection.execute(delete(notifications).where(*its))
            continue
        changed = {"attempts": row.attempts + 1, "due_at": to_microseconds(now + LEASE)}
        connection.execute(update(notifications).where(*its).values(changed))
        taken.append(Notification(its, row.attempts + 1, done, payload))
    return taken


def _describe(connection: Connection, row: Any) -> dict[str, Any]:
    """Return the state and the open approvals of a job, without texts and arguments, which may be secret."""
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
    """Run a program with the body as its input. Return why it failed, or "". A cancellation kills its processes."""
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


async def post(url: str, message: Message) -> str:
    """Post the message to a URL. Return why that failed, or "". Follow no redirect, and read no response body."""
    import aiohttp  # noqa: PLC0415  # costs 100 ms, on first use

    headers = {**message.headers, "user-agent": "callboard"}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=message.body, headers=headers, allow_redirects=False) as response,
        ):
            return "" if response.status // 100 == 2 else f"it answered with status {response.status}"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"it cannot be reached ({type(error).__name__})"

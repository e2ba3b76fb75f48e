"""What somebody is to be told: a row for each time that a job began to wait for a person, or ended.

The row is written in the transaction of that change, so it is there exactly if the change is. Whoever tells it takes it
for a while, and removes it when everybody was told.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, select, update

from callboard.coding.jobs.json_encoding import encode_json
from callboard.errors import CallerError
from callboard.jobs.job import END_STATES, Approval, DurableJob, JobSummary
from callboard.jobs.rows import from_rows, to_microseconds, to_moment
from callboard.jobs.tables import approvals, insert_once, jobs, notifications

LEASE: Final = timedelta(seconds=60)
"""How long nobody else takes a notification that somebody tells."""
PAUSES: Final = (10, 60, 600, 3600)
"""Seconds until it is told again where that failed; the last counts for all that follow."""
LONGEST: Final = timedelta(days=3)
"""An older one is news no more."""

_FIELDS: Final = ("kind", "title", "directory", "model", "phase", "error", "rounds", "calls", "usage", "cost")


class Notification(NamedTuple):
    """A change of a job that is told. `done` holds the places that know of it already."""

    key: int
    segment: int
    state: str
    attempts: int
    done: tuple[str, ...]
    payload: dict[str, Any]


def add_notification(connection: Connection, key: int, before: DurableJob, job: DurableJob) -> None:
    """Note that somebody is to be told, if the change of a job is news to a person."""
    waits = job.state == "waiting" and job.waits_for != "rate_limit"
    if job.state == before.state or not (waits or job.state in END_STATES):
        return
    row = {
        "job": key,
        "segment": job.segment,
        "state": job.state,
        "reason": job.reason,
        "waits_for": job.waits_for,
        "at": to_microseconds(job.updated_at),
        "due_at": to_microseconds(job.updated_at),
    }
    connection.execute(insert_once(notifications, connection), row)


def take_notifications(connection: Connection, now: datetime, limit: int) -> list[Notification]:
    """Those that are due, which nobody else gets for `LEASE`."""
    oldest = to_microseconds(now - LONGEST)
    connection.execute(delete(notifications).where(notifications.c.at < oldest))
    due = (
        select(notifications)
        .where(notifications.c.due_at <= to_microseconds(now))
        .order_by(notifications.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    taken = []
    for row in connection.execute(due).all():
        this = _is(row.job, row.segment, row.state)
        try:
            done = msgspec.json.decode(row.done, type=tuple[str, ...])
            payload = _describe(connection, row)
        except (CallerError, msgspec.MsgspecError):  # rows in another format, which would come first for ever
            connection.execute(delete(notifications).where(*this))
            continue
        changed = {"attempts": row.attempts + 1, "due_at": to_microseconds(now + LEASE)}
        connection.execute(update(notifications).where(*this).values(changed))
        taken.append(Notification(row.job, row.segment, row.state, row.attempts + 1, done, payload))
    return taken


def settle_notification(connection: Connection, notification: Notification, now: datetime, *, is_over: bool) -> None:
    """Remove a notification that everybody was told, else have it told again later."""
    row = _is(notification.key, notification.segment, notification.state)
    if is_over:
        connection.execute(delete(notifications).where(*row))
        return
    pause = PAUSES[min(notification.attempts, len(PAUSES)) - 1]
    changed = {
        "done": encode_json(notification.done).decode(),
        "due_at": to_microseconds(now + timedelta(seconds=pause)),
    }
    connection.execute(update(notifications).where(*row).values(changed))


def _is(key: int, segment: int, state: str) -> tuple[Any, ...]:
    table = notifications.c
    return table.job == key, table.segment == segment, table.state == state


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

"""Schedules: jobs that are submitted again and again, at the times of a line of cron.

Laws:
- A schedule that is due submits one job, however many workers look: the row is locked, the job is made and queued, and
  the next time is written, in one transaction.
- What was due while no worker ran is submitted once, late, however often it was due.
- A schedule whose last job has not ended submits no other one, so that none pile up behind a job that waits for a person
  or a worker that is away.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, select, update

from callboard.coding.jobs.json_encoding import encode_json
from callboard.core.ports import Clock
from callboard.errors import CallerError
from callboard.jobs import queries
from callboard.jobs.claim import Enqueue
from callboard.jobs.cron import next_time
from callboard.jobs.database import Database
from callboard.jobs.job import END_STATES, DurableJob, JobTemplate, new_identifier
from callboard.jobs.rows import from_rows, to_microseconds, to_row
from callboard.jobs.tables import insert_once, jobs, schedules

_HINT: Final = "callboard schedule list shows them"
_log = logging.getLogger("callboard.jobs")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A row of schedules. Times are in UTC."""

    name: str
    cron: str
    zone: str
    """In which the line of cron is read, by IANA's name."""
    template: JobTemplate
    is_paused: bool = False
    next_at: datetime
    last_at: datetime | None = None
    """When it submitted its last job."""
    last_job: str = ""
    last_state: str | None = None
    """Of that job; None where there is none."""
    created_at: datetime

    def as_json(self) -> dict[str, Any]:
        """The schedule as programs read it."""
        fields: dict[str, Any] = msgspec.json.decode(encode_json(self))
        template = fields.pop("template")
        names = ("kind", "description", "directory", "model", "input", "queue", "priority")
        return {**fields, **{name: template.get(name, getattr(self.template, name)) for name in names}}


_STATE = select(jobs.c.state).where(jobs.c.id == schedules.c.last_job).scalar_subquery().label("last_state")
_ALL = select(schedules, _STATE).order_by(schedules.c.name)


class ScheduleStore:
    """The schedules of a database. `enqueue` queues a job's segment in the transaction that submits it."""

    def __init__(
        self, database: Database, enqueue: Enqueue | None = None, *, clock: Clock = lambda: datetime.now(UTC)
    ) -> None:
        self.database = database
        self._enqueue = enqueue
        self._clock = clock
        self._warnings: dict[str, str] = {}
        """The last warning about each schedule that cannot be read."""

    async def add(self, name: str, cron: str, zone: str, template: JobTemplate) -> Schedule:
        """Add a schedule, due from now on.

        Raises:
            CallerError: The name is taken or none, or the line of cron or the time zone is wrong.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
            hint = "it has letters, digits, dots, dashes and underscores, 64 at most"
            raise CallerError("no name for a schedule", path=name, hint=hint)
        now = self._clock()
        added = Schedule(
            name=name, cron=cron, zone=zone, template=template, next_at=next_time(cron, zone, now), created_at=now
        )
        fields = {each: getattr(added, each) for each in Schedule.__struct_fields__ if each != "last_state"}
        row = to_row({**fields, "template": msgspec.to_builtins(template)})

        def insert(connection: Connection) -> None:
            connection.execute(insert_once(schedules, connection), row)
            if connection.scalar(_one(schedules.c.created_at, name)) != row["created_at"]:
                hint = f"callboard schedule rm {name} removes it"
                raise CallerError("there is a schedule of this name", path=name, hint=hint)

        await self.database.run(insert)
        return added

    async def list(self) -> Sequence[Schedule]:
        """All of them, by name."""
        return await self.database.read(lambda connection: [*from_rows(connection.execute(_ALL), Schedule)])

    async def remove(self, name: str) -> None:
        """Delete a schedule; the jobs that it submitted stay. Raises CallerError for one that is not there."""
        await self._change(name, lambda connection, _: connection.execute(delete(schedules).where(_is(name))))

    async def pause(self, name: str) -> None:
        """Let it submit nothing. Raises CallerError for one that is not there."""
        await self._change(name, lambda connection, _: _write(connection, name, is_paused=True))

    async def resume(self, name: str) -> Schedule:
        """Let it submit again, from now on: what was due meanwhile is left out. Raises CallerError as `pause`."""

        def go_on(connection: Connection, schedule: Schedule) -> None:
            later = next_time(schedule.cron, schedule.zone, self._clock())
            _write(connection, name, is_paused=False, next_at=later)

        await self._change(name, go_on)
        return next(each for each in await self.list() if each.name == name)

    async def submit_due(self) -> Sequence[DurableJob]:
        """Submit the jobs of the schedules that are due, but of those whose last job has not ended.

        A schedule that cannot be read is passed over, and logged once.

        Raises:
            DatabaseUnavailable: The rest is left for the next time.
        """
        now = self._clock()
        is_due = (~schedules.c.is_paused) & (schedules.c.next_at <= to_microseconds(now))
        names = select(schedules.c.name).where(is_due).order_by(schedules.c.next_at)
        submitted = []
        for name in await self.database.read(lambda connection: [*connection.scalars(names)]):
            try:
                job = await self.database.run(lambda connection, name=name: self._submit(connection, name, now))  # type: ignore[misc]
            except CallerError as error:
                if self._warnings.get(name) != str(error):
                    _log.warning("the schedule %s submits nothing: %s", name, error)
                self._warnings[name] = str(error)
            else:
                self._warnings.pop(name, None)
                submitted += [job] if job is not None else []
        return submitted

    def _submit(self, connection: Connection, name: str, now: datetime) -> DurableJob | None:
        query = _ALL.where(_is(name), ~schedules.c.is_paused, schedules.c.next_at <= to_microseconds(now))
        due = from_rows(connection.execute(query.with_for_update(of=schedules, skip_locked=True)), Schedule)
        schedule = next(due, None)
        if schedule is None:  # another worker was first
            return None
        later = next_time(schedule.cron, schedule.zone, now)
        if schedule.last_state is not None and schedule.last_state not in END_STATES:
            _write(connection, name, next_at=later)
            return None
        job = schedule.template.make_job(new_identifier(now), now, schedule=name)
        queries.add_job(connection, job)
        if self._enqueue is not None:
            self._enqueue(connection, job, 0)
        _write(connection, name, next_at=later, last_at=now, last_job=job.id)
        return job

    async def _change(self, name: str, work: Callable[[Connection, Schedule], object]) -> None:
        seen: list[str] = []

        def change(connection: Connection) -> None:
            schedule = next(from_rows(connection.execute(_ALL.where(_is(name))), Schedule), None)
            if schedule is not None:
                seen.append(name)
                work(connection, schedule)
            elif not seen:  # else it was removed by a commit that went unnoticed
                raise CallerError("no such schedule", path=name, hint=_HINT)

        await self.database.run(change)


def _is(name: str) -> Any:
    return schedules.c.name == name


def _one(column: Any, name: str) -> Any:
    return select(column).where(_is(name))


def _write(connection: Connection, name: str, **changes: Any) -> None:
    connection.execute(update(schedules).where(_is(name)), to_row(changes))

"""Schedules: jobs that are submitted at the times of a cron expression.

An expression has a minute, an hour, a day of the month, a month and a day of the week, such as `30 3 * * mon-fri`.
`croniter` reads it. Extensions of `croniter` that cron does not have are refused: seconds, years and random values.

Laws:
- A due schedule submits one job, even if many workers check it. One transaction locks the row, creates and queues the
  job, and writes the next time.
- A schedule that was due while no worker ran submits one late job, even if it was due several times.
- A schedule whose last job has not ended submits nothing. So jobs do not pile up while a job waits for a person or a
  worker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from croniter import croniter  # type: ignore[import-untyped]  # stubs are another package
from sqlalchemy import Connection, Delete, Update, delete, select, update

from callboard.core.ports import Clock
from callboard.errors import CallerError
from callboard.jobs import queries
from callboard.jobs.claim import Enqueue
from callboard.jobs.database import Database
from callboard.jobs.engine import enqueue
from callboard.jobs.job import END_STATES, DurableJob, JobTemplate, new_identifier
from callboard.jobs.tables import from_rows, insert_once, jobs, schedules, to_microseconds, to_row
from callboard.text.surrogates import encode_json

_FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
_SHORT: Final = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_RANDOM: Final = re.compile(r"[hr](\(|/|$)", re.IGNORECASE)
_log = logging.getLogger("callboard.jobs")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A row of schedules. Times are in UTC."""

    name: str
    cron: str
    zone: str
    """Time zone of the cron expression, by its IANA name."""
    template: JobTemplate
    is_paused: bool = False
    next_at: datetime
    last_at: datetime | None = None
    """Time of the last submission."""
    last_job: str = ""
    last_state: str | None = None
    """State of the last job, None if there is none."""
    created_at: datetime

    def as_json(self) -> dict[str, Any]:
        """Return the schedule as JSON for programs."""
        fields: dict[str, Any] = msgspec.json.decode(encode_json(self))
        template = fields.pop("template")
        names = ("kind", "description", "directory", "model", "input", "queue", "priority")
        return {**fields, **{name: template.get(name, getattr(self.template, name)) for name in names}}


_STATE = select(jobs.c.state).where(jobs.c.id == schedules.c.last_job).scalar_subquery().label("last_state")
_ALL = select(schedules, _STATE).order_by(schedules.c.name)


class ScheduleStore:
    """The schedules of a database. `enqueue` queues a job's segment in the transaction that submits it."""

    def __init__(
        self, database: Database, enqueue: Enqueue = enqueue, *, clock: Clock = lambda: datetime.now(UTC)
    ) -> None:
        self.database = database
        self._enqueue = enqueue
        self._clock = clock
        self._warnings: dict[str, str] = {}
        """Last warning about each unreadable schedule, by name."""

    async def add(self, name: str, cron: str, zone: str, template: JobTemplate) -> Schedule:
        """Add a schedule, due from now on. Raises CallerError if its name, cron expression or time zone is wrong."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
            hint = "use at most 64 letters, digits, dots, dashes and underscores"
            raise CallerError("not a name for a schedule", path=name, hint=hint)
        now = self._clock()
        due = next_time(cron, zone, now)
        added = Schedule(name=name, cron=cron, zone=zone, template=template, next_at=due, created_at=now)
        fields = {each: getattr(added, each) for each in Schedule.__struct_fields__ if each != "last_state"}
        row = to_row({**fields, "template": msgspec.to_builtins(template)})

        def insert(connection: Connection) -> None:
            connection.execute(insert_once(schedules, connection), row)
            created_at = connection.scalar(select(schedules.c.created_at).where(schedules.c.name == name))
            if created_at != row["created_at"]:
                hint = f"callboard schedule rm {name} removes it"
                raise CallerError("there is a schedule of this name", path=name, hint=hint)

        await self.database.run(insert)
        return added

    async def list(self) -> Sequence[Schedule]:
        """Return all schedules, sorted by name."""
        return await self.database.read(lambda connection: [*from_rows(connection.execute(_ALL), Schedule)])

    async def remove(self, name: str) -> None:
        """Delete a schedule, but not its jobs. Raises CallerError if it does not exist."""
        await self._change(name, delete(schedules))

    async def pause(self, name: str) -> None:
        """Pause a schedule. Raises CallerError if it does not exist."""
        await self._change(name, update(schedules).values(is_paused=True))

    async def resume(self, name: str) -> Schedule:
        """Resume a schedule from now on, without the times missed meanwhile. Raises CallerError as `pause`."""
        await self.pause(name)
        schedule = next(each for each in await self.list() if each.name == name)
        due = next_time(schedule.cron, schedule.zone, self._clock())
        await self._change(name, update(schedules).values(is_paused=False, next_at=to_microseconds(due)))
        return msgspec.structs.replace(schedule, is_paused=False, next_at=due)

    async def submit_due(self) -> Sequence[DurableJob]:
        """Submit the jobs of due schedules, except schedules whose last job has not ended.

        Skip a schedule that cannot be read, and log it once.

        Raises:
            DatabaseUnavailable: The remaining schedules are checked next time.
        """
        now = self._clock()
        is_due = (~schedules.c.is_paused) & (schedules.c.next_at <= to_microseconds(now))
        names = select(schedules.c.name).where(is_due).order_by(schedules.c.next_at)
        submitted = []
        for name in await self.database.read(lambda connection: [*connection.scalars(names)]):
            query = _ALL.where(is_due, schedules.c.name == name).with_for_update(of=schedules, skip_locked=True)
            try:
                job = await self.database.run(lambda connection, query=query: self._submit(connection, query, now))  # type: ignore[misc]
            except CallerError as error:
                if self._warnings.get(name) != str(error):
                    _log.warning("the schedule %s submits nothing: %s", name, error)
                self._warnings[name] = str(error)
            else:
                submitted += [job] if job is not None else []
        return submitted

    def _submit(self, connection: Connection, query: Any, now: datetime) -> DurableJob | None:
        schedule = next(from_rows(connection.execute(query), Schedule), None)
        if schedule is None:  # another worker was first
            return None
        changes: dict[str, Any] = {"next_at": next_time(schedule.cron, schedule.zone, now)}
        job = None
        if schedule.last_state is None or schedule.last_state in END_STATES:
            job = schedule.template.make_job(new_identifier(now), now, schedule=schedule.name)
            queries.add_job(connection, job)
            self._enqueue(connection, job, 0)
            changes |= {"last_at": now, "last_job": job.id}
        connection.execute(update(schedules).where(schedules.c.name == schedule.name).values(to_row(changes)))
        return job

    async def _change(self, name: str, statement: Update | Delete) -> None:
        its = schedules.c.name == name
        if not await self.database.read(lambda connection: connection.scalar(select(schedules.c.name).where(its))):
            raise CallerError("no such schedule", path=name, hint="callboard schedule list shows them")
        await self.database.run(lambda connection: connection.execute(statement.where(its)))


def next_time(cron: str, zone: str, after: datetime) -> datetime:
    """Return the first time after `after` at which a cron expression is due, in UTC.

    If clocks go forward, a job in the skipped hour is due at once. If they go back, a job at a fixed hour is due only
    in the first of the two hours, as with cron.

    Raises:
        CallerError: The expression or time zone is wrong, or the expression is never due. The error names the field.
    """
    path, fields = f"cron {cron!r}", cron.split()
    if cron.strip().lower() not in _SHORT:
        if len(fields) != len(_FIELDS):
            hint = 'write five fields, such as "30 3 * * mon-fri" for 3:30 on working days, or @daily'
            raise CallerError(f"it has {len(fields)} fields", path=path, hint=hint)
        for at, (name, text) in enumerate(zip(_FIELDS, fields, strict=True)):
            alone = " ".join([*"*" * at, text, *"*" * (len(_FIELDS) - at - 1)])
            if _RANDOM.match(text) or not croniter.is_valid(alone):
                raise CallerError(f"no {name}: {text!r}", path=path, hint="write it as in: 30 3 * * mon-fri")
    try:
        local = after.astimezone(ZoneInfo(zone))
    except (ValueError, OSError, LookupError):  # also a path outside of the directory of zones
        hint = "write one of IANA's names, such as Europe/Berlin or UTC"
        raise CallerError("no such time zone", path=f"--zone {zone}", hint=hint) from None
    try:
        times = croniter(" ".join(fields).lower(), local)
        due: datetime = times.get_next(datetime)
        while due.fold and not times.expressions[1].startswith("*"):
            due = times.get_next(datetime)
    except ValueError:
        raise CallerError("it is never due", path=path, hint="no month has such a day") from None
    return due.astimezone(UTC)

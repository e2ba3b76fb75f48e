"""The embedded engine: workers claim due segments from a table of the jobs' database.

A worker claims due segments under its own id for a limited time, which it renews while it lives (`lease`). After that
time the segment is due again.

On PostgreSQL one worker claims at a time, because partitions and limits count the claims of all workers. A claim takes
about three milliseconds, and takes as many segments as the worker has room for.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from callboard.configuration.jobs import QueueSettings
from callboard.jobs import engine, lease
from callboard.jobs.claim import LeftToOthers
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.engine import DatabaseEngine, RunSegment, is_segment
from callboard.jobs.tables import insert_once, lock_claims, queue_limits, segments

_MINUTE: Final = 60_000
"""A minute in milliseconds, the unit of all times in the table."""

_log = logging.getLogger("callboard.jobs")


class EmbeddedEngine(DatabaseEngine):
    """The engine of a database, see `Engine`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._running: dict[tuple[str, int], str] = {}
        """Queues of the segments that run here, by job and segment."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking: asyncio.Task[None] | None = None
        due, busy = segments.c, segments.alias().c
        is_free = due.executor.is_(None) & (due.due_at <= self._now) | (due.lease_until < self._now)
        is_alone = (due.partition == "") | ~sa.exists().where(
            busy.queue == due.queue, busy.partition == due.partition, busy.lease_until >= self._now
        )
        self._due = (
            sa.select(segments)
            .where(due.queue.in_(sa.bindparam("queues", expanding=True)), is_free, is_alone)
            .order_by(due.priority, due.due_at, due.job)
            .limit(sa.bindparam("room"))
        )

    async def serve(
        self,
        run_segment: RunSegment,
        *,
        queues: Mapping[str, QueueSettings],
        concurrency: int,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self._run_segment, self._queues, self._places = run_segment, dict(queues), concurrency
        await self.database.run(self._set_limits)
        self._open(on_loss)
        self._taking = self._loop.create_task(self._take_always())

    async def stop_taking(self) -> None:
        self._is_closed = True
        if self._taking is not None:
            self._bell.set()
            await asyncio.wait([self._taking])  # the end of the loop may have cancelled it
            await asyncio.sleep(0)  # start the segments that it claimed last

    async def _take_always(self) -> None:
        while not self._is_closed:
            self._bell.clear()
            taken = []
            room, running = self._count_room(), frozenset(self._running)
            with suppress(DatabaseUnavailable):
                if bool(room) and await self.database.read(partial(self._is_due, room)):
                    taken = await self.database.run(partial(self._take, room, running))
            for job, segment, queue in taken:
                self._running[job, segment] = queue
                task = self._loop.create_task(self._run(job, segment))
                self._tasks.add(task)
                task.add_done_callback(partial(self._end, (job, segment)))
            if not taken:
                await self._bell.wait()

    def _count_room(self) -> dict[str, int]:
        """Return how many more segments of each queue may run here."""
        room, counts = self._places - len(self._running), Counter(self._running.values())
        limits = {name: (each.concurrency or self._places) - counts[name] for name, each in self._queues.items()}
        return {name: min(room, limit) for name, limit in limits.items() if min(room, limit) > 0}

    def _is_due(self, room: Mapping[str, int], connection: Connection) -> bool:
        return connection.execute(self._due, {"queues": [*room], "room": 1}).first() is not None

    def _take(
        self, room: Mapping[str, int], running: Collection[tuple[str, int]], connection: Connection
    ) -> list[tuple[str, int, str]]:
        """Claim as many due segments as there is room for. Return all claimed segments that do not run yet.

        So a retry also returns the claims of a commit whose acknowledgement was lost.
        """
        lock_claims(connection)
        starts = self._read_starts(connection, room)
        room = {name: min(count, starts.get(name, (count, []))[0]) for name, count in room.items()}
        places = {name: count for name, count in room.items() if count > 0}
        most = self._places - len(running)
        taken: Counter[str] = Counter()
        partitions = set()
        # Several jobs of one partition may be due, so more rows are read than there is room for.
        for row in connection.execute(self._due, {"queues": [*places], "room": 8 * most}).all():
            place = (row.queue, row.partition)
            is_ending = (row.job, row.segment) in running  # it was handed back a moment ago
            is_alone = not row.partition or place not in partitions
            if taken.total() == most or places[row.queue] == 0 or is_ending or not is_alone:
                continue
            partitions.add(place)
            places[row.queue] -= 1
            held = {"executor": self.executor, "lease_until": self._now + int(lease.LEASE_SECONDS * 1000)}
            connection.execute(sa.update(segments).where(*is_segment(row.job, row.segment)).values(held))
            taken[row.queue] += 1
        self._note_starts(connection, starts, taken)
        claimed = sa.select(segments.c.job, segments.c.segment, segments.c.queue)
        rows = connection.execute(claimed.where(segments.c.executor == self.executor)).all()
        return [(row.job, row.segment, row.queue) for row in rows if (row.job, row.segment) not in running]

    def _set_limits(self, connection: Connection) -> None:
        for name, settings in self._queues.items():
            if settings.starts_per_minute is not None:
                row = queue_limits.c.queue == name
                connection.execute(insert_once(queue_limits, connection), {"queue": name, "starts": 0})
                connection.execute(sa.update(queue_limits).where(row).values(starts=settings.starts_per_minute))

    def _read_starts(self, connection: Connection, queues: Mapping[str, int]) -> dict[str, tuple[int, list[int]]]:
        """Return how many segments of each limited queue may start now, and the times of the last minute's starts."""
        limited = sa.select(queue_limits, self._now.label("now")).where(
            queue_limits.c.queue.in_([*queues]), queue_limits.c.starts > 0
        )
        starts = {}
        for row in connection.execute(limited).all():
            recent = [each for each in json.loads(row.started) if each > row.now - _MINUTE]
            starts[row.queue] = (row.starts - len(recent), recent)
        return starts

    def _note_starts(
        self, connection: Connection, starts: Mapping[str, tuple[int, list[int]]], taken: Mapping[str, int]
    ) -> None:
        for name, (_, recent) in starts.items():
            if taken.get(name):
                now = connection.scalar(sa.select(self._now)) or 0
                started = json.dumps([*recent, *[now] * taken[name]])
                row = queue_limits.c.queue == name
                connection.execute(sa.update(queue_limits).where(row).values(started=started))

    def _end(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._running.pop(key, None)
        self._bell.set()

    async def _run(self, job: str, segment: int) -> None:
        """Run a claimed segment, then delete its row. If the task is cancelled, the row stays."""
        mine = (*is_segment(job, segment), segments.c.executor == self.executor)
        later = sa.update(segments).where(*mine)
        later = later.values(executor=None, lease_until=None, due_at=self._now + int(engine.PAUSE_SECONDS * 1000))
        statement: sa.Delete | sa.Update = sa.delete(segments).where(*mine)
        try:
            await self._run_segment(job, segment)
        except LeftToOthers as error:
            _log.info("%s", error)
            statement = later
        except Exception as error:  # noqa: BLE001  # if the outcome could not be written, the segment has not ended
            _log.warning("segment %d of job %s begins again later: %s: %s", segment, job, type(error).__name__, error)
            statement = later
        while True:
            try:
                await self.database.run(lambda connection: connection.execute(statement))
            except DatabaseUnavailable:
                if self._is_closed:
                    return
                await asyncio.sleep(1)
            else:
                return

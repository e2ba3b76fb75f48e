"""The engine of durable jobs: it decides which worker runs which segment, and when.

The row of a due segment is the truth for every engine. A segment is queued by a row of `segments`, in the transaction
that makes it due. The executor that has the lease of the row runs the segment, and the row goes when the segment has
ended. The times of the rows are those of the database's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy import Connection

from callboard.configuration.jobs import QueueSettings
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.job import DurableJob
from callboard.jobs.lease import CHANNEL, Lease
from callboard.jobs.tables import clock, insert_once, jobs, segments

RunSegment = Callable[[str, int], Coroutine[Any, Any, None]]
"""Runs the segment of a job, by its number, to its end."""
PAUSE_SECONDS: Final = 5.0
"""Seconds before another attempt at a segment that raised, or that this worker cannot run."""
SOON_SECONDS: Final = 3600
"""Seconds ahead for which a worker that ends when it is idle waits: nobody else might be there."""


class Engine(Protocol):
    """Queues segments, and runs the segments of some queues in this process.

    Laws: a segment that is queued twice runs once, and never in two processes at a time. A segment that raises is handed
    back to its queue. One job of a partition runs at a time, and no more segments of a queue start a minute than its
    limit says, in all workers together.
    """

    executor: str
    """The id under which this process claims; "" if it does not serve."""

    def enqueue(self, connection: Connection, job: DurableJob, delay: float = 0) -> None:
        """Queue the present segment of the job in the transaction of this connection, to begin after `delay` seconds."""

    async def serve(
        self,
        run_segment: RunSegment,
        *,
        queues: Mapping[str, QueueSettings],
        concurrency: int,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        """Begin to run the segments of some queues, as tasks of this loop.

        Args:
            run_segment: Runs a segment. An exception hands the segment back.
            queues: The queues, and what holds for each of them.
            concurrency: How many segments this process runs at once.
            on_loss: Called in a thread, with the reason, if the lease was lost. By default the process ends there.

        Raises:
            CallboardError: The engine cannot begin.
        """

    def wake(self) -> None:
        """Look for due segments now, because something was written. Any thread may call it."""

    async def stop_taking(self) -> None:
        """Begin no more segments. Running segments continue."""

    async def hand_back(self) -> None:
        """Stop serving: what was claimed is due again at once. If the database is away, it is when the lease ends."""

    async def is_idle(self) -> bool:
        """Return whether no segment of the served queues runs, or waits for a time that is near."""


class DatabaseEngine(Engine):
    """The part that engines of one database share: they enqueue the same rows, and serve under a lease."""

    _running: Collection[tuple[str, int]]

    def __init__(self, database: Database) -> None:
        self.database = database
        self.executor = ""
        self._now = clock(database.engine.dialect.name)
        self._queues: Mapping[str, QueueSettings] = {}
        self._is_closed = True
        self._lease: Lease | None = None

    def enqueue(self, connection: Connection, job: DurableJob, delay: float = 0) -> None:
        enqueue(connection, job, delay)

    def _open(self, on_loss: Callable[[str], None] | None) -> None:
        self._bell, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self.database.check_health(forget=True)
        self.executor = str(uuid4())
        self._is_closed = False
        self._lease = Lease(self.database, self.executor, self.wake, lambda: len(self._running), on_loss)

    def wake(self) -> None:
        if not self._is_closed:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._bell.set)

    async def hand_back(self) -> None:
        await self.stop_taking()
        if self._lease is None:
            return
        await asyncio.to_thread(self._lease.close)
        self._lease = None
        with suppress(DatabaseUnavailable):
            await asyncio.to_thread(self.database.run_blocking, self._free_segments, patience=0)
        self.executor = ""

    async def is_idle(self) -> bool:
        is_soon = segments.c.due_at < self._now + SOON_SECONDS * 1000
        query = sa.select(segments.c.job).where(segments.c.queue.in_([*self._queues]), is_soon).limit(1)
        try:
            return not self._running and not await self.database.read(lambda connection: connection.scalar(query))
        except DatabaseUnavailable:
            return False

    def _free_segments(self, connection: Connection) -> None:
        mine = segments.c.executor == self.executor
        # The next runner counts a failure, and a worker that stops in good order is not one.
        stopped = jobs.c.id.in_(sa.select(segments.c.job).where(mine)) & (jobs.c.state == "running")
        connection.execute(sa.update(jobs).where(stopped).values(failures=jobs.c.failures - 1))
        connection.execute(sa.update(segments).where(mine).values(executor=None, lease_until=None))
        announce(connection)


def enqueue(connection: Connection, job: DurableJob, delay: float = 0) -> None:
    row = {"job": job.id, "segment": job.segment, "queue": job.queue, "partition": job.partition}
    due_at = clock(connection.dialect.name) + int(delay * 1000)
    statement = insert_once(segments, connection).values(due_at=due_at)
    connection.execute(statement, {**row, "priority": job.priority})
    announce(connection)


def announce(connection: Connection) -> None:
    """Tell the workers of other processes to look for due segments. SQLite's look at a counter of writes."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"NOTIFY {CHANNEL}"))


def is_segment(job: str, segment: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions that select the row of a segment."""
    return segments.c.job == job, segments.c.segment == segment

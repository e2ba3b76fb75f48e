"""The engine of durable jobs: it decides which worker runs which segment, and when.

Every engine relies on the row of a due segment in `segments`, which is written in the transaction that makes the
segment due. The executor that has the row's lease runs the segment. The row is deleted when the segment has ended. The
times in the rows come from the database's clock.
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
"""Seconds before a segment is tried again after it raised, or if this worker cannot run it."""
SOON_SECONDS: Final = 3600
"""A worker that ends when it is idle waits for segments that are due within so many seconds: no other may be there."""


class Engine(Protocol):
    """Queues segments, and runs the segments of some queues in this process.

    Laws: a segment that is queued twice runs once, and never in two processes at a time. A segment that raises returns
    to its queue. One job of a partition runs at a time. A queue's limit of starts per minute applies to all workers.
    """

    executor: str
    """Id of this process for claims, "" if it does not serve."""

    def enqueue(self, connection: Connection, job: DurableJob, delay: float = 0) -> None:
        """Queue the present segment of a job in the transaction of the connection, to start after `delay` seconds."""

    async def serve(
        self,
        run_segment: RunSegment,
        *,
        queues: Mapping[str, QueueSettings],
        concurrency: int,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        """Start to run the segments of some queues, as tasks of this loop.

        Args:
            run_segment: Runs a segment. An exception returns the segment to its queue.
            queues: The queues and their settings.
            concurrency: Maximum segments that this process runs at once.
            on_loss: Called in a thread, with the reason, if the lease is lost. By default the process ends.

        Raises:
            CallboardError: The engine cannot start.
        """

    def wake(self) -> None:
        """Check for due segments now, because something was written. Thread-safe."""

    async def stop_taking(self) -> None:
        """Start no more segments. Running segments continue."""

    async def hand_back(self) -> None:
        """Stop, and make claimed segments due at once. If the database is away, they are due when the lease ends."""

    async def is_idle(self) -> bool:
        """Return whether no segment of the served queues runs or is due soon."""


class DatabaseEngine(Engine):
    """The common part of engines: they write the same rows, and serve under a lease."""

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
        self._lease = Lease(self.database, self.executor, self.wake, lambda: set(self._running), on_loss)

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
        # The next runner counts a failure, but a worker that stops in good order has not failed.
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
    """Notify the workers of other processes about due segments. With SQLite they watch a counter of writes."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"NOTIFY {CHANNEL}"))


def is_segment(job: str, segment: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions that select the row of a segment."""
    return segments.c.job == job, segments.c.segment == segment

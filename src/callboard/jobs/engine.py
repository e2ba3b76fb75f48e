"""The engine of durable jobs: DBOS queues the segments of jobs, claims them and counts their attempts.

DBOS knows a job's id and the number of its segment, nothing else. Its tables stand in the database of ours, so a segment
is queued in the transaction that makes it due. `JOB-SEGMENT` is the workflow's id: queueing a segment twice is no error.

Laws: the application's version is a constant, so that an update of Callboard strands no job; rows are JSON, and one
that says it is a pickle is refused, because whoever can write such a row could run code here; a segment that raises is
handed back to its queue, not noted as an error.

A queue of ours is two of DBOS's. Jobs with a partition go to the second, where one of each partition runs at a time. DBOS
takes partitions in no order, so jobs without one, each in a partition of its own, would lose their priorities there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any, Final

import dbos._scheduler
import dbos._workflow_commands
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions
from dbos._serialization import DBOSPortableJSONSerializer, DefaultSerializer
from dbos._sys_db import SystemDatabase
from dbos._sys_db_postgres import PostgresSystemDatabase
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from callboard.configuration.jobs import QueueSettings
from callboard.jobs.claim import LeftToOthers
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.dispatch import Dispatch
from callboard.jobs.job import DurableJob
from callboard.jobs.tables import jobs

RunSegment = Callable[[str, int], Coroutine[Any, Any, None]]
"""Runs a job's segment of a number to its end, or raises."""

APPLICATION: Final = "callboard"
VERSION: Final = "1"
"""Of the application, as DBOS sees it. It never changes: DBOS gives no worker the jobs of another version."""
ATTEMPTS: Final = 5
"""How often a segment whose worker died, or that raised, is begun again without coming further."""
CHANNEL: Final = "callboard_jobs"
"""On which PostgreSQL tells workers that something was queued."""
FALLBACK_SECONDS: Final = 30.0
"""How often DBOS looks at a queue by itself. `wake` rings for what is due, and is called once a second at least."""
DELAY_SECONDS: Final = 2.0
"""How often DBOS looks whether a delay is over."""
PRIORITY: Final = 2**30
"""DBOS has priorities from 1 to 2**31 - 1, the lowest first; ours begin in the middle."""
RETRY_SECONDS: Final = 1.0
"""Seconds before a statement is tried again while the database is away."""
PAUSE_SECONDS: Final = 2.0
"""Before a segment that raised is begun again; doubled with each attempt."""
LEFT_SECONDS: Final = 5.0
"""Before a segment that the worker which took it cannot run is begun by another, or looked at again."""
THREADS: Final = 8
OUTCOME_SECONDS: Final = 2.0
"""What DBOS has, when it ends, to note down which segments are over. One that it does not note is begun once more, and
ends at once, for its job is beyond it."""

KEEP_SECONDS: Final = 3600
"""For which the row of a segment that is over is kept. What the segment did stands in our tables."""
REMOVED_AT_ONCE: Final = 500
SOON_SECONDS: Final = 3600
"""A worker that ends when it is idle waits for what is due so soon: nobody else might be there to begin it."""

_WORKFLOW: Final = "callboard_segment"
_STATUS: Final = "workflow_status"
_TEXTS: Final = "workflow_uuid status executor_id queue_name application_name application_version owner_xid"
_NUMBERS: Final = "updated_at started_at_epoch_ms completed_at recovery_attempts delay_until_epoch_ms"
_ABANDONED: Final = {
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": f"its worker died or failed {ATTEMPTS + 1} times at the same place",
    "ERROR": "its row in the queue cannot be read",
    "CANCELLED": "it was taken out of the queue",
}
"""The ends that DBOS puts to a segment without asking us."""

_log = logging.getLogger("callboard.jobs")
logging.getLogger("dbos").setLevel(logging.CRITICAL)  # it prints tracebacks of what we handle


class Engine:
    """Queues segments, and serves queues in one process. DBOS allows one that serves in a process at a time."""

    def __init__(self, database: Database) -> None:
        """Makes DBOS's tables where they are missing; it blocks for some milliseconds, the first time for a second."""
        url = database.engine.url.render_as_string(hide_password=False)
        DBOS.migrate(url)
        self.database = database
        self.served: tuple[str, ...] = ()
        """Our queues that this process serves."""
        status = self._status = _describe_status(database)
        self._is_ours = sa.func.coalesce(status.c.application_name, APPLICATION) == APPLICATION
        # To make a statement costs more than to execute it, and these are asked each second.
        self._owners = sa.select(status.c.executor_id).where(status.c.status == "PENDING", self._is_ours).distinct()
        self._due = sa.select(sa.literal(1)).where(sa.false())
        self._client = DBOSClient(
            system_database_engine=database.engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
        )
        self._instance: DBOS | None = None
        self._dispatch: Dispatch | None = None
        self._stopping = threading.Event()

    def close(self) -> None:
        """Stops serving, and forgets the client; the database stays open."""
        self.stop_serving()
        self._client.destroy()

    def enqueue(self, connection: Connection, job: DurableJob, delay: float = 0) -> None:
        """Queue the job's present segment in the transaction of this connection, to begin after `delay` seconds."""
        options: EnqueueOptions = {
            "workflow_name": _WORKFLOW,
            "queue_name": _lane(job),
            "workflow_id": f"{job.id}-{job.segment}",
            "app_version": VERSION,
            "priority": min(max(PRIORITY + job.priority, 1), 2**31 - 1),
        }
        if job.partition:
            options["queue_partition_key"] = job.partition
        if delay > 0:
            options["delay_seconds"] = delay
        self._client.enqueue_in_transaction(connection, options, job.id, job.segment)
        self._announce(connection)

    def cancel(self, connection: Connection, job: DurableJob) -> None:
        """Take the job's present segment out of its queue, if it has not begun, in the transaction of this connection."""
        status = self._status
        connection.execute(
            sa.update(status)
            .where(status.c.workflow_uuid == f"{job.id}-{job.segment}", status.c.status.in_(("ENQUEUED", "DELAYED")))
            .values(status="CANCELLED", queue_name=None, completed_at=_now(), updated_at=_now())
        )

    def count_anew(self, connection: Connection, job: DurableJob) -> None:
        """Let the attempt that runs be the first of the job's present segment, in the transaction of this connection."""
        status = self._status
        connection.execute(
            sa.update(status)
            .where(status.c.workflow_uuid == f"{job.id}-{job.segment}", status.c.status == "PENDING")
            .values(recovery_attempts=1)
        )

    def serve(
        self,
        run_segment: RunSegment,
        loop: asyncio.AbstractEventLoop,
        *,
        executor: str,
        queues: Mapping[str, QueueSettings],
        concurrency: int,
    ) -> None:
        """Begin to run the segments of some queues; it blocks for about a tenth of a second.

        Args:
            run_segment: Runs on `loop`, never on DBOS's own. What it raises hands the segment back.
            loop: The loop of the caller.
            executor: The id that nobody else has, under which segments are claimed; its lease is held already.
            queues: Our queues, and what holds for each of them.
            concurrency: How many segments this process runs at once.
        """
        global _serving  # DBOS's registry of workflows is the process's as well
        _register_workflow()
        _prepare_dbos()
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_engine": self.database.engine,
            "application_version": VERSION,
            "executor_id": executor,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "CRITICAL",
            "run_migrations": False,
            "max_executor_threads": THREADS,
            "notification_coalesce_sec": 0.25,  # of what we do not use: by default 100 wakes a second; stopping waits for one
        }
        self._stopping.clear()
        lanes = self._register_queues(queues)
        instance = DBOS(config=config)
        DBOS.listen_queues(lanes)
        limits = {name: each.concurrency for name, each in queues.items() if each.concurrency}
        own = {lane: (limit, _lanes(name)) for name, limit in limits.items() for lane in _lanes(name)}
        dispatch = Dispatch(instance, lanes, concurrency, self._is_due, own)
        self._run_segment, self._loop = run_segment, loop
        self._instance, self._dispatch, _serving = instance, dispatch, self
        self.served = tuple(queues)
        status = self._status
        due = status.c.queue_name.in_(lanes) & (status.c.status == "ENQUEUED")
        self._due = sa.select(sa.literal(1)).where(due).limit(1)
        with dispatch.install():
            DBOS.launch()

    def wake(self) -> None:
        """Look for due segments now, because something was written."""
        if self._dispatch is not None:
            self._dispatch.ring()

    def stop_taking(self) -> None:
        """Claim no more segments, also none that a poll is about to claim. Those that run go on."""
        self._stopping.set()
        if self._dispatch is not None:
            self._dispatch.close()

    def count_segments(self) -> int:
        """How many segments run here."""
        return 0 if self._dispatch is None else self._dispatch.count_segments()

    def stop_serving(self) -> None:
        """End DBOS in this process. A segment that runs is cancelled, and stays claimed."""
        global _serving  # as above
        if self._instance is None or self._dispatch is None:
            return
        self.stop_taking()
        self._dispatch.wait_for_outcomes(OUTCOME_SECONDS)
        DBOS.destroy()
        _serving, self._instance, self._dispatch = None, None, None

    def find_owners(self) -> set[str]:
        """The ids of executors that own segments which have begun and not ended."""
        with self.database.engine.connect() as connection:
            return {each for each in connection.scalars(self._owners) if each}

    def hand_back(self, executor: str) -> int:
        """Queue the segments of an executor that is dead again. Returns how many were left to the statement of ours.

        DBOS's own function comes first. It is private and may go, passes over rows of other versions, and logs the
        error of a row to go on with the next; so the rows that it leaves are handed back by one statement.
        """
        recover = getattr(DBOS, "_recover_pending_workflows", None)
        if recover is not None and self._instance is not None:
            recover([executor])
        with self.database.engine.begin() as connection:
            count = connection.execute(self.hand_back_statement(executor)).rowcount
            self._announce(connection)
        return count

    def hand_back_statement(self, executor: str) -> sa.Update:
        """What DBOS's private function does to each row of the executor; also to those of another version."""
        status = self._status
        return (
            sa.update(status)
            .where(status.c.executor_id == executor, status.c.status == "PENDING", self._is_ours)
            .values(
                status="ENQUEUED",
                owner_xid=None,
                started_at_epoch_ms=None,
                application_version=VERSION,
                updated_at=_now(),
                queue_name=sa.func.coalesce(status.c.queue_name, "_dbos_internal_queue"),
            )
        )

    def release(self, executor: str) -> None:
        """Queue the segments of this process again, which stops in good order: that is no attempt of theirs."""
        status = self._status
        statement = self.hand_back_statement(executor).values(recovery_attempts=status.c.recovery_attempts - 1)
        with self.database.engine.begin() as connection:
            connection.execute(statement)
            self._announce(connection)

    def is_idle(self) -> bool:
        """Whether no segment waits in the queues that this process serves, also for a time that is near, or runs."""
        status = self._status
        lanes = [lane for queue in self.served for lane in _lanes(queue)]
        soon = (status.c.status == "DELAYED") & (status.c.delay_until_epoch_ms < _now() + SOON_SECONDS * 1000)
        query = sa.select(sa.literal(1)).where(
            status.c.queue_name.in_(lanes), status.c.status.in_(("ENQUEUED", "PENDING")) | soon
        )
        with self.database.engine.connect() as connection:
            return connection.scalar(query.limit(1)) is None

    def find_abandoned(self) -> list[tuple[str, int, str]]:
        """Jobs whose present segment DBOS will not begin again: their ids, the segments, and why."""
        status = self._status
        workflow = jobs.c.id + "-" + sa.cast(jobs.c.segment, sa.Text)
        query = sa.select(jobs.c.id, jobs.c.segment, status.c.status).where(
            jobs.c.state.in_(("pending", "running")),
            status.c.workflow_uuid == workflow,
            status.c.status.in_(tuple(_ABANDONED)),
        )
        with self.database.engine.connect() as connection:
            return [(row.id, row.segment, _ABANDONED[row.status]) for row in connection.execute(query)]

    def remove_old(self) -> None:
        """Delete the rows of segments that are over for so long that nobody will queue them again by mistake."""
        status = self._status
        query = sa.select(status.c.workflow_uuid).where(
            status.c.status.in_(("SUCCESS", "CANCELLED")),
            status.c.updated_at < _now() - KEEP_SECONDS * 1000,
            self._is_ours,
        )
        with self.database.engine.connect() as connection:
            workflows = list(connection.scalars(query.limit(REMOVED_AT_ONCE)))
        if workflows:
            self._client.delete_workflows(workflows)

    def _is_due(self) -> bool:
        try:
            with self.database.engine.connect() as connection:
                return connection.scalar(self._due) is not None
        except SQLAlchemyError:
            return True

    def _announce(self, connection: Connection) -> None:
        if not self.database.is_sqlite:
            connection.execute(sa.text(f"NOTIFY {CHANNEL}"))

    def _register_queues(self, queues: Mapping[str, QueueSettings]) -> list[str]:
        for queue, settings in queues.items():
            starts = settings.starts_per_minute
            for lane, partitions in zip(_lanes(queue), (None, 1), strict=True):
                self._client.register_queue(
                    lane,
                    partition_concurrency=partitions,
                    limiter={"limit": starts, "period": 60.0} if starts else None,
                    polling_interval_sec=FALLBACK_SECONDS,
                    on_conflict="never_update" if starts is None else "always_update",
                )
        return [lane for queue in queues for lane in _lanes(queue)]

    async def run_here(self, job_id: str, number: int) -> None:
        """Run a segment on the caller's loop, while DBOS's own waits. Raises CancelledError for DBOS to write nothing."""
        try:
            future = asyncio.run_coroutine_threadsafe(self._run_segment(job_id, number), self._loop)
            await asyncio.wrap_future(future)
        except LeftToOthers as error:
            _log.info("%s", error)
            await asyncio.to_thread(self._leave_to_others, f"{job_id}-{number}")
            raise asyncio.CancelledError from None
        except Exception as error:  # noqa: BLE001  # a segment that could not write why it ended has not ended
            _log.warning("segment %d of job %s begins again later: %s: %s", number, job_id, type(error).__name__, error)
            await asyncio.to_thread(self._postpone, f"{job_id}-{number}")
            raise asyncio.CancelledError from None
        finally:
            if self._dispatch is not None:
                self._dispatch.end_segment()

    def _postpone(self, workflow: str) -> None:
        """Queue a segment that raised again, a while later; as long as the database is away, that is tried again."""
        status = self._status
        least = sa.func.min if self.database.is_sqlite else sa.func.least
        pause = least(status.c.recovery_attempts, 10, type_=sa.BigInteger) * int(PAUSE_SECONDS * 1000)
        self._delay(workflow, delay_until_epoch_ms=pause + _now())

    def _leave_to_others(self, workflow: str) -> None:
        """Queue a segment that this process cannot run again, a while later; that was no attempt at it."""
        attempts = self._status.c.recovery_attempts - 1
        self._delay(workflow, delay_until_epoch_ms=_now() + int(LEFT_SECONDS * 1000), recovery_attempts=attempts)

    def _delay(self, workflow: str, **values: Any) -> None:
        status = self._status
        statement = (
            sa.update(status)
            .where(status.c.workflow_uuid == workflow, status.c.status == "PENDING")
            .values(status="DELAYED", owner_xid=None, started_at_epoch_ms=None, **values)
        )
        while True:
            try:
                self.database.run_blocking(lambda connection: connection.execute(statement), patience=0)
            except DatabaseUnavailable:
                if not self._stopping.wait(RETRY_SECONDS):
                    continue
                # What a worker has when it ends is handed back, by itself or by the reaper of another worker.
            return


_serving: Engine | None = None
"""The engine that serves in this process."""


async def _run_workflow(job_id: str, number: int) -> None:
    if _serving is None:
        raise asyncio.CancelledError
    await _serving.run_here(job_id, number)


@cache
def _register_workflow() -> None:
    DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=ATTEMPTS)(_run_workflow)


def _prepare_dbos() -> None:
    """Change what DBOS has no setting for, in the whole process; a test holds that it is there."""
    pickles: Any = DefaultSerializer
    pickles.deserialize = _refuse_pickle
    dbos._workflow_commands._BACKGROUND_JOBS_INTERVAL_SEC = DELAY_SECONDS  # noqa: SLF001  # a second by default
    # On PostgreSQL one process at a time looks, in a transaction that stays open between two looks. As long as it does, no
    # old version of any row may go, and each round leaves several. So each process looks, as DBOS has it elsewhere.
    PostgresSystemDatabase.background_job_lock = SystemDatabase.background_job_lock  # type: ignore[method-assign]
    dbos._scheduler._STARTUP_FAST_POLL_DURATION_SEC = 0  # noqa: SLF001  # of schedules of its own, which we have not


def _refuse_pickle(_serializer: Any, _text: str) -> Any:
    raise TypeError("the row is a pickle; such rows are refused")


def _lanes(queue: str) -> tuple[str, str]:
    return queue, f"{queue}/partitions"


def _lane(job: DurableJob) -> str:
    return _lanes(job.queue)[bool(job.partition)]


def _now() -> int:
    return int(time.time() * 1000)


def _describe_status(database: Database) -> sa.TableClause:
    columns: list[sa.ColumnClause[Any]] = [sa.column(name, sa.Text) for name in _TEXTS.split()]
    columns += [sa.column(name, sa.BigInteger) for name in _NUMBERS.split()]
    return sa.table(_STATUS, *columns, schema=None if database.is_sqlite else "dbos")

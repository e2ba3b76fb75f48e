"""The engine for fleets: Temporal decides which worker runs which segment.

A job is a workflow, and each of its segments is an activity. The row of a due segment is an outbox. It is written in
the job's transaction, by processes that do not use Temporal. Every worker sweeps the due rows, and signals the workflow
of the job. The signal starts the workflow if it does not run. A lost signal is sent again, even if the process that
should send it died after the commit, or the server lost its state.

Temporal offers a segment, but the lease of its row decides. An activity starts only if it takes the lease, as in the
embedded engine. So a segment runs once, even if Temporal loses contact with the process that runs it.

The server must be durable. Each database needs a namespace of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from temporalio import activity, workflow
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import (
    Priority,
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from callboard.configuration.jobs import QueueSettings, TemporalSettings
from callboard.errors import CallerError
from callboard.jobs import engine, lease
from callboard.jobs.claim import LeftToOthers
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.engine import DatabaseEngine, RunSegment, is_segment
from callboard.jobs.job import END_STATES
from callboard.jobs.tables import jobs, lock_claims, segments

SENDING_SECONDS: Final = 8
"""Seconds until another worker signals a segment whose signal was not confirmed."""
WAITING_SECONDS: Final = 300
"""Seconds until an unclaimed segment is signalled again, because the server may have lost the first signal."""
AT_ONCE: Final = 100
"""Maximum segments that one sweep signals."""
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
END_SECONDS: Final = 5
"""Seconds that a worker waits at shutdown for a server that does not answer."""
RETRY_PAUSE: Final = timedelta(seconds=1)
"""Pause before Temporal offers a segment again if its worker died or another worker still has it."""
OPEN_FOR: Final = timedelta(days=1)
"""Time that the workflow of a waiting job stays open. After that, a signal starts it again."""
LONGEST_SEGMENT: Final = timedelta(days=30)
WORKFLOW: Final = "callboard-job"
ACTIVITY: Final = "callboard-segment"

STATE: Final = SearchAttributeKey.for_keyword("CallboardState")
AGENT: Final = SearchAttributeKey.for_keyword("CallboardAgent")
_HINT: Final = (
    f"temporal operator search-attribute create --name {STATE.name} --type Keyword --name {AGENT.name} --type Keyword"
)

_log = logging.getLogger("callboard.jobs")


@workflow.defn(name=WORKFLOW)
class JobWorkflow:
    """Runs the signalled segments of a job, one after another."""

    def __init__(self) -> None:
        self._due: list[int] = []

    @workflow.signal(name="due")
    def add(self, segment: int) -> None:
        """Add a due segment."""
        if segment not in self._due:
            self._due.append(segment)

    @workflow.run
    async def run(self, job: str, heartbeat: float, has_attributes: bool, due: list[int]) -> None:
        """Run due segments until the job has ended, or nothing was due for `OPEN_FOR`."""
        self._due = [*due, *[each for each in self._due if each not in due]]
        while not workflow.info().is_continue_as_new_suggested():
            try:
                await workflow.wait_condition(lambda: bool(self._due), timeout=OPEN_FOR)
            except TimeoutError:
                return
            if has_attributes:
                workflow.upsert_search_attributes([STATE.value_set("running")])
            state: str = await workflow.execute_activity(
                ACTIVITY,
                args=[job, self._due[0]],
                result_type=str,
                start_to_close_timeout=LONGEST_SEGMENT,
                heartbeat_timeout=timedelta(seconds=heartbeat),
                retry_policy=RetryPolicy(initial_interval=RETRY_PAUSE, backoff_coefficient=1.0),
            )
            del self._due[0]
            if has_attributes:
                workflow.upsert_search_attributes([STATE.value_set(state)])
            if not self._due and (state in END_STATES or not state):
                return
        workflow.continue_as_new(args=[job, heartbeat, has_attributes, self._due])


class TemporalEngine(DatabaseEngine):
    """The engine of a database whose workers share a namespace of Temporal; see `Engine`."""

    def __init__(self, database: Database, settings: TemporalSettings) -> None:
        super().__init__(database)
        self._settings = settings
        self._running: set[tuple[str, int]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def serve(
        self,
        run_segment: RunSegment,
        *,
        queues: Mapping[str, QueueSettings],
        concurrency: int,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self._run_segment, self._queues = run_segment, queues
        self._places = asyncio.Semaphore(concurrency)
        self._client = await connect(self._settings)
        self._has_attributes = await has_search_attributes(self._client)
        on_loss = on_loss or lease.end_process
        self._open(on_loss)
        workers = [self._make_worker(name, each, concurrency) for name, each in queues.items()]
        self._workers = [self._loop.create_task(_run_worker(each, on_loss)) for each in workers]
        self._stops = [each.shutdown for each in workers]
        self._sweeping = self._loop.create_task(self._sweep_always())

    async def stop_taking(self) -> None:
        self._is_closed = True
        if self._sweeping is not None:
            self._bell.set()
            self._stopping = [self._loop.create_task(stop()) for stop in self._stops]
            await asyncio.wait([self._sweeping])
            self._sweeping, self._stops = None, []

    async def hand_back(self) -> None:
        await self.stop_taking()
        if self._workers:
            await asyncio.wait(self._workers, timeout=END_SECONDS)
        await super().hand_back()

    def _make_worker(self, queue: str, settings: QueueSettings, concurrency: int) -> Worker:
        starts = settings.starts_per_minute
        return Worker(
            self._client,
            task_queue=queue,
            identity=self.executor,
            build_id="callboard",
            workflows=[JobWorkflow],
            activities=[self._run_activity],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=0,  # a workflow is not bound to a process that may be dead
            max_concurrent_activities=min(settings.concurrency or concurrency, concurrency),
            max_task_queue_activities_per_second=starts / 60 if starts else None,
            max_heartbeat_throttle_interval=timedelta(seconds=lease.LEASE_SECONDS / 4),
            graceful_shutdown_timeout=LONGEST_SEGMENT,
            disable_eager_activity_execution=True,
        )

    @activity.defn(name=ACTIVITY)
    async def _run_activity(self, job: str, segment: int) -> str:
        """Run a segment and return the state of its job."""
        running = asyncio.create_task(self._run(job, segment))
        while not running.done():
            activity.heartbeat()
            with suppress(asyncio.CancelledError):  # Temporal lost sight of this process; the lease decides
                await asyncio.wait([running], timeout=lease.LEASE_SECONDS / 4)
        if running.cancelled():
            raise _refuse("it was handed back")
        return running.result()

    async def _run(self, job: str, segment: int) -> str:
        async with self._places:
            if self._is_closed:
                raise asyncio.CancelledError
            if (job, segment) in self._running:
                raise _refuse("it runs here")
            self._running.add((job, segment))
            try:
                is_claimed = await self.database.run(partial(self._claim, job, segment))
                if self._is_closed:
                    raise asyncio.CancelledError
                if is_claimed:
                    await self._run_claimed(job, segment)
            finally:
                self._running.discard((job, segment))
                self._bell.set()
        state = sa.select(jobs.c.state).where(jobs.c.id == job)
        return await self.database.read(lambda connection: connection.scalar(state)) or ""

    async def _run_claimed(self, job: str, segment: int) -> None:
        mine = (*is_segment(job, segment), segments.c.executor == self.executor)
        try:
            await self._run_segment(job, segment)
        except Exception as error:  # noqa: BLE001  # a segment that could not write why it ended has not ended
            level = logging.INFO if isinstance(error, LeftToOthers) else logging.WARNING
            _log.log(level, "segment %d of job %s begins again later: %s", segment, job, error)
            await self.database.run(lambda connection: connection.execute(self._wait(WAITING_SECONDS).where(*mine)))
            raise _refuse(str(error), timedelta(seconds=engine.PAUSE_SECONDS)) from None
        await self.database.run(lambda connection: connection.execute(sa.delete(segments).where(*mine)))

    def _claim(self, job: str, segment: int, connection: Connection) -> bool:
        """Take the lease of a segment. Return False if it has ended or never was due. Raises ApplicationError."""
        lock_claims(connection)
        its = is_segment(job, segment)
        if connection.execute(sa.select(segments.c.job).where(*its)).first() is None:
            return False
        due, busy = segments.c, segments.alias().c
        is_free = due.executor.is_(None) | (due.lease_until < self._now) | (due.executor == self.executor)
        runs = busy.executor.is_not(None) & (busy.lease_until >= self._now) & (busy.job != job)
        same = (busy.queue == due.queue) & (busy.partition == due.partition)
        is_alone = (due.partition == "") | ~sa.exists().where(same, runs)
        held = {"executor": self.executor, "lease_until": self._now + int(lease.LEASE_SECONDS * 1000)}
        if connection.execute(sa.update(segments).where(*its, is_free, is_alone).values(held)).rowcount != 1:
            raise _refuse("another worker has it, or another job of its partition runs")
        return True

    async def _sweep_always(self) -> None:
        while not self._is_closed:
            self._bell.clear()
            count = 0
            with suppress(DatabaseUnavailable):
                count = await self._sweep()
            if not count:
                await self._bell.wait()

    async def _sweep(self) -> int:
        """Signal the due segments that no worker has claimed. Return how many signals arrived."""
        if not await self.database.read(lambda connection: self._find_due(connection, 1)):
            return 0
        rows: dict[tuple[str, int], Any] = {}
        await self.database.run(partial(self._take, rows))
        errors = await asyncio.gather(*[self._signal(each) for each in rows.values()])
        sent = [key for key, error in zip(rows, errors, strict=True) if not error]
        its = sa.tuple_(segments.c.job, segments.c.segment).in_(sent)
        statement = self._wait(WAITING_SECONDS).where(its, segments.c.executor.is_(None))
        await self.database.run(lambda connection: connection.execute(statement))
        if len(sent) < len(rows):
            _log.warning("%d segments wait for Temporal: %s", len(rows) - len(sent), max(errors))
        return len(sent)

    def _find_due(self, connection: Connection, limit: int) -> list[Any]:
        """Return the rows to signal, with the kind and the directory of their jobs."""
        due, busy = segments.c, segments.alias().c
        is_free = due.lease_until.is_(None) & (due.due_at <= self._now) | (due.lease_until < self._now)
        same = (busy.queue == due.queue) & (busy.partition == due.partition)
        is_alone = (due.partition == "") | ~sa.exists().where(same, busy.lease_until >= self._now)
        query = sa.select(segments, jobs.c.kind, jobs.c.directory).outerjoin(jobs, jobs.c.id == due.job)
        query = query.where(due.queue.in_([*self._queues]), is_free, is_alone)
        return [*connection.execute(query.order_by(due.priority, due.due_at, due.job).limit(limit))]

    def _take(self, taken: dict[tuple[str, int], Any], connection: Connection) -> None:
        """Add the due rows to `taken`. Keep the rows of an earlier attempt, because it may have committed."""
        lock_claims(connection)
        partitions = set()
        for row in self._find_due(connection, AT_ONCE):
            if row.partition and (row.queue, row.partition) in partitions:
                continue
            partitions.add((row.queue, row.partition))
            connection.execute(self._wait(SENDING_SECONDS).where(*is_segment(row.job, row.segment)))
            taken[row.job, row.segment] = row

    def _wait(self, seconds: int) -> sa.Update:
        """Return the update that delays a segment's next signal by so many seconds."""
        return sa.update(segments).values(executor=None, lease_until=self._now + seconds * 1000)

    async def _signal(self, row: Any) -> str:
        """Signal a segment. Return the reason for a failure, or ""."""
        agent = row.queue.partition("agent:")[2] or row.kind or ""
        pairs = [SearchAttributePair(STATE, "pending"), SearchAttributePair(AGENT, agent)]
        signal = self._client.start_workflow(
            WORKFLOW,
            args=[row.job, lease.LEASE_SECONDS, self._has_attributes, []],
            id=f"callboard-{row.job}",
            task_queue=row.queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal="due",
            start_signal_args=[row.segment],
            search_attributes=TypedSearchAttributes(pairs if self._has_attributes else []),
            priority=Priority(
                priority_key=min(max(3 + row.priority, 1), 5),
                fairness_key=(row.directory or "").encode()[-64:].decode(errors="ignore"),
            ),
            rpc_timeout=CONNECT_TIMEOUT,
        )
        try:
            await signal
        except Exception as error:  # noqa: BLE001  # whatever it is, the next sweep signals again
            return str(error) or "it does not answer"
        return ""


async def connect(settings: TemporalSettings) -> Client:
    """Connect to the server of the settings. Raises CallerError if it does not answer, or lacks the namespace."""
    options: dict[str, Any] = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    options |= {"target_host": settings.address} if settings.address else {}
    options |= {"namespace": settings.namespace} if settings.namespace else {}
    place = f"{options['target_host']}, namespace {options.get('namespace', 'default')}"
    try:
        client = await Client.connect(**options, connect_timeout=CONNECT_TIMEOUT)
        question = DescribeNamespaceRequest(namespace=client.namespace)
        await client.workflow_service.describe_namespace(question, timeout=CONNECT_TIMEOUT)
    except (RuntimeError, RPCError) as error:
        problem = str(error) if isinstance(error, RPCError) else "it does not answer"
        hint = 'start it, correct [jobs.temporal] in your callboard.toml, or say engine = "embedded" there'
        raise CallerError(f"the Temporal server cannot be used: {problem}", path=place, hint=hint) from None
    return client


async def has_search_attributes(client: Client) -> bool:
    """Return whether the namespace has the search attributes of jobs."""
    question = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        known = await client.operator_service.list_search_attributes(question, timeout=CONNECT_TIMEOUT)
    except RPCError:  # not everybody may ask
        return False
    has_all = {STATE.name, AGENT.name} <= {*known.custom_attributes}
    if not has_all:
        _log.info("Temporal cannot search for jobs by state and agent; this adds it: %s", _HINT)
    return has_all


def _refuse(why: str, pause: timedelta | None = None) -> ApplicationError:
    """Return the error that makes Temporal offer an activity again."""
    return ApplicationError(why, next_retry_delay=pause, category=ApplicationErrorCategory.BENIGN)


async def _run_worker(worker: Worker, on_loss: Callable[[str], None]) -> None:
    try:
        await worker.run()
    except Exception as error:  # noqa: BLE001  # whatever it is, nothing is taken from here any more
        on_loss(f"Temporal: {error}")

"""Run a job in the process that submits it: its queue is its own, so no other worker takes it.

A cancellation of the caller cancels the job. If the process dies, the job is interrupted, and another process may resume it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from msgspec import structs
from sqlalchemy import update

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.cancellation import finish_despite_cancellation
from callboard.configuration.jobs import QueueSettings
from callboard.jobs.abandoned import end_abandoned
from callboard.jobs.coding_kind import describe_request, host_queue
from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.engine import is_segment
from callboard.jobs.handle import JobHandle
from callboard.jobs.job import DIRECT, DurableJob
from callboard.jobs.kinds import JobKind
from callboard.jobs.segment import SegmentControl, SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.jobs.tables import clock, segments
from callboard.jobs.worker import EmbeddedWorker, Worker


def is_direct(job: DurableJob) -> bool:
    """Return whether the job runs in the process of a command."""
    return job.queue.startswith(DIRECT)


def make_queue() -> str:
    """Return the name of a queue that only this process serves."""
    return f"{DIRECT}{secrets.token_hex(8)}:{host_queue()}"


async def submit_direct(store: DurableStore, request: JobRequest, model: str) -> DurableJob:
    """Add the job of a request that this process is about to run. Raises CallerError, DatabaseUnavailable."""
    template = await describe_request(request, model)
    return await store.create(**structs.asdict(structs.replace(template, queue=make_queue(), partition="")))


async def resume_direct(store: DurableStore, job: DurableJob) -> DurableJob:
    """Resume a direct job in this process. Raises CallerError if it completed, or if another process runs it."""
    await end_abandoned(store, job.id)
    return await store.resume(job.id, is_direct=True)


async def run_direct(store: DurableStore, job: DurableJob, kind: JobKind) -> DurableJob:
    """Run a job that is queued for this process, and return it as it ended.

    A cancellation cancels the job, and is raised when the job has ended.

    Raises:
        CallerError: The kind could not begin the job, which is removed.
        DatabaseUnavailable: The database cannot be written.
    """
    async with serve_direct(store, job, kind) as handle:
        try:
            await handle.result()
        except asyncio.CancelledError:
            await finish_despite_cancellation(handle.cancel_now())
            raise
    return await store.get(job.id)


@asynccontextmanager
async def serve_direct(store: DurableStore, job: DurableJob, kind: JobKind) -> AsyncIterator[DirectHandle]:
    """Run a job of a queue of this process, in a task of its own. Raises DatabaseUnavailable."""
    handle = DirectHandle(store, job.id, kind)
    engine = EmbeddedEngine(store.database)
    queues = {job.queue: QueueSettings()}
    make_worker = partial(Worker, engine, store, handle.run_segment, queues=queues, concurrency=1)
    async with EmbeddedWorker(make_worker) as handle.worker:
        yield handle


class DirectHandle(JobHandle):
    """A job that a worker of this process runs.

    The worker waits until the database can be written again. The person who waits for the result reads the failure.
    """

    worker: EmbeddedWorker

    def __init__(self, store: DurableStore, identifier: str, kind: JobKind) -> None:
        streams = JobStreams()
        super().__init__(store, identifier, streams)
        self._run = SegmentRunner(store, [kind], streams)
        self._is_running = False
        self._failure: DatabaseUnavailable | None = None

    async def run_segment(self, identifier: str, number: int, control: SegmentControl) -> None:
        """Run a segment for the worker."""
        self._is_running, self._failure = True, None
        try:
            await self._run(identifier, number, control)
        except DatabaseUnavailable as error:
            self._failure = error
            raise
        finally:
            self._is_running = False

    async def read(self) -> DurableJob:
        """Return the job as it is now. Raises DatabaseUnavailable if the job cannot continue."""
        if self._failure is not None:
            raise self._failure
        job = await super().read()
        if not (job.has_ended or self._is_running):
            its = is_segment(job.id, job.segment)
            due = update(segments).where(*its).values(due_at=clock(self._store.database.engine.dialect.name))
            await self._store.database.run(lambda connection: connection.execute(due))
        return job

    async def cancel_now(self) -> None:
        """Cancel the job, and wait until it has ended."""
        await self.cancel()
        self.worker.cancel(self.id)
        await self.result()

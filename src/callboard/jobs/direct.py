"""Run a job on this host: in the process that submits it, or in a detached `callboard worker --until-idle`.

A direct job has a queue of its own, so no other worker takes it. A cancellation of the caller cancels the job. If the
process dies, the job is interrupted, and another process may resume it.

Law: a job that is queued while a detached worker ends gets another worker. A detached worker locks a file until its
process has ended. After you queue a job, `start_worker` waits until the job is claimed or the lock is free.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import structs
from sqlalchemy import select, update

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.cancellation import finish_despite_cancellation
from callboard.configuration.jobs import QueueSettings
from callboard.errors import CallerError
from callboard.jobs.coding_kind import describe_request, host_queue
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.engine import is_segment
from callboard.jobs.handle import JobHandle
from callboard.jobs.job import DIRECT, DurableJob, JobKind
from callboard.jobs.segment import SegmentControl, SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.jobs.tables import clock, segments
from callboard.jobs.worker import EmbeddedWorker, Worker

IDLE_SECONDS: Final = 60
"""Seconds that a detached worker waits for another job."""
_ENDING_SECONDS: Final = 2.0


def start_worker(database: Database, queue: str, *, name: str = "coding", directory: str = "/") -> Path | None:
    """Start a process that runs the jobs of a queue and ends when idle, unless a worker of the same name runs.

    Args:
        database: The database of the jobs. For PostgreSQL no worker is started.
        queue: The queue that the worker serves.
        name: The name of the worker, for its files.
        directory: The working directory. No Python module is imported from it.

    Returns:
        The log file of the worker, None if no worker was started.

    Raises:
        CallerError: The directory is gone.
    """
    file = database.engine.url.database
    if not database.is_sqlite or file is None:
        return None
    path = Path(f"{file}-{name}-worker.log")
    lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    command = ["worker", "--queue", queue, "--until-idle", str(IDLE_SECONDS)]
    try:
        if not _take_lock(lock, database, queue):
            return None
        worker = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-P", "-m", "callboard", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            start_new_session=True,
            pass_fds=[lock],
        )
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(worker.pid).encode(), 0)
    except FileNotFoundError as error:
        raise CallerError("the directory of the job is gone", path=directory) from error
    finally:
        os.close(log)
        os.close(lock)
    return path


def _take_lock(lock: int, database: Database, queue: str) -> bool:
    """Lock the file of the worker. Return False if another worker keeps the lock or has claimed the job."""
    its = segments.c
    due = its.executor.is_(None) & (its.due_at <= clock(database.engine.dialect.name))
    query = select(its.job).where(its.queue == queue, due).limit(1)
    end = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True  # noqa: TRY300
        except BlockingIOError:
            is_claimed = database.read_blocking(lambda connection: connection.scalar(query)) is None
            if is_claimed or time.monotonic() > end:
                return False
            time.sleep(0.05)


def is_direct(job: DurableJob) -> bool:
    """Return whether the job runs in the process of a command."""
    return job.queue.startswith(DIRECT)


def make_queue() -> str:
    """Return the name of a queue that only this process serves."""
    return f"{DIRECT}{secrets.token_hex(8)}:{host_queue()}"


async def submit_direct(store: DurableStore, request: JobRequest, model: str) -> DurableJob:
    """Queue the job of a request for this process. Raises CallerError, DatabaseUnavailable."""
    template = await describe_request(request, model)
    return await store.create(**structs.asdict(structs.replace(template, queue=make_queue(), partition="")))


async def resume_direct(store: DurableStore, job: DurableJob) -> DurableJob:
    """Resume a direct job in this process. Raises CallerError if it completed or another process runs it."""
    await store.end_abandoned(job.id)
    return await store.resume(job.id, is_direct=True)


async def run_direct(store: DurableStore, job: DurableJob, kind: JobKind) -> DurableJob:
    """Run a job that is queued for this process, and return the ended job.

    A cancellation cancels the job, and is raised after the job has ended.

    Raises:
        CallerError: The kind could not start the job. The job is removed.
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
    """Run a job of this process's queue in a task. Raises DatabaseUnavailable."""
    handle = DirectHandle(store, job.id, kind)
    engine = EmbeddedEngine(store.database)
    queues = {job.queue: QueueSettings()}
    make_worker = partial(Worker, engine, store, handle.run_segment, queues=queues, concurrency=1)
    async with EmbeddedWorker(make_worker) as handle.worker:
        yield handle


class DirectHandle(JobHandle):
    """A job that a worker of this process runs.

    If the database cannot be written, the worker waits, but `read` raises the failure.
    """

    worker: EmbeddedWorker

    def __init__(self, store: DurableStore, identifier: str, kind: JobKind) -> None:
        streams = JobStreams()
        super().__init__(store, identifier, streams)
        self._run = SegmentRunner(store, [kind], streams)
        self._is_running = False
        self._failure: DatabaseUnavailable | None = None

    async def run_segment(self, identifier: str, number: int, control: SegmentControl) -> None:
        self._is_running, self._failure = True, None
        try:
            await self._run(identifier, number, control)
        except DatabaseUnavailable as error:
            self._failure = error
            raise
        finally:
            self._is_running = False

    async def read(self) -> DurableJob:
        """Return the present job. Raises DatabaseUnavailable if the job cannot continue."""
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

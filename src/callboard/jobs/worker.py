"""The worker runs the segments of some queues in this process, until it is stopped.

It combines the engine, which claims segments, the schedules, which each worker checks, and a check for cancelled jobs
three times a second.

Laws: all segments run on the event loop that entered the worker, one task each. A worker that stops makes no claims,
lets each segment reach a safe point, and hands the rest back at once, before its lease ends.

A process that lost its lease may have been presumed dead, so it must stop its jobs. A dedicated worker process ends. In
a process with other work, such as serving requests, `EmbeddedWorker` cancels the jobs' tasks and their calls instead,
and starts another worker with a new id. Its caller notices neither this nor a database outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Self

from msgspec.structs import replace

from callboard.configuration.jobs import QueueSettings
from callboard.errors import CallboardError
from callboard.jobs.engine import Engine
from callboard.jobs.job import QUEUE, JobKind
from callboard.jobs.limits import JobLimits
from callboard.jobs.schedules import ScheduleStore
from callboard.jobs.segment import OnSegment, SegmentControl, SegmentRunner
from callboard.jobs.services import load_job_settings, make_engine, open_services
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams

RESTART_SECONDS: Final = 1.0
"""Seconds before another worker starts. While the database is away, each start fails."""
CANCEL_SECONDS: Final = 0.3
SCHEDULE_SECONDS: Final = 5.0
"""Seconds between checks for due schedules. A scheduled job starts at most this late."""
GRACE_SECONDS: Final = 10.0
"""Seconds that a segment has to reach a safe point."""
IDLE_SECONDS: Final = 0.1

_log = logging.getLogger("callboard.jobs")


RunControlled = Callable[[str, int, SegmentControl], Coroutine[Any, Any, None]]
"""Runs the segment of a job, by its number, until its outcome is written. If it raises, the segment starts again some
seconds later.
"""


class Worker:
    """Runs segments while it is entered as an asynchronous context manager.

    Args:
        engine: An engine that does not serve yet.
        store: The store of the same database.
        run_segment: Runs a segment.
        queues: The queues to serve, with their settings.
        concurrency: Maximum segments that run here at once.
        on_loss: Called in a thread, with the reason, if the lease is lost; it must abandon the worker. By default the
            process ends there.
    """

    def __init__(
        self,
        engine: Engine,
        store: DurableStore,
        run_segment: RunControlled,
        *,
        queues: Mapping[str, QueueSettings] | None = None,
        concurrency: int = 4,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self._engine = engine
        self._store = store
        self._run_segment = run_segment
        self._queues = dict(queues or {QUEUE: QueueSettings()})
        self._concurrency = concurrency
        self._on_loss = on_loss
        self._stopping = asyncio.Event()
        self._is_abandoned = False
        self._running: dict[str, tuple[asyncio.Task[None], SegmentControl]] = {}
        self._looks: list[asyncio.Task[None]] = []

    @property
    def executor(self) -> str:
        return self._engine.executor

    async def __aenter__(self) -> Self:
        await self._engine.serve(self._run, queues=self._queues, concurrency=self._concurrency, on_loss=self._on_loss)
        self._looks = [asyncio.create_task(look()) for look in (self._look_for_cancelled, self._look_for_due)]
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._end()
        finally:
            await self._engine.hand_back()

    def stop(self) -> None:
        """Let `run` return. Exit the context manager to stop the worker."""
        self._stopping.set()

    def abandon(self) -> None:
        """Cancel all segments at once, because they may already run elsewhere, and let `run` return."""
        self._is_abandoned = True
        self._stopping.set()
        for task, _ in self._running.values():
            task.cancel()

    def cancel(self, job_id: str) -> None:
        """Cancel the segment of a cancelled job, if it runs here."""
        task, control = self._running.get(job_id, (None, None))
        if task is not None and control is not None and not control.cancel_requested:
            control.cancel_requested = True
            task.cancel()

    async def run(self, until_idle: float | None = None) -> None:
        """Wait until `stop` is called, or until nothing was queued or running for some seconds."""
        if until_idle is None:
            await self._stopping.wait()
            return
        loop = asyncio.get_running_loop()
        since = loop.time()
        while not self._stopping.is_set() and loop.time() - since < until_idle:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(IDLE_SECONDS, until_idle))
            if self._running or not await self._engine.is_idle():
                since = loop.time()

    async def _run(self, job_id: str, number: int) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a segment runs in a task")
        if self._is_abandoned:
            raise asyncio.CancelledError
        control = SegmentControl(self.executor)
        if self._stopping.is_set():
            control.stopping.set()
        self._running[job_id] = (task, control)
        try:
            await self._run_segment(job_id, number, control)
        finally:
            if self._running.get(job_id, (None,))[0] is task:
                del self._running[job_id]

    async def _look_for_cancelled(self) -> None:
        while True:
            await asyncio.sleep(CANCEL_SECONDS)
            if self._running:
                with suppress(CallboardError):  # the database is away
                    for job_id in await self._store.find_cancelled(tuple(self._running)):
                        self.cancel(job_id)

    async def _look_for_due(self) -> None:
        schedules = ScheduleStore(self._store.database, self._engine.enqueue)
        while True:
            with suppress(CallboardError):  # as above
                await schedules.submit_due()
            await asyncio.sleep(SCHEDULE_SECONDS)

    async def _end(self) -> None:
        self._stopping.set()
        await self._engine.stop_taking()
        for _, control in self._running.values():
            control.stopping.set()
        if tasks := [task for task, _ in self._running.values()]:
            _, late = await asyncio.wait(tasks, timeout=0 if self._is_abandoned else GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)


class EmbeddedWorker:
    """Runs workers one after another while it is entered. `make_worker` creates a worker with the given `on_loss`."""

    def __init__(self, make_worker: Callable[..., Worker]) -> None:
        self._make_worker = make_worker
        self._worker: Worker | None = None
        self._closing = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Return when the first worker runs. Raises the error that prevents its start."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(begun))
        try:
            await begun
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def cancel(self, job_id: str) -> None:
        if self._worker is not None:
            self._worker.cancel(job_id)

    async def _close(self) -> None:
        self._closing.set()
        if self._worker is not None:
            self._worker.stop()
        if self._running is not None:
            await self._running

    async def _run(self, begun: asyncio.Future[None]) -> None:
        while not self._closing.is_set():
            try:
                await self._run_worker(begun)
            except Exception as error:  # noqa: BLE001  # any failure of the database
                if not begun.done():
                    begun.set_exception(error)
                    return
                _log.warning("no jobs run here for now: %s", str(error).strip().partition("\n")[0])
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RESTART_SECONDS)

    async def _run_worker(self, begun: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()

        def abandon(why: str) -> None:
            _log.warning("the lease was lost, so the jobs that run here are stopped: %s", why)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(worker.abandon)

        worker = self._worker = self._make_worker(on_loss=abandon)
        async with worker:
            if not begun.done():
                begun.set_result(None)
            if not self._closing.is_set():
                await worker.run()


@asynccontextmanager
async def prepare_worker(
    store: DurableStore,
    kinds: Iterable[JobKind],
    queues: Mapping[str, int],
    show: Callable[[str], None],
    *,
    streams: JobStreams | None = None,
    on_segment: OnSegment | None = None,
    concurrency: int = 4,
) -> AsyncIterator[Callable[..., Worker]]:
    """Return a function that makes a worker with the user's settings, and run the worker's services meanwhile.

    `queues` has starts per minute that override the settings, 0 to keep them. `show` shows a failure to the user, in
    one line. Raises CallerError if the settings are wrong.
    """
    settings = await asyncio.to_thread(load_job_settings)
    served = {name: settings.queues.get(name, QueueSettings()) for name in queues}
    for name, starts in queues.items():
        if starts:
            served[name] = replace(served[name], starts_per_minute=starts)
    limits = None
    if settings.models or settings.budget_per_day is not None:
        starts_of_models = {name: each.starts_per_minute for name, each in settings.models.items()}
        limits = JobLimits(store.database, starts_of_models, settings.budget_per_day)
    engine = make_engine(store.database, settings)
    runner = SegmentRunner(store, kinds, streams, limits=limits, on_segment=on_segment)
    async with open_services(store, settings, served, show):
        yield partial(Worker, engine, store, runner, queues=served, concurrency=concurrency)


@asynccontextmanager
async def open_worker(
    store: DurableStore, kinds: Iterable[JobKind], queues: Iterable[str], streams: JobStreams, **options: Any
) -> AsyncIterator[None]:
    """Run the jobs of these queues next to other work, with the options of `prepare_worker`.

    Raises CallerError if the settings are wrong, DatabaseUnavailable if the worker cannot start.
    """
    preparing = prepare_worker(store, kinds, dict.fromkeys(queues, 0), _log.warning, streams=streams, **options)
    async with preparing as make_worker, EmbeddedWorker(make_worker):
        yield

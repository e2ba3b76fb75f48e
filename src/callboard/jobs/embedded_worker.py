"""A worker in a process that has more to do than jobs, such as to serve requests.

A process that lost its lease may have been taken for dead, so it must stop what its jobs do. A worker of its own process
ends that process. Here the rest of the process is to go on: the tasks of the jobs are cancelled instead, with what they
have called, and another worker begins in the place of the first, under a new id.

Law: whoever entered it does not notice that the worker changed, nor that the database was away meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from callboard.jobs.kinds import JobKind
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.jobs.user_settings import job_limits, load_job_settings, make_engine, open_services, queue_settings
from callboard.jobs.worker import Worker

RESTART_SECONDS: Final = 1.0
"""Before another worker begins; while the database is away, each of them fails."""

_log = logging.getLogger("callboard.jobs")


class EmbeddedWorker:
    """Runs workers one after another while it is entered as an asynchronous context manager."""

    def __init__(self, make_worker: Callable[..., Worker]) -> None:
        """Takes what makes a worker out of its `on_loss`."""
        self._make_worker = make_worker
        self._worker: Worker | None = None
        self._closing = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns when the first worker works, and raises what keeps it from that."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(begun))
        try:
            await begun
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

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
            except Exception as error:  # noqa: BLE001  # of the database, in whichever way it fails
                if not begun.done():
                    begun.set_exception(error)
                    return
                _log.warning("no jobs run here for now: %s", str(error).strip().partition("\n")[0])
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RESTART_SECONDS)

    async def _run_worker(self, begun: asyncio.Future[None]) -> None:
        """Work until the lease is lost, or this ends."""
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
async def open_worker(
    store: DurableStore,
    kinds: Iterable[JobKind],
    queues: Collection[str],
    streams: JobStreams,
    **options: Any,
) -> AsyncIterator[None]:
    """Run the jobs of these queues, as the user's settings say; `options` are those of a `Worker`.

    Raises:
        CallerError: The settings are wrong.
        DatabaseUnavailable: The worker cannot begin.
    """
    settings = await asyncio.to_thread(load_job_settings)
    engine = make_engine(store.database, settings)
    served = queue_settings(settings, queues)
    runner = SegmentRunner(store, kinds, streams, limits=job_limits(settings, store.database))
    make_worker = partial(Worker, engine, store, runner, queues=served, **options)
    async with open_services(store, settings, served, _log.warning), EmbeddedWorker(make_worker):
        yield

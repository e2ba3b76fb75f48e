"""The durable jobs of a gateway: its store's database, the engine, and the worker that runs them in this process.

They are opened when a background response is asked for, or when one is left to run from before: a gateway that nobody
asks for one imports nothing of it and has no worker.

Laws: a job that a dead process left is taken over within some seconds, by a restarted gateway or another one on the same
store; a failure of the database is an error of the store, as for other responses; a worker that lost its lease ends, and
the gateway goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from callboard.configuration.jobs import QueueSettings
from callboard.core import Canister, Event
from callboard.errors import CallboardError, CallerError
from callboard.extras import require_extra
from callboard.jobs.streams import JobStreams
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from callboard.jobs.entries import JobEntry
    from callboard.jobs.kinds import JobKind
    from callboard.jobs.store import DurableStore
    from callboard.servers.gateway.response_store import ResponseStore

log = logging.getLogger("callboard.gateway")

KIND: Final = "response"
QUEUE: Final = "callboard-gateway"
"""Served by gateways alone: no other worker has their backends."""
CONCURRENCY: Final = 64
"""Responses that one process makes at once; nearly all of the time they wait for a backend."""
LOOK_SECONDS: Final = 5.0
"""Between two looks for jobs that another process has left."""
CLEAN_SECONDS: Final = 3600.0
"""Between two removals of old jobs."""

SLACK_SECONDS: Final = 60.0
"""By which the clocks of gateways may differ."""

T = TypeVar("T")


class BackgroundJobs:
    """The jobs of one gateway.

    Args:
        settings: Say which database, and how long jobs are kept.
        responses: The store of replies, in the same database; None where there is none.
        make_kind: Makes what runs the jobs. It is called when they are opened.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        responses: ResponseStore | None,
        make_kind: Callable[[DurableStore], JobKind],
    ) -> None:
        self.streams = JobStreams()
        self._settings = settings
        self._responses = responses
        self._make_kind = make_kind
        self._more_kinds: list[JobKind] = []
        self._queues = {QUEUE: QueueSettings()}
        self._resources = AsyncExitStack()
        self._opening: asyncio.Task[DurableStore] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def add_kind(self, kind: JobKind, queues: Iterable[str]) -> None:
        """Run jobs of another kind as well, in the one worker that a process may have. Called before they are opened."""
        self._more_kinds.append(kind)
        self._queues |= {name: QueueSettings() for name in queues}

    @property
    def is_possible(self) -> bool:
        """Whether there is a database, and what is needed to use it."""
        try:
            self.check()
        except HttpError:
            return False
        return True

    def check(self) -> None:
        """Raises an HttpError that says what is missing."""
        if self._responses is None:
            message = (
                "a background response is kept, and this gateway has no store; `--store sqlite:///FILE` gives it one"
            )
            raise HttpError("background_not_supported", message, path="background")
        try:
            require_extra("jobs")
        except CallerError as error:
            message = f"a background response is a durable job, which is not installed here: {error.hint}"
            raise HttpError("background_not_supported", message, path="background") from None

    async def start(self) -> None:
        """Look for jobs that are left to run, from now on."""
        if self._responses is not None and self.is_possible:
            self._tasks.append(asyncio.create_task(self._look(self._responses)))

    async def aclose(self) -> None:
        """Stop making responses; another process, or the next start, goes on with those that have not ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._opening is not None:
            with suppress(Exception):
                await self._opening
        await self._resources.aclose()

    async def open(self) -> DurableStore:
        """The store of jobs, which has a worker in this process from then on. Raises an HttpError."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        try:
            # A client that leaves meanwhile does not stop it.
            return await asyncio.shield(self._opening)
        except CallboardError as error:
            raise _unavailable(error) from None

    async def ask(self, work: Awaitable[T]) -> T:
        """What the store of jobs gives. Raises an HttpError where its database fails, and CallerError as it does."""
        try:
            return await work
        except CallerError:
            raise
        except CallboardError as error:
            raise _unavailable(error) from None

    async def read_events(self, identifier: str) -> list[Event]:
        """The events that were written of a job. Raises an HttpError."""
        store = await self.open()
        return events_of(await self.ask(store.read_entries(identifier)))

    async def _open(self) -> DurableStore:
        from callboard.jobs.database import Database  # noqa: PLC0415  # it imports SQLAlchemy, and the engine DBOS
        from callboard.jobs.embedded_worker import EmbeddedWorker  # noqa: PLC0415  # as above
        from callboard.jobs.engine import Engine  # noqa: PLC0415  # as above
        from callboard.jobs.segment import SegmentRunner  # noqa: PLC0415  # as above
        from callboard.jobs.store import DurableStore  # noqa: PLC0415  # as above
        from callboard.jobs.worker import Worker  # noqa: PLC0415  # as above

        async with AsyncExitStack() as resources:
            database = await asyncio.to_thread(Database.open, self._settings.store)
            resources.push_async_callback(asyncio.to_thread, database.close)
            engine = await asyncio.to_thread(Engine, database)
            resources.push_async_callback(asyncio.to_thread, engine.close)
            store = DurableStore(database, engine.enqueue, count_anew=engine.count_anew)
            runner = SegmentRunner(store, [self._make_kind(store), *self._more_kinds], self.streams)
            make_worker = partial(Worker, engine, store, runner, queues=self._queues, concurrency=CONCURRENCY)
            await resources.enter_async_context(EmbeddedWorker(make_worker))
            self._resources = resources.pop_all()
        if self._responses is not None:
            self._tasks.append(asyncio.create_task(self._clean(store, self._responses)))
        return store

    async def _look(self, responses: ResponseStore) -> None:
        while self._opening is None:
            with suppress(HttpError):  # the database is away, and that was logged
                if await responses.has_unfinished_jobs(QUEUE):
                    await self.open()
            await asyncio.sleep(LOOK_SECONDS)

    async def _clean(self, store: DurableStore, responses: ResponseStore) -> None:
        while True:
            with suppress(CallboardError, HttpError):  # as above
                await clean(store, responses, self._settings.store_age, [each.name for each in self._more_kinds])
            await asyncio.sleep(CLEAN_SECONDS)


async def clean(store: DurableStore, responses: ResponseStore, age: float, more_kinds: Iterable[str] = ()) -> None:
    """Delete the jobs that are older than `age` seconds, and those whose responses the store has deleted.

    A response is saved before its job completes. So a job that completed before the oldest reply was saved has none.
    """
    for kind in (KIND, *more_kinds):
        await store.remove_old(timedelta(seconds=age), kind=kind)
    if (oldest := await responses.oldest_age()) is not None:
        await store.remove_old(timedelta(seconds=oldest + SLACK_SECONDS), kind=KIND, states={"completed"})


def events_of(entries: Iterable[JobEntry]) -> list[Event]:
    """The events among the entries of a job."""
    return [item for each in entries if not isinstance(item := each.item, Canister)]  # type: ignore[misc]


def _unavailable(error: CallboardError) -> HttpError:
    log.error("the store failed: %s", error)
    return HttpError("store_unavailable", "the store of replies does not answer")

"""The runs of a server of AG-UI: its agents, and the worker that runs their jobs in this process.

Law: a job that another process left is taken over, also one of an earlier start of this server.

Follow a job as the events of AG-UI, until it has ended or waits for a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from callboard.agent import Agent
from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.embedded_worker import open_worker
from callboard.jobs.engine import enqueue
from callboard.jobs.handle import follow_events
from callboard.jobs.job import DurableJob, JobSummary
from callboard.jobs.kinds import JobKind
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.servers.agui.agui_kind import AguiKind, agui_queue
from callboard.servers.agui.encoder import AguiEncoder
from callboard.servers.agui.events import AguiEvent
from callboard.servers.agui.run_input import RunInput
from callboard.servers.agui.thread_runs import AguiRun, ThreadRuns
from callboard.servers.gateway.spending import Spending

_FOR_PEOPLE: Final = frozenset({"approval", "question"})
"""What a job waits for longer than a client stays."""


async def follow_job(
    store: DurableStore, streams: JobStreams, encoder: AguiEncoder, job: DurableJob, after: int
) -> AsyncGenerator[list[AguiEvent]]:
    """The events behind entry number `after`, as they are committed, and the pieces before them; nothing now and then.

    `job` is the row as it was before the run, so that what is used is the run's own.
    """
    yield [*encoder.start(), *encoder.feed(job)]
    async with aclosing(follow_events(store, streams, job.id, after)) as looks:
        async for look in looks:
            events = [event for each in look.events for event in encoder.feed(each)]
            if not (look.is_whole and is_at_rest(look.job)):
                yield events
                continue
            if look.job.state == "waiting":
                for each in await store.read_approvals(job.id):
                    if not each.verdict:
                        events += encoder.feed(each)
            yield [*events, *encoder.feed(look.job), *encoder.finish()]
            return


def is_at_rest(job: JobSummary) -> bool:
    """Whether nothing goes on with a job before somebody answers."""
    return job.has_ended or (job.state == "waiting" and job.waits_for in _FOR_PEOPLE)


CONCURRENCY: Final = 32
"""Jobs that one process runs at once; nearly all of the time they wait for a model."""

OpenAgents: TypeAlias = Callable[[], AbstractAsyncContextManager[Mapping[str, Agent[Any]]]]
"""Opens the agents, by their references."""


class OwnJobs:
    """The database of durable jobs, with a worker for the kinds that are added before it is opened."""

    def __init__(self, url: str = "", streams: JobStreams | None = None) -> None:
        """Takes the database, see `Database.open`, and who is told what the jobs say just now."""
        self.streams = streams or JobStreams()
        self._url = url
        self._kinds: list[JobKind] = []
        self._queues: list[str] = []
        self._resources = AsyncExitStack()

    def add_kind(self, kind: JobKind, queues: Iterable[str], /) -> None:
        self._kinds.append(kind)
        self._queues += queues

    async def open(self) -> DurableStore:
        async with AsyncExitStack() as resources:
            database = await asyncio.to_thread(Database.open, self._url)
            resources.push_async_callback(asyncio.to_thread, database.close)
            store = DurableStore(database, enqueue)
            worker = open_worker(store, self._kinds, self._queues, self.streams, concurrency=CONCURRENCY)
            await resources.enter_async_context(worker)
            self._resources = resources.pop_all()
        return store

    async def aclose(self) -> None:
        await self._resources.aclose()


class AguiService:
    """Begins and follows runs while it is entered as an asynchronous context manager.

    Args:
        references: What the agents are called in jobs, the same whichever process serves them, by their names in the
            address. The first is the one that is asked where none is named.
        open_agents: Opens them.
        jobs: Runs the jobs.
        spending: The budgets of a gateway's keys, which hold for the runs too.
    """

    def __init__(
        self,
        references: Mapping[str, str],
        open_agents: OpenAgents,
        jobs: OwnJobs,
        spending: Spending | None = None,
    ) -> None:
        self._references = references
        self._open_agents = open_agents
        self._jobs = jobs
        self._resources = AsyncExitStack()
        self._agents: dict[str, Agent[Any]] = {}
        self._spending = spending
        jobs.add_kind(AguiKind(self._agents, spending), [agui_queue(each) for each in references.values()])

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            self._agents |= await resources.enter_async_context(self._open_agents())
            resources.push_async_callback(self._jobs.aclose)
            self._store = await self._jobs.open()
            self._runs = ThreadRuns(self._store, self._agents)
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    async def begin(self, name: str, owner: str, run_input: RunInput) -> AguiRun:
        """Begin a run of the agent of this name, or of the first one for ""; see `ThreadRuns.begin`.

        Raises an HttpError as well, where a budget is spent.
        """
        reference = self._references.get(name) if name else next(iter(self._references.values()), None)
        if reference is None:
            hint = f"there are {', '.join(self._references)}"
            raise CallerError(f"no agent is called {name[:100]!r}", path="agent", hint=hint)
        if self._spending is not None:
            await self._spending.check(owner)
        return await self._runs.begin(reference, owner, run_input)

    def follow(self, run: AguiRun) -> AsyncGenerator[list[AguiEvent]]:
        """The events of a run, and nothing now and then, so that a client can be told that it goes on."""
        return follow_job(self._store, self._jobs.streams, run.encoder, run.job, run.after)

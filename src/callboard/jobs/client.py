"""Submit jobs of agents and find them again.

On SQLite the process that submits a job also runs the job, so you need no other process. Other workers on the same file
may also run the job. On PostgreSQL, workers run it, on this host or on others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from callboard.agent import Agent
from callboard.agent.arguments import read_history
from callboard.core import Canister, ContentLike, UserCanister, contents
from callboard.errors import CallerError
from callboard.jobs.agent_kind import KIND, AgentInput, AgentKind, load_agent
from callboard.jobs.database import Database
from callboard.jobs.handle import JobHandle
from callboard.jobs.job import agent_queue, normalize_reference
from callboard.jobs.store import DurableStore
from callboard.jobs.streams import JobStreams
from callboard.jobs.worker import open_worker
from callboard.loop import Limits


class JobClient:
    """The jobs of a database, as an asynchronous context manager.

    Args:
        url: The database; see `Database.open`.
        embedded: True if this process runs the jobs of an agent from the first submitted job on. The default is True
            for SQLite.
        streams: Live events of the jobs that run in this process.
    """

    def __init__(self, url: str = "", *, embedded: bool | None = None, streams: JobStreams | None = None) -> None:
        self._url = url
        self._embedded = embedded
        self._open = AsyncExitStack()
        self.streams = streams or JobStreams()
        self._agents: dict[str, Agent[Any]] = {}
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._database = await asyncio.to_thread(Database.open, self._url)
        self._open.push_async_callback(asyncio.to_thread, self._database.close)
        self.store = DurableStore(self._database)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def submit(
        self,
        agent: str,
        prompt: UserCanister | ContentLike,
        *,
        history: Iterable[Canister | Mapping[str, Any]] = (),
        auxdata: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        description: str = "",
        directory: str = "",
        partition: str = "",
        priority: int = 0,
    ) -> JobHandle:
        """Return the job of a run of an agent, after queueing it.

        Args:
            agent: The reference of the agent, as `module:attribute` or `path.py:attribute`. A process that runs jobs of
                the agent imports this reference.
            prompt: A text, one or more contents, or a UserCanister.
            history: The conversation to continue.
            auxdata: JSON values for the tools' Context, added to the agent's auxdata.
            limits: Limits that replace the agent's limits.
            description: Text for lists. The default is the prompt.
            directory: The job's directory, for lists. The default is the current directory.
            partition: Name of a group of jobs. One job of a partition runs at a time.
            priority: The job with the lowest number runs first.

        Raises:
            CallerError: The agent cannot be imported, the prompt is empty, or an argument is not JSON.
            DatabaseUnavailable: The job could not be queued.
        """
        question = prompt if isinstance(prompt, UserCanister) else UserCanister(contents(prompt))
        if not question.content:
            raise CallerError("there is nothing to ask", path="prompt", hint="give a prompt")
        reference = normalize_reference(agent)
        canisters = read_history(history, "")
        served = await self._serve(reference)
        job_input = AgentInput(
            agent=reference,
            prompt=question,
            history_length=len(canisters),
            auxdata=dict(auxdata or {}),
            limits=limits,
        )
        job = await self.store.create(
            KIND,
            description=description or question.text,
            directory=directory or str(Path.cwd()),
            model=served.model.name if served is not None else "",
            input=job_input.to_json(),
            items=canisters,
            queue=agent_queue(reference),
            partition=partition,
            priority=priority,
        )
        return JobHandle(self.store, job.id, self.streams, served)

    async def get(self, identifier: str, agent: str = "") -> JobHandle:
        """Return the job with this id, or whose id begins with it.

        Args:
            identifier: The id.
            agent: The reference of the job's agent, if this process should run the job. A reference in the database is
                never imported.

        Raises:
            CallerError: There is no such job, or the agent cannot be imported.
        """
        job = await self.store.get(identifier)
        served = await self._serve(normalize_reference(agent)) if agent else None
        return JobHandle(self.store, job.id, self.streams, served)

    async def _serve(self, reference: str) -> Agent[Any] | None:
        """Start a worker for the jobs of an agent, and return the agent. Return None if others run the jobs."""
        if not (self._database.is_sqlite if self._embedded is None else self._embedded):
            return None
        async with self._starting:
            if reference not in self._agents:
                agents = {reference: load_agent(reference)}
                worker = open_worker(self.store, [AgentKind(agents)], [agent_queue(reference)], self.streams)
                await self._open.enter_async_context(worker)
                self._agents |= agents
        return self._agents[reference]


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Task[None], asyncio.Future[JobClient]]] = (
    WeakKeyDictionary()
)


async def default_client() -> JobClient:
    """Return the client of the running event loop. `asyncio.run` closes the client when it ends."""
    loop = asyncio.get_running_loop()
    if loop not in _clients or _clients[loop][0].done():
        opened: asyncio.Future[JobClient] = loop.create_future()
        _clients[loop] = (loop.create_task(_keep_open(opened)), opened)
    return await asyncio.shield(_clients[loop][1])


async def _keep_open(opened: asyncio.Future[JobClient]) -> None:
    try:
        async with JobClient() as client:
            opened.set_result(client)
            await asyncio.Event().wait()
    except Exception as error:  # the caller that waits for the client raises it
        if opened.done():
            raise
        opened.set_exception(error)


async def submit(agent: str, prompt: UserCanister | ContentLike, **options: Any) -> JobHandle:
    """Return the job that runs `prompt` by `agent`, with the `options` of `JobClient.submit`."""
    return await (await default_client()).submit(agent, prompt, **options)


async def get(identifier: str, agent: str = "") -> JobHandle:
    """Return the job `identifier` of `agent`, as `JobClient.get` does."""
    return await (await default_client()).get(identifier, agent)

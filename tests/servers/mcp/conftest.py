"""Clients of the SDK in both eras, with a user who answers."""

from __future__ import annotations

import asyncio
import queue
from contextlib import asynccontextmanager

import mcp_types as types
import pytest
from mcp import Client

from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.servers.mcp.agent_job_tools import AGENTS, job_ensemble
from callboard.servers.mcp.agent_jobs import AgentJobs
from callboard.servers.mcp.server import ToolServer

LIMIT = 60  # seconds; against a test that hangs
ERAS = ["legacy", "2026-07-28"]


class User:
    """Answers what the client is asked with `answers`, in their order; `asked` are the messages."""

    def __init__(self, *answers):
        self.asked = []
        self._answers = iter(answers)

    async def __call__(self, _, params):
        self.asked.append(params.message)
        action, content = next(self._answers)
        return types.ElicitResult(action=action, content=content)


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


@pytest.fixture
def talk(era):
    """Makes a client of a server, in this era, for `async with`."""

    @asynccontextmanager
    async def talk(server, **callbacks):
        async with Client(server.protocol, mode=era, **callbacks) as client:
            try:
                yield client
            finally:
                await server.aclose()

    return talk


class Desk:
    """Jobs of agents in a directory, with a worker that does what the test says."""

    def __init__(self, database, directory="/repository"):
        self._queued = queue.SimpleQueue()
        self.store = DurableStore(database, lambda _, job, __: self._queued.put(job))
        self.submitted = []
        self.starts = 0
        self.jobs = AgentJobs(self.store, directory, [*AGENTS], self._submit, self._start_worker)
        self._directory = directory

    async def _submit(self, kind, arguments):
        self.submitted.append((kind, dict(arguments)))
        return await self.store.create(kind, description="do it", directory=self._directory)

    def _start_worker(self):
        self.starts += 1

    async def claim_next(self):
        """The next segment that is queued."""
        job = await asyncio.to_thread(self._queued.get, timeout=LIMIT)
        return await self.store.claim(job.id, job.segment, "worker")

    def serve(self, **options):
        """A server of the agents."""
        return ToolServer([job_ensemble(self.jobs)], **options)


@pytest.fixture
def desk(tmp_path):
    with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
        yield Desk(database)

"""A tool that kills its process: its job is given up where it would be called for ever, and no other job is lost by it."""

# ruff: noqa: T201

import asyncio
import os
from multiprocessing import get_context

import pytest
from tests.jobs.forked import open_engine

from callboard import Agent, tool
from callboard.configuration.jobs import QueueSettings
from callboard.core import ResultCanister, UserCanister
from callboard.jobs.agent_kind import KIND, AgentInput, AgentKind
from callboard.jobs.database import Database
from callboard.jobs.engine import enqueue
from callboard.jobs.lease import LEASE_SECONDS
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import Worker
from callboard.testing import Call, ScriptedModel

QUEUE = "deadly"
STATUS = 7
MOST_WORKERS = 20


@tool
async def change() -> str:
    """Change something, and die of it."""
    os._exit(STATUS)


@tool(idempotent=True)
async def look() -> str:
    """Look at something, and die of it."""
    os._exit(STATUS)


def reply(request):
    """Calls the tool that the prompt names, until there is a result of it."""
    last = request.canisters[-1]
    return "Done." if isinstance(last, ResultCanister) else Call(last.text, {})


agents = {"deadly": Agent(ScriptedModel(iter(lambda: reply, None)), [change, look])}
processes = get_context("forkserver")


async def work(url, address):
    with Database.open(url) as database:
        engine = open_engine(database, address)
        store = DurableStore(database, engine.enqueue)
        runner = SegmentRunner(store, [AgentKind(agents)])
        async with Worker(engine, store, runner, queues={QUEUE: QueueSettings()}, concurrency=1) as worker:
            await worker.run(until_idle=LEASE_SECONDS + 2)


def run(url, address):
    asyncio.run(work(url, address))


@pytest.mark.parametrize(("name", "state", "deaths"), [("look", "interrupted", 6), ("change", "completed", 1)])
def test_a_job_that_kills_its_workers_is_given_up_and_one_that_comes_further_is_not(url, address, name, state, deaths):
    with Database.open(url) as database:
        store = DurableStore(database, enqueue)
        job_input = AgentInput(agent="deadly", prompt=UserCanister(name)).to_json()
        job = asyncio.run(store.create(KIND, input=job_input, queue=QUEUE))
        statuses = []
        while not statuses or statuses[-1]:
            assert len(statuses) < MOST_WORKERS
            process = processes.Process(target=run, args=(url, address))
            process.start()
            process.join()
            statuses.append(process.exitcode)
        job = asyncio.run(store.get(job.id))
    print(f"a tool {name!r} killed {len(statuses) - 1} workers, and its job is {job.state}: {job.reason}")
    assert statuses == [STATUS] * deaths + [0]
    assert (job.state, job.attempts) == (state, deaths + (state == "completed"))

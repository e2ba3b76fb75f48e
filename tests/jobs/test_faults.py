"""Each write of a job fails or kills its process, one by one, and the job still ends normally."""

import asyncio
import os
import signal
from collections import Counter

import pytest
from tests.jobs.forked import processes
from tests.jobs.local_queue import LocalQueue, conversation_of, new_watch

from callboard import Agent, tool
from callboard.core import AssistantCanister, InvocationCanister, ResultCanister
from callboard.jobs.database import Database, DatabaseUnavailable
from callboard.testing import Call, ScriptedModel

ROUNDS = 2
effects = Counter()
requests = Counter()


@tool
async def change(number: int) -> str:
    """Change something."""
    effects[number] += 1
    return f"changed {number}"


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look."""
    effects[number] += 1
    return f"saw {number}"


def reply(request):
    number = sum(isinstance(each, ResultCanister) for each in request.canisters) // 2
    requests[number] += 1
    if number == ROUNDS:
        return "Done."
    return [Call("change", {"number": 2 * number}), Call("look", {"number": 2 * number + 1})]


agent = Agent(ScriptedModel(iter(lambda: reply, None)), [change, look], instructions="Work.")


def fail(_):
    raise DatabaseUnavailable("the database is away")


def kill(_):
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyDatabase(Database):
    """Fails at one write, within its transaction or at its commit."""

    def set_fault(self, number, when, fault):
        self.writes, self.number, self.when, self.fault = 0, number, when, fault

    async def run(self, work):
        self.writes += 1
        if self.writes != self.number:
            return await super().run(work)
        if self.when == "within":
            return await super().run(lambda connection: self.fault(work(connection)))
        return self.fault(await super().run(work))


async def run_segment(database, job):
    queue = LocalQueue(database, {"test:agent": agent})
    await queue.runner(job, 1, new_watch())


def run_process(url, job, *fault):
    with FaultyDatabase.open(url) as database:
        database.set_fault(*fault)
        asyncio.run(run_segment(database, job))


async def check(queue, job, *, lost):
    """Check that the job is complete, and that only calls without a committed result are unknown."""
    row = await queue.store.get(job.id)
    assert (row.state, row.output, row.rounds, row.calls) == ("completed", {"text": "Done."}, ROUNDS + 1, 4)
    canisters = await conversation_of(queue, job)
    assert [type(each) for each in canisters[2:-1]] == ([InvocationCanister] * 2 + [ResultCanister] * 2) * ROUNDS
    assert isinstance(canisters[-1], AssistantCanister)
    results = [each for each in canisters if isinstance(each, ResultCanister)]
    unknown = [each for each in results if each.error is not None]
    assert all(each.text.startswith("Error: interrupted, outcome unknown") for each in unknown)
    assert len(unknown) <= 1
    assert sum(requests.values()) <= ROUNDS + 1 + lost
    assert max(effects[number] for number in (0, 2)) <= 1
    return len(unknown)


@pytest.mark.parametrize("when", ["within", "after"])
async def test_a_job_continues_after_an_error_of_each_write(url, when):
    unknown, number, ended = 0, 0, False
    with FaultyDatabase.open(url) as database:
        while not ended:
            number += 1
            effects.clear(), requests.clear()
            database.set_fault(0, when, fail)
            queue = LocalQueue(database, {"test:agent": agent})
            job = await queue.submit()
            database.set_fault(number, when, fail)
            try:
                await run_segment(database, job.id)
            except DatabaseUnavailable:
                await run_segment(database, job.id)
            else:
                ended = database.writes < number
            unknown += await check(queue, job, lost=1)
    assert number > 6
    assert unknown > 0


@pytest.mark.parametrize("when", ["within", "after"])
def test_a_job_continues_after_a_kill_at_each_write(url, when):
    unknown, number, code = 0, 0, -signal.SIGKILL
    with Database.open(url) as database:
        queue = LocalQueue(database, {"test:agent": agent})
        while code:
            number += 1
            effects.clear(), requests.clear()
            job = asyncio.run(queue.submit())
            process = processes.Process(target=run_process, args=(url, job.id, number, when, kill))
            process.start()
            process.join()
            code = process.exitcode
            assert code in (0, -signal.SIGKILL)
            asyncio.run(run_segment(database, job.id))
            unknown += asyncio.run(check(queue, job, lost=0))
    assert number > 6
    assert unknown > 0

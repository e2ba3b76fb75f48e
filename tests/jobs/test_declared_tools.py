"""A job keeps the tools that its model saw: once per set, for as long as a job refers to them."""

import asyncio

import pytest
from sqlalchemy import select, text, update
from tests.jobs.local_queue import LocalQueue

from callboard import Agent, tool
from callboard.core import AssistantCanister, ToolDeclaration
from callboard.errors import CallerError
from callboard.jobs import declared_tools, tables
from callboard.jobs.database import Database
from callboard.jobs.declared_tools import NOT_STORED, encode_tools, read_tools, store_tools
from callboard.jobs.queries import EntryChange
from callboard.testing import Call, ScriptedModel

LOOK = ToolDeclaration("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})
CHANGE = ToolDeclaration("change", "Change.", {"type": "object"})


async def declare(store, job, *sets):
    """Let a worker declare these sets, one for each reply."""
    claim = await store.claim(job.id, 1, "worker")
    for number, tools in enumerate(sets, 1):
        claim.declare(tools)
        await claim.append([AssistantCanister("done")], rounds=number)
    await claim.end("completed")


def count_sets(database):
    return len(database.read_blocking(lambda connection: connection.execute(select(tables.declarations)).all()))


async def test_a_set_is_stored_once_for_all_rounds_and_jobs(store):
    jobs = [await store.create("agent") for _ in range(2)]
    for job in jobs:
        await declare(store, job, (LOOK,), (LOOK,), (LOOK, CHANGE), (LOOK,))
        sets = await read_tools(store.database, job.id)
        assert [(each.entries, each.tools) for each in sets] == [(0, (LOOK,)), (2, (LOOK, CHANGE)), (3, (LOOK,))]
    assert count_sets(store.database) == 2
    with pytest.raises(CallerError, match="no such job"):
        await read_tools(store.database, "unknown")


async def test_a_set_is_removed_with_its_last_job(store):
    one, two = [await store.create("agent") for _ in range(2)]
    await declare(store, one, (LOOK,), (CHANGE,))
    await declare(store, two, (LOOK,))
    await store.remove(one.id)
    assert count_sets(store.database) == 1
    assert [each.tools for each in await read_tools(store.database, two.id)] == [(LOOK,)]
    await store.remove(two.id)
    assert count_sets(store.database) == 0


async def test_a_fork_has_the_tools_of_its_rounds(store):
    job = await store.create("agent")
    await declare(store, job, (LOOK,), (CHANGE,))
    forks = [await store.fork(job.id, number) for number in (0, 1, 2)]
    forks.append(await store.fork(job.id, 2, change=EntryChange(1, '{"role":"user","content":[]}', 1)))
    await store.remove(job.id)
    found = [[each.tools for each in await read_tools(store.database, fork.id)] for fork in forks]
    assert found == [[(LOOK,)], [(LOOK,), (CHANGE,)], [(LOOK,), (CHANGE,)], [(LOOK,), (CHANGE,)]]


async def test_a_job_that_changes_its_tools_all_the_time_stores_a_bounded_number(store, monkeypatch):
    monkeypatch.setattr(declared_tools, "MAX_CHANGES", 3)
    job = await store.create("agent")
    await declare(store, job, *[(ToolDeclaration(f"tool_{number}"),) for number in range(5)])
    assert [each.tools[0].name for each in await read_tools(store.database, job.id)] == ["tool_0", "tool_1", "tool_2"]


async def test_a_worker_that_takes_over_declares_the_same_set_only_once(store):
    job = await store.create("agent")
    for number in (1, 2):  # the first worker died without another word
        claim = await store.claim(job.id, 1, f"worker {number}")
        claim.declare((LOOK,))
        await claim.append([AssistantCanister("done")], rounds=number)
    assert [(each.entries, each.tools) for each in await read_tools(store.database, job.id)] == [(0, (LOOK,))]


async def test_a_write_whose_acknowledgement_was_lost_stores_a_set_once(store):
    job = await store.create("agent")
    for _ in range(2):
        await store.database.run(lambda connection: store_tools(connection, 1, 0, (LOOK,)))
    assert [each.tools for each in await read_tools(store.database, job.id)] == [(LOOK,)]


async def test_a_set_that_is_removed_and_declared_at_once_stays(store):
    for _ in range(10):
        old, new = [await store.create("agent") for _ in range(2)]
        await declare(store, old, (LOOK,))
        await asyncio.gather(store.remove(old.id), declare(store, new, (LOOK,)))
        assert [each.tools for each in await read_tools(store.database, new.id)] == [(LOOK,)]
        await store.remove(new.id)
    assert count_sets(store.database) == 0


def test_large_tools_are_stored_by_their_names(monkeypatch):
    monkeypatch.setattr(declared_tools, "MAX_BYTES", 200)
    large = ToolDeclaration("large", "x" * 200)
    assert LOOK.description in encode_tools([LOOK, large])
    assert NOT_STORED in encode_tools([LOOK, large])
    assert "xx" not in encode_tools([LOOK, large])


async def test_the_tools_of_an_agent_are_stored_with_its_first_entries(database):
    @tool
    def weather(city: str) -> str:
        """Return the weather."""
        return f"sun in {city}"

    replies = [[Call("weather", {"city": "Rome"})], ["It is sunny."]]
    queue = LocalQueue(database, {"test:agent": Agent(ScriptedModel(replies), [weather])})
    job = await queue.submit("Weather in Rome?")
    await queue.drain()
    (found,) = await read_tools(database, job.id)
    assert (found.entries, [each.name for each in found.tools]) == (0, ["weather"])
    assert found.tools[0].schema["required"] == ["city"]


def test_a_database_of_the_last_version_gets_the_tables(url):
    with Database.open(url) as database:
        for name in ("job_tools", "declarations"):
            database.run_blocking(lambda connection, of=name: connection.execute(text(f"DROP TABLE callboard_{of}")))
        database.run_blocking(lambda connection: connection.execute(update(tables._schema).values(version=5)))
    with Database.open(url) as database:
        assert count_sets(database) == 0

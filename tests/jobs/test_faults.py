"""A fault at each write of ours, one by one: nothing is lost, and nothing is doubled.

One story of a job makes every kind of write. Each test breaks the commit of one of them, before or after the database made
it, and the database is as after the story without a fault.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from types import SimpleNamespace

import psycopg
import pytest

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.job import Approval, DurableJob

BASH, READ, ASK = (InvocationCanister(identifier=name, name=name, arguments={}) for name in ("bash", "read", "ask"))
QUESTION = Approval(call_id="ask", name="ask", arguments={}, digest="d")


def result(name):
    return ResultCanister(f"{name} ran", invocation_id=name)


async def create(world):
    items = [UserCanister("Fix it")]
    world.job = await world.store.create("agent", description="Fix it", items=items, input={"a": 1})


async def claim(world):
    segment = (await world.store.get(world.job.id)).segment
    world.claim = await world.store.claim(world.job.id, segment, "one")


async def append(world):
    items = [AssistantCanister("Let me see"), BASH, READ]
    await world.claim.append(items, rounds=1, usage={"input": 5}, cost=0.25, memory={"tree": "t1"}, phase="look")


async def begin_calls(world):
    await world.claim.begin_calls([BASH, READ])


async def end_call(world):
    await world.claim.end_call(result("read"), calls=1)


async def end_call_and_change(world):
    await world.claim.end_call(result("bash"), calls=2, memory={"tree": "t2"})


async def go_on(world):
    await world.claim.go_on()


async def append_again(world):
    await world.claim.append([ASK], rounds=2)


async def wait(world):
    await world.claim.wait([QUESTION], waits_for="question", reason="it asks")


async def answer(world):
    await world.store.answer(world.job.id, "ask", digest="d", text="yes")


async def end(world):
    await world.claim.end("failed", "no more money", {"text": "half"}, error="402", calls=3)


async def resume(world):
    await world.store.resume(world.job.id)


async def interrupt(world):
    await world.store.interrupt(world.job.id, 4, "too often")


async def fork(world):
    world.fork = await world.store.fork(world.job.id, 1)


async def request_cancel(world):
    await world.store.request_cancel(world.fork.id)


async def retry(world):
    world.again = await world.store.retry(world.job.id)


async def remove(world):
    await world.store.remove(world.fork.id)


STORY = {
    "create": create,
    "claim": claim,
    "append": append,
    "begin_calls": begin_calls,
    "end_call": end_call,
    "end_call_and_change": end_call_and_change,
    "go_on": go_on,
    "claim_the_second_segment": claim,
    "append_again": append_again,
    "wait": wait,
    "answer": answer,
    "claim_the_third_segment": claim,
    "end": end,
    "resume": resume,
    "interrupt": interrupt,
    "fork": fork,
    "request_cancel": request_cancel,
    "retry": retry,
    "remove": remove,
}
OF_THE_CLAIM = {append, begin_calls, end_call, end_call_and_change, go_on, append_again, wait, end}


TABLES = (
    "callboard_jobs",
    "callboard_documents",
    "callboard_entries",
    "callboard_open_calls",
    "callboard_approvals",
    "queue",
)


class Fault:
    """Breaks the next commit of the database: before it is made, or after, when its acknowledgement is lost."""

    def __init__(self, database, monkeypatch):
        self.database = database
        self.next = ""
        self.transient = True
        self._commit = database.engine.dialect.do_commit
        monkeypatch.setattr(database.engine.dialect, "do_commit", self.do_commit)

    def error(self):
        if self.database.is_sqlite:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY if self.transient else sqlite3.SQLITE_FULL
            return error
        return (psycopg.errors.AdminShutdown if self.transient else psycopg.errors.DiskFull)("the server says no")

    def do_commit(self, connection):
        moment, self.next = self.next, ""
        if moment != "before":
            self._commit(connection)
        if moment:
            raise self.error()


@pytest.fixture
def world(store, queue, database, monkeypatch):
    monkeypatch.setattr("callboard.jobs.database.PAUSES", (0,))
    return SimpleNamespace(store=store, queue=queue, database=database, fault=Fault(database, monkeypatch))


async def tell(world, moment="", *, transient=True):
    """Tell the story, with a fault at each of its steps, and what the database holds behind each of them."""
    world.fault.transient = transient
    rows = {}
    for name, step in STORY.items():
        world.fault.next = moment
        if not transient:
            with pytest.raises(DatabaseUnavailable, match="its disk is full"):
                await step(world)
            if step in OF_THE_CLAIM:  # the runner ends, and another takes over
                await claim(world)
        await step(world)
        assert not world.fault.next, f"{name} commits"
        rows[name] = everything(world)
    return rows


def place(row):
    """Where a row stands among those of its table."""
    return str(row["job"] or row.get("id")), row.get("number", 0), row.get("segment", 0)


def everything(world):
    """All rows, without what is of the time, of chance, and of how often it was tried."""

    def read(connection):
        rows = {name: connection.exec_driver_sql(f"SELECT * FROM {name}").all() for name in TABLES}
        return {name.removeprefix("callboard_"): [dict(row._mapping) for row in each] for name, each in rows.items()}

    rows = world.database.run_blocking(read)
    keys = {row.pop("key"): row["id"] for row in rows["jobs"]}
    names = {job.id: name for name, job in vars(world).items() if isinstance(job, DurableJob)}
    for row in [row for each in rows.values() for row in each]:
        row["job"] = keys.get(row.get("job"), row.get("job"))
        for name, value in row.items():
            if name.endswith("_at") or name in {"token", "attempts", "fence"}:
                row[name] = None if value is None else "-"
            elif isinstance(value, str):
                row[name] = re.sub(r"\d{8}-\d{6}-\d{3}-\w{6}", lambda match: names[match[0]], value)
    return {name: sorted(each, key=place) for name, each in rows.items()}


def test_the_story_is_what_it_says(world):
    rows = asyncio.run(tell(world))["remove"]
    assert [(row["id"], row["state"], row["segment"], row["rounds"], row["entries"]) for row in rows["jobs"]] == [
        ("again", "pending", 1, 0, 1),
        ("job", "interrupted", 4, 2, 7),
    ]
    assert [row["line"].partition(",")[0] for row in rows["entries"] if row["job"] == "job"] == [
        '{"role":"user"',
        '{"role":"assistant"',
        '{"role":"invocation"',
        '{"role":"invocation"',
        '{"role":"result"',
        '{"role":"result"',
        '{"role":"invocation"',
    ]
    assert rows["open_calls"] == []
    assert [(row["job"], row["segment"]) for row in rows["queue"]] == [
        ("again", 1),
        ("fork", 1),
        ("job", 1),
        ("job", 2),
        ("job", 3),
        ("job", 4),
    ]


@pytest.mark.parametrize(
    ("moment", "transient"),
    [("before", True), ("after", True), ("before", False)],
    ids=["lost_commits", "unnoticed_commits", "failures"],
)
def test_a_fault_at_a_write_neither_loses_nor_doubles_anything(world, moment, transient):
    """A commit that was lost or not acknowledged is made again; one that failed changed nothing, and can be made later."""
    expected = asyncio.run(tell(world))
    world.database.run_blocking(empty)
    rows = asyncio.run(tell(world, moment, transient=transient))
    for name in STORY:
        assert rows[name] == expected[name], name


def empty(connection):
    for name in TABLES:
        connection.exec_driver_sql(f"DELETE FROM {name}")

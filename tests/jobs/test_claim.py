"""A claim writes the job, and only one claim can."""

from __future__ import annotations

import asyncio

import pytest

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, RoundStarted, UserCanister
from callboard.errors import CallerError
from callboard.jobs.claim import Superseded
from callboard.jobs.job import Approval
from callboard.jobs.store import DurableStore


def call(name):
    return InvocationCanister(identifier=name, name="bash", arguments={"command": name})


def result(name):
    return ResultCanister(f"{name} ran", invocation_id=name)


def commits(database):
    """Count transactions from now on."""
    from sqlalchemy import event

    seen = []
    event.listen(database.engine, "commit", seen.append)
    return seen


async def claimed(store):
    job = await store.create("agent", items=[UserCanister("go")])
    return await store.claim(job.id, 1, "one")


async def test_what_was_written_is_read(store):
    claim = await claimed(store)
    assert (claim.job.state, claim.job.attempts, claim.job.executor) == ("running", 1, "one")
    await claim.append([RoundStarted(1), AssistantCanister("Let me see"), call("a")], rounds=1, phase="look")
    await claim.append([], usage={"input": 7}, cost=0.5, memory={"tree": "t1"}, model="openai:gpt-4o", calls=1)
    job = await store.get(claim.job.id)
    assert job == claim.job
    assert (job.entries, job.rounds, job.phase, job.usage, job.cost, job.calls) == (
        4,
        1,
        "look",
        {"input": 7},
        0.5,
        1,
    )
    assert job.memory == {"tree": "t1"}
    entries = await store.read_entries(job.id)
    assert [(each.number, each.round) for each in entries] == [(1, 0), (2, 1), (3, 1), (4, 1)]
    assert [each.item for each in entries[1:]] == [RoundStarted(1), AssistantCanister("Let me see"), call("a")]
    assert await store.read_entries(job.id, 2) == entries[2:]
    assert await store.read_entries(job.id, 1, 2) == entries[1:3]


async def test_a_call_is_open_from_its_begin_to_its_result(store):
    claim = await claimed(store)
    await claim.append([call("a"), call("b")], rounds=1)
    await claim.begin_calls([call("a"), call("b")])
    await claim.end_call(result("b"), calls=1)
    again = await store.claim(claim.job.id, 1, "two")
    (open_call,) = again.open_calls
    assert (open_call.call_id, open_call.name, open_call.segment, open_call.entries) == ("a", "bash", 1, 3)
    await again.end_call(result("a"), calls=2)
    assert (await store.claim(claim.job.id, 1, "three")).open_calls == ()
    assert [each.item for each in await store.read_entries(claim.job.id, 3)] == [result("b"), result("a")]


WRITES = {
    "append": lambda claim: claim.append([AssistantCanister("late")]),
    "begin_calls": lambda claim: claim.begin_calls([call("a")]),
    "end_call": lambda claim: claim.end_call(result("a")),
    "wait": lambda claim: claim.wait([Approval(call_id="a", name="bash")]),
    "go_on": lambda claim: claim.go_on(),
    "end": lambda claim: claim.end("completed"),
}


@pytest.mark.parametrize("name", WRITES)
async def test_whoever_was_superseded_writes_nothing(store, queue, name):
    old = await claimed(store)
    new = await store.claim(old.job.id, 1, "two")
    before = await store.get(old.job.id)
    for _ in range(2):
        with pytest.raises(Superseded, match="another runner has the job"):
            await WRITES[name](old)
    assert await store.get(old.job.id) == before
    assert (await store.claim(old.job.id, 1, "three")).open_calls == ()
    assert len(await store.read_entries(old.job.id)) == 1
    assert await store.read_approvals(old.job.id) == []
    assert queue.segments(old.job) == {1: 0}
    with pytest.raises(Superseded):
        await new.append([])


@pytest.mark.parametrize("name", ["wait", "go_on", "end"])
async def test_a_segment_ends_once(store, name):
    claim = await claimed(store)
    await WRITES[name](claim)
    for write in WRITES.values():
        with pytest.raises(Superseded, match="has ended its segment"):
            await write(claim)
    assert await store.get(claim.job.id) == claim.job


async def test_the_next_segment_is_queued_when_the_job_continues(store, queue):
    claim = await claimed(store)
    await claim.go_on()
    job = await store.get(claim.job.id)
    assert (job.state, job.segment, queue.segments(job)) == ("pending", 2, {1: 0, 2: 0})
    with pytest.raises(Superseded):
        await store.claim(job.id, 1, "one")
    claim = await store.claim(job.id, 2, "one")
    await claim.wait(waits_for="rate_limit", reason="429", delay=30)
    assert ((await store.get(job.id)).state, queue.segments(job)) == ("waiting", {1: 0, 2: 0, 3: 30})
    claim = await store.claim(job.id, 3, "one")  # the time has come
    assert (claim.job.state, claim.job.waits_for) == ("running", "")
    await claim.end("failed", "no key", error="401", output=None)
    job = await store.get(job.id)
    assert (job.state, job.reason, job.error, len(queue.segments(job))) == ("failed", "no key", "401", 3)


async def test_a_removed_job_is_not_claimed(store):
    job = await store.create("agent")
    await store.request_cancel(job.id)
    await store.remove(job.id)
    with pytest.raises(Superseded, match="the job was removed"):
        await store.claim(job.id, 1, "one")


async def test_a_cancelled_runner_still_claims_to_end_the_job(store):
    claim = await claimed(store)
    await store.request_cancel(claim.job.id)
    again = await store.claim(claim.job.id, 1, "two")
    assert again.job.cancel_requested
    await again.end("cancelled")


async def test_writes_that_come_together_are_committed_together_and_in_order(store, database):
    claim = await claimed(store)
    seen = commits(database)
    names = [f"c{number}" for number in range(8)]
    await asyncio.gather(*[claim.begin_calls([call(name)]) for name in names])
    assert len(seen) <= 2
    await asyncio.gather(*[claim.end_call(result(name)) for name in names])
    assert len(seen) <= 4
    assert [each.item for each in await store.read_entries(claim.job.id, 1)] == [result(name) for name in names]
    assert (await store.claim(claim.job.id, 1, "two")).open_calls == ()


async def test_a_write_whose_waiter_is_cancelled_is_whole(store):
    claim = await claimed(store)
    writing = asyncio.create_task(claim.append([AssistantCanister("a")], rounds=1))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await claim.end("cancelled")
    job = await store.get(claim.job.id)
    assert (job.state, job.rounds, job.entries) == ("cancelled", 1, 2)


async def test_an_invalid_item_is_refused_and_the_claim_continues(store):
    claim = await claimed(store)
    with pytest.raises(TypeError):
        await claim.append([object()])
    with pytest.raises(ValueError, match="running is not an end state"):
        await claim.end("running")
    await claim.append([AssistantCanister("a")])
    assert claim.job.entries == 2


async def test_a_queue_that_fails_leaves_the_job_to_be_claimed_again(database):
    full = []

    def enqueue(*_):
        if full:
            raise CallerError("no queue")

    store = DurableStore(database, enqueue)
    claim = await claimed(store)
    full.append(True)
    with pytest.raises(CallerError, match="no queue"):
        await claim.go_on()
    with pytest.raises(CallerError, match="no queue"):
        await claim.append([])
    again = await store.claim(claim.job.id, 1, "two")
    full.clear()
    await again.go_on()
    assert (await store.get(claim.job.id)).segment == 2

"""A durable job as a worker leaves it, made through a claim: no test of the commands needs a worker."""

import asyncio
from contextlib import contextmanager

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.jobs.database import Database
from callboard.jobs.job import QUEUE, Approval
from callboard.jobs.store import DurableStore

CALL = InvocationCanister(identifier="call_1", name="deploy", arguments={"to": "prod"})
ANOTHER = InvocationCanister(identifier="call_2", name="deploy", arguments={"to": "test"})


def ask(call=CALL, **changes):
    """What a person is asked about a call."""
    fields = {"why": "it is live", "digest": f"d-{call.identifier}", **changes}
    return Approval(call_id=call.identifier, name=call.name, arguments=dict(call.arguments), **fields)


@contextmanager
def store_of_user():
    """The store that the commands open, without a queue."""
    with Database.open() as database:
        yield DurableStore(database)


def hold_lease(database):
    """Let the executor "worker" have all segments, with a lease that does not pass."""
    change = (
        "INSERT OR REPLACE INTO callboard_segments SELECT id, segment, queue, partition, priority, 0, 'worker', 9000000000000"
        " FROM callboard_jobs"
    )
    database.run_blocking(lambda connection: connection.exec_driver_sql(change))


async def begin(store, **fields):
    """A job that was claimed and has made one round with one call."""
    job = await store.create("agent", description="Ship it", items=[UserCanister("Ship it")], **fields)
    claim = await store.claim(job.id, 1, "worker")
    said = [AssistantCanister("On it.\nReally."), CALL]
    await claim.append(said, rounds=1, calls=1, usage={"input": 1200, "output": 34}, phase="work")
    return claim


async def make_waiting(store, *asked):
    claim = await begin(store)
    await claim.wait(asked or [ask()])
    return claim.job


async def make_ended(store, state="completed", *, queue=QUEUE, **fields):
    claim = await begin(store, queue=queue)
    await claim.end_call(ResultCanister("shipped", invocation_id="call_1"))
    await claim.append([AssistantCanister("Done.")], rounds=2)
    await claim.end(state, **fields)
    return claim.job


def make(build, *arguments, **fields):
    """The job that one of these makes in the user's store."""
    with store_of_user() as store:
        return asyncio.run(build(store, *arguments, **fields))


def read(work):
    """What a coroutine of the user's store gives."""
    with store_of_user() as store:
        return asyncio.run(work(store))

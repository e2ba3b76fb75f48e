"""A worker in a process of its own, for tests that kill, stop and cut it off.

Each job has as many rounds as its input says. A round is a call of a tool that is not idempotent: it takes a while, and
notes in a file that it was done. A call that has started and has no result is answered, not made again.
"""

import asyncio
import os
import signal
import time
from datetime import UTC, datetime, timedelta

from tests.jobs.forked import open_engine

from callboard.core import InvocationCanister, ResultCanister
from callboard.jobs import lease
from callboard.jobs.claim import Superseded
from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import Worker


def use_tool(effects, line, seconds):
    """Write a line for a call, in one write."""
    time.sleep(seconds)
    descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


async def run_job(claim, control, effects, seconds):
    """Drive a claimed job to its end, or to a safe point."""
    for call in claim.open_calls:
        await claim.end_call(ResultCanister("outcome unknown", invocation_id=call.call_id), rounds=claim.job.rounds + 1)
    while claim.job.rounds < claim.job.input["rounds"]:
        if control.stopping.is_set():
            await claim.go_on()
            return
        name = f"{claim.job.id}:{claim.job.rounds}"
        await claim.begin_calls([InvocationCanister(identifier=name, name="tool", arguments={})])
        await asyncio.to_thread(use_tool, effects, name, seconds)
        await claim.end_call(ResultCanister("done", invocation_id=name), rounds=claim.job.rounds + 1)
    await claim.end("completed")


async def work(url, effects, seconds, concurrency, address, clock_error, ready):  # noqa: PLR0917  # of `main`
    with Database.open(url) as database:
        engine = open_engine(database, address)
        shift = timedelta(seconds=clock_error)
        store = DurableStore(database, engine.enqueue, clock=lambda: datetime.now(UTC) + shift)

        async def run(job_id, number, control):
            try:
                await run_job(await store.claim(job_id, number, control.executor), control, effects, seconds)
            except Superseded:
                return

        async with Worker(engine, store, run, concurrency=concurrency) as worker:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            ready.send(worker.executor)
            await worker.run()


def main(*arguments):
    """Work until a signal.

    The arguments are the database, the file of effects, seconds of a call, jobs at once, the address of Temporal or "",
    the error of the clock in seconds, and the receiver of the worker's id.
    """
    lease.LEASE_SECONDS = 2  # tests wait less
    asyncio.run(work(*arguments))

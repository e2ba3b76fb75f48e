"""A worker that is killed, and the agent whose jobs it runs: eight rounds of eight calls at once.

Events are appended to a log: each request of the model, each start and end of a call, and the state at each start of a
segment. A line is one write to a file, so it outlives the process.
"""

import asyncio
import os
import random
import signal
import threading
from pathlib import Path

from tests.jobs.forked import open_engine

from callboard import Agent, tool
from callboard.configuration.jobs import QueueSettings
from callboard.core import InvocationCanister, ResultCanister
from callboard.jobs import lease
from callboard.jobs.agent_kind import AgentKind
from callboard.jobs.database import Database
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import Worker
from callboard.testing import Call, ScriptedModel
from callboard.tools import Context

ROUNDS = 8
CALLS = 8
LONGEST = 0.03
"""Seconds that a call takes at most."""
REFERENCE = "tests.jobs.killed_worker:agent"
QUEUE = "killed"

LINES = ROUNDS * CALLS * 2 + ROUNDS + 1
"""What the model and the calls of one job write."""
JITTER = 0.005
"""Seconds at most between the line at which a worker dies and its death."""

log = {"path": Path()}
die_now = threading.Event()


class Countdown:
    """Counts the lines until the worker dies."""

    lines = 0


def write(*words):
    file = os.open(log["path"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)
    if words[0] in {"ask", "begin", "end"}:
        Countdown.lines -= 1
        if Countdown.lines == 0:
            die_now.set()


async def work(key):
    write("begin", key)
    await asyncio.sleep(random.random() * LONGEST)
    write("end", key)
    return f"did {key}"


@tool
async def change(number: int, context: Context) -> str:
    """Change something."""
    return await work(f"{context.call_key} {number}")


@tool(idempotent=True)
async def look(number: int, context: Context) -> str:
    """Look at something."""
    return await work(f"{context.call_key} {number}")


def reply(request):
    results = sum(isinstance(each, ResultCanister) for each in request.canisters)
    round_number = results // CALLS
    write("ask", request.canisters[0].text, round_number)
    if round_number == ROUNDS:
        return "Done."
    return [Call(("change", "look")[at % 2], {"number": CALLS * round_number + at}) for at in range(CALLS)]


agent = Agent(ScriptedModel(iter(lambda: reply, None)), [change, look])


class WatchedKind(AgentKind):
    """Logs the known events at the start of a segment, which must not happen again."""

    async def run(self, segment):
        for each in segment.conversation:
            if isinstance(each, ResultCanister):
                write("known", f"{segment.job.id}:{each.invocation_id}")
        replies = sum(isinstance(each, InvocationCanister) for each in segment.conversation) // CALLS
        write("resume", segment.conversation[0].text if segment.conversation else "new", replies)
        return await super().run(segment)


def serve(url, log_path, lines, seed, address):
    """Run queued segments until none is left. Die after so many lines, 0 for never."""
    log["path"] = Path(log_path)
    lease.LEASE_SECONDS = 1  # tests wait less
    random.seed(seed)
    Countdown.lines = lines
    threading.Thread(target=die, args=(random.random() * JITTER,), daemon=True).start()
    asyncio.run(run_worker(url, address))


def die(seconds):
    die_now.wait()
    threading.Event().wait(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


async def run_worker(url, address):
    with Database.open(url) as database:
        engine = open_engine(database, address)
        store = DurableStore(database, engine.enqueue)
        runner = SegmentRunner(store, [WatchedKind({REFERENCE: agent})])
        async with Worker(engine, store, runner, queues={QUEUE: QueueSettings()}) as worker:
            await worker.run(until_idle=0.5)

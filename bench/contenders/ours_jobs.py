"""Callboard's durable jobs: an agent with a scripted model, and workers in this process or in others.

A job's prompt is JSON and says what the model and the tool do: `rounds`, of which each calls `tool` for `characters`
of text; before the reply of the round `dies_at` the process kills itself, unless the file `marks` is there. There it is
noted when that was, and when the model was asked for the same reply again.

    python -m bench.contenders.ours_jobs URL CONCURRENCY    a worker, until its standard input ends
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from callboard import Agent, Limits, tool
from callboard.configuration.jobs import QueueSettings
from callboard.core import Request, UserCanister
from callboard.jobs.agent_kind import KIND, AgentInput, AgentKind
from callboard.jobs.database import Database
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.job import DurableJob
from callboard.jobs.segment import SegmentControl, SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import Worker
from callboard.testing import Call, ScriptedModel

REFERENCE = "bench.contenders.ours_jobs:agent"
QUEUE = "bench"


@tool
async def change(number: int, characters: int) -> str:
    """Do what must not be done twice.

    Args:
        number: Which.
        characters: How long the answer is.
    """
    return f"{number:04}" * (characters // 4)


@tool(idempotent=True)
async def look(number: int, characters: int) -> str:
    """Do what may be done twice.

    Args:
        number: Which.
        characters: How long the answer is.
    """
    return f"{number:04}" * (characters // 4)


class Clock:
    """What is timed in this process."""

    def __init__(self) -> None:
        self.requests: list[float] = []
        self.done = asyncio.Event()
        self.segment_began = 0.0
        self.began: tuple[float, float] | None = None
        """Of the first segment: the time, and the CPU time of the process."""
        self.ended = (0.0, 0.0)


clock = Clock()


def reply(request: Request) -> Call | str:
    now = time.perf_counter()
    model.requests.clear()
    task = json.loads(request.canisters[0].text)
    # The request after the n-th round has 2n + 1 canisters.
    number = len(request.canisters) // 2
    clock.requests.append(now)
    if number == task["dies_at"]:
        mark(Path(task["marks"]), now - clock.segment_began)
    if number == task["rounds"]:
        clock.done.set()
        return "done"
    return Call(task["tool"], {"number": number, "characters": task["characters"]})


def mark(path: Path, since_segment: float) -> None:
    """Note when this process died, or when and how long after its segment's beginning another went on."""
    died = not path.exists()
    with path.open("a") as file:
        file.write(f"{time.time()} {since_segment}\n")
    if died:
        os.kill(os.getpid(), signal.SIGKILL)


def repeat() -> Any:
    return iter(lambda: reply, None)


model = ScriptedModel(repeat())
agent = Agent(model, [change, look], limits=Limits(rounds=1_000_000, errors=None))


def describe(rounds: int, tool: str = "change", characters: int = 8, dies_at: int = -1, marks: str = "") -> str:
    return json.dumps({"rounds": rounds, "tool": tool, "characters": characters, "dies_at": dies_at, "marks": marks})


async def submit(store: DurableStore, task: str) -> DurableJob:
    job_input = AgentInput(agent=REFERENCE, prompt=UserCanister(task)).to_json()
    return await store.create(KIND, input=job_input, queue=QUEUE)


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[tuple[EmbeddedEngine, DurableStore]]:
    with Database.open(url) as database:
        engine = EmbeddedEngine(database)
        yield engine, DurableStore(database)


def new_worker(engine: EmbeddedEngine, store: DurableStore, concurrency: int) -> Worker:
    runner = SegmentRunner(store, [AgentKind({REFERENCE: agent})])

    async def run(identifier: str, number: int, watch: SegmentControl) -> None:
        clock.segment_began = time.perf_counter()
        clock.began = clock.began or (clock.segment_began, time.process_time())
        await runner(identifier, number, watch)
        clock.ended = (time.perf_counter(), time.process_time())

    return Worker(engine, store, run, queues={QUEUE: QueueSettings()}, concurrency=concurrency)


async def request_moments(url: str, rounds: int, tool: str) -> list[float]:
    """When the model was asked for each reply of a run: of a job in that database, of a bare run where it is ""."""
    clock.requests.clear()
    clock.done = asyncio.Event()  # each run has a loop of its own
    task = describe(rounds, tool)
    if not url:
        await agent.run(task)
        return [*clock.requests]
    async with open_store(url) as (engine, store), new_worker(engine, store, 1):
        await submit(store, task)
        await clock.done.wait()
    return [*clock.requests]


async def work(url: str, concurrency: int) -> None:
    """Work until standard input ends; print how long there was work, and the CPU seconds of it."""
    async with open_store(url) as (engine, store), new_worker(engine, store, concurrency):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    began = clock.began or clock.ended
    print(json.dumps([clock.ended[0] - began[0], clock.ended[1] - began[1]]), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))

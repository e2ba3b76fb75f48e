"""A gateway that has been asked for long is as it was: `make soak`."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from random import Random

import aiohttp

from callboard.core import ReplyStarted, TextPiece
from callboard.testing import FakeBackend, Silence

RUNS = int(os.environ.get("SOAK_RUNS", "100000"))
STREAMS = max(20, RUNS // 100)
AT_ONCE = 50
MEMORY = 16 * 1024 * 1024  # bytes by which a process may be larger: what the allocator keeps
OBJECTS = 3000


def size():
    """Bytes of memory that are this process's, and how many objects are alive."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(gc.get_objects())


def assert_at_the_floor(before, after):
    assert after[1] - before[1] < OBJECTS, f"{after[1] - before[1]} objects more than before"
    assert after[0] - before[0] < MEMORY, f"{(after[0] - before[0]) / 2**20:.1f} MiB more than before"


async def idle(served):
    """Returns when no request is open."""
    while tasks := served.server.server_state.tasks:
        await asyncio.wait(tasks)


def test_fuzzed_requests(serving, fuzz):
    async def ask(served, backend, numbers):
        for number in numbers:
            random = Random(number)
            front = random.choice(fuzz.fronts)
            body = fuzz.body(random, front)
            reply[0] = random.choice(fuzz.replies)
            fuzz.forget(served)
            fuzz.judge(front, await served.post(front, body))
            backend.requests.clear()

    async def scenario():
        async with FakeBackend(lambda _: reply[0]) as backend, serving(backend, failure_threshold=10**9) as served:
            floor = RUNS // 10
            await ask(served, backend, range(floor))
            await idle(served)
            before = size()
            await ask(served, backend, range(floor, RUNS))
            await idle(served)
            assert_at_the_floor(before, size())

    reply = ["Hello"]
    asyncio.run(scenario())


def test_streams_that_are_cancelled(serving):
    """Wherever a client leaves, its reply is cancelled upstream, and nothing of it stays."""
    said = [ReplyStarted(), *[TextPiece("some words ") for _ in range(200)]]

    async def leave(served, random):
        front, body = random.choice(
            (
                ("/responses", {"input": "Hi"}),
                ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
                ("/messages", {"max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}),
            )
        )
        most = random.choice((0, 1, 500, 5000, 20_000))
        async with aiohttp.ClientSession() as client:
            asking = client.post(served.url + front, json={"model": "m", "stream": True, **body})
            if not most:
                task = asyncio.ensure_future(asking.__aenter__())
                for _ in range(random.randrange(1, 20)):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return
            async with asking as answer:
                read = 0
                while read < most:
                    read += len(await answer.content.readany())

    async def storm(served, numbers):
        for at in range(0, len(numbers), AT_ONCE):
            await asyncio.gather(*[leave(served, Random(number)) for number in numbers[at : at + AT_ONCE]])
        await idle(served)

    async def scenario():
        async with FakeBackend(lambda _: Silence(said)) as backend, serving(backend) as served:
            await storm(served, range(STREAMS // 5))
            backend.requests.clear()
            before = size()
            await storm(served, range(STREAMS // 5, STREAMS))
            backend.requests.clear()
            assert_at_the_floor(before, size())
            breaker = served.gateway.backends[0].breaker
            assert breaker.failures == 0

    asyncio.run(scenario())

"""What does a run weigh while it waits for a tool?

usage: python -m bench.parked                 all contenders
       python -m bench.parked CONTENDER       one of them, as JSON

1,000 runs at once, each waiting in its first async tool call: KB of resident memory (RSS) a run over what the
process had before, and CPU milliseconds of a whole run. Best of five processes. smolagents is synchronous: a
run of it is a thread, which is not measured.
"""

import asyncio
import gc
import logging
import time
from pathlib import Path

from bench.contenders import label, load, measure, row, serve

RUNS = 1000
PAGE = 4096
_gate: asyncio.Event
_waiting = 0


async def add(a: int, b: int) -> int:
    """Add two numbers, when it is time.

    Args:
        a: The first.
        b: The second.
    """
    global _waiting  # noqa: PLW0603  # every run's tool is this one
    _waiting += 1
    await _gate.wait()
    return a + b


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE


def alone(name: str) -> tuple[float, float]:
    logging.disable(logging.CRITICAL)
    return asyncio.run(_weigh(name))


async def _weigh(name: str) -> tuple[float, float]:
    global _gate, _waiting  # noqa: PLW0603  # as above
    run = load(name).prepare(add, 1)
    _gate = asyncio.Event()
    _gate.set()
    for _ in range(3):
        await run()
    _gate.clear()
    _waiting = 0
    before, begun = resident(), time.process_time()
    tasks = [asyncio.create_task(run()) for _ in range(RUNS)]
    while _waiting < RUNS:  # noqa: ASYNC110  # an Event would be set by the tool that is weighed
        await asyncio.sleep(0)
    spent = time.process_time() - begun
    weight = (resident() - before) / RUNS / 1024
    begun = time.process_time()
    _gate.set()
    if {*await asyncio.gather(*tasks)} != {"done"}:
        raise AssertionError(name)
    return weight, (spent + time.process_time() - begun) / RUNS * 1e3


def table() -> None:
    print(f"A run that waits in its first tool call, {RUNS:,} at once, best of 5\n")
    print(f"{'':32}{'KB':>10}{'CPU ms':>10}")
    for name in ("callboard", "callboard-chat", "pydantic-ai", "openai-agents"):
        figures = [measure("bench.parked", name) for _ in range(5)]
        print(row(label(name), *map(min, zip(*figures, strict=True)), digits=1), flush=True)


if __name__ == "__main__":
    serve(alone, table)

"""What does a round of model and tool cost, without the model and the tool?

usage: python -m bench.rounds                       all contenders
       python -m bench.rounds CONTENDER ROUNDS      one of them, as JSON

CPU microseconds a round, best of five: scripted models in the process, one async tool. A figure that grows
with the rounds grows with the history.
"""

import asyncio
import logging
import time

from bench.contenders import label, load, measure, row, serve

ROUNDS = (10, 100, 200, 1000)
SKIPPED = {("pydantic-ai", 1000), ("openai-agents", 1000), ("smolagents", 1000)}
"""These take minutes: they grow with the square."""
BATCH = 100
"""Rounds that are measured at once, at least."""


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def alone(name: str, rounds: str) -> float:
    logging.disable(logging.CRITICAL)
    return asyncio.run(_cost(name, int(rounds)))


async def _cost(name: str, rounds: int) -> float:
    run = load(name).prepare(add, rounds)
    runs = max(1, BATCH // rounds)
    spent = []
    if await run() != "done":
        raise AssertionError(name)
    for _ in range(5):
        begun = time.process_time()
        for _ in range(runs):
            await run()
        spent.append(time.process_time() - begun)
    return min(spent) / runs / rounds * 1e6


def table() -> None:
    print("CPU µs a round of model and tool, best of 5\n")
    print(f"{'rounds':32}" + "".join([f"{rounds:>10,}" for rounds in ROUNDS]) + f"{'1,000/10':>10}")
    for name in ("callboard", "callboard-chat", "pydantic-ai", "openai-agents", "smolagents"):
        costs = {
            rounds: None if (name, rounds) in SKIPPED else measure("bench.rounds", name, rounds) for rounds in ROUNDS
        }
        ratio = f"{costs[1000] / costs[10]:>10.2f}" if costs[1000] else ""
        print(row(label(name), *costs.values()) + ratio, flush=True)


if __name__ == "__main__":
    serve(alone, table)

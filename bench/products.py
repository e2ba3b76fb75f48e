"""How often does the embedded model give the right product of two five-digit numbers, through a call?

usage: python -m bench.products [RUNS] [MODEL] [MODE]     10 local:qwen2.5-coder-0.5b and the profile's mode

Each run is a conversation of its own at temperature 0; the factors come from a fixed seed.
"""

import asyncio
import random
import sys
import time

from callboard import Agent, tool
from callboard.core import InvocationCanister
from callboard.providers import open_model


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers exactly.

    :param a: The first factor.
    :param b: The second factor.
    """
    return a * b


async def main(runs: int = 10, name: str = "local:qwen2.5-coder-0.5b", mode: str = "") -> int:
    numbers = random.Random(9177)
    model = open_model(name, mode=mode)
    agent = Agent(model, [multiply])
    right = 0
    for number in range(1, runs + 1):
        a, b = numbers.randint(10_000, 99_999), numbers.randint(10_000, 99_999)
        begun = time.perf_counter()
        result = await agent.run(f"What is {a} times {b}?")
        seconds = time.perf_counter() - begun
        called = any(
            isinstance(each, InvocationCanister) and each.arguments == {"a": a, "b": b} for each in result.canisters
        )
        good = called and str(a * b) in result.text.replace(",", "")
        right += good
        print(f"{number:3}  {'right' if good else 'WRONG'}  {seconds:5.1f} s  {result.text!r}", flush=True)
    await model.aclose()
    print(f"{right} of {runs} right, through a call")
    return 0 if right == runs else 1


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(asyncio.run(main(*map(int, given[:1]), *given[1:])))

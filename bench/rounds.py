"""What does a round of model and tool cost us, without the model and the tool?

usage: python bench/rounds.py

CPU microseconds a round with a scripted model and one async tool, best of five, at 10, 100 and 1,000
rounds: the figure must not grow with the history.
"""

import asyncio
import time

from callboard import Agent, tool
from callboard.testing import Call, ScriptedModel


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def cost(rounds: int) -> float:
    script = [*(Call("add", {"a": number, "b": 1}) for number in range(rounds)), "done"]
    agent = Agent(ScriptedModel(script), [add], max_rounds=rounds + 1)
    begun = time.process_time()
    result = asyncio.run(agent.run("go"))
    spent = time.process_time() - begun
    assert (result.state, result.rounds) == ("completed", rounds + 1)
    return spent / rounds * 1e6


if __name__ == "__main__":
    cost(10)
    for rounds in (10, 100, 1000):
        print(f"{rounds:5} rounds: {min(cost(rounds) for _ in range(5)):6.0f} µs a round")

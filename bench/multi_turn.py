"""Do the right calls of BFCL's tasks of several turns solve them, and wrong calls none?

Every task is played twice on the published simulated APIs: with its right calls, and without the last call of each turn.
Printed for each category: how many tasks each way solves. The first has to be all of them, the second none.
"""

import asyncio
import sys
from pathlib import Path

from callboard.core import InvocationCanister
from callboard.evaluation import Task
from callboard.evaluation.bfcl import MULTI_TURN
from callboard.evaluation.simulation import simulate
from callboard.evaluation.suites import load_suite, pull_multi_turn


async def play(task: Task, folder: Path, *, left_out: int) -> bool:
    """Play the task as a model that makes the right calls, except the last ones of each turn."""
    tools = [*task.tools, *(tool for step in task.steps for tool in step.tools)]
    names = {tool.name: list(tool.schema.get("properties", {})) for tool in tools}
    async with simulate(task, folder) as apis:
        assert apis is not None
        for step in task.steps:
            calls = []
            for each in step.right_calls:
                positional = dict(zip(names[each.name], each.positional, strict=False))
                calls.append(InvocationCanister("", each.name, {**positional, **each.arguments}))
            if made := calls[: len(calls) - left_out]:
                await apis.run(made)
            if not (await apis.end_turn(step)).solved:
                return False
    return True


async def main(tasks: dict[str, list[Task]]) -> bool:
    folder = await pull_multi_turn()
    right = True
    for category, some in tasks.items():
        solved = [sum([await play(task, folder, left_out=n) for task in some]) for n in (0, 1)]
        print(f"{category}: {len(some)} tasks; the right calls solve {solved[0]}, wrong ones {solved[1]}")
        right = right and solved == [len(some), 0]
    return right


if __name__ == "__main__":
    loaded = {category: load_suite("bfcl", [category]) for category in MULTI_TURN}
    sys.exit(not asyncio.run(main(loaded)))

"""Callboard with a scripted model."""

from collections.abc import Awaitable, Callable
from itertools import repeat
from typing import Any

from callboard import Agent, Limits, Tool
from callboard.core import Request
from callboard.schema import compile_schema
from callboard.testing import Call, ScriptedModel
from callboard.wires.common.tool_calls import parse_arguments


def prepare(add: Callable[..., Any], rounds: int) -> Callable[[], Awaitable[Any]]:
    def reply(request: Request) -> Call | str:
        # The request after the n-th round has 2n + 1 canisters.
        number = len(request.canisters) // 2
        return Call("add", {"a": number, "b": 3}) if number < rounds else "done"

    model = ScriptedModel(repeat(reply))
    agent = Agent(model, [add], limits=Limits(rounds=rounds + 1, errors=None))

    async def run() -> Any:
        model.requests.clear()
        return (await agent.run("go")).output

    return run


def validators(function: Callable[..., Any]) -> dict[str, Callable[[str], Any]]:
    tool = Tool(function)
    foreign = compile_schema(tool.schema)
    return {
        "own signature": lambda raw: tool.validate(parse_arguments(raw) or {}),
        "foreign schema": lambda raw: foreign.validate(parse_arguments(raw) or {}),
    }

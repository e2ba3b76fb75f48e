"""pydantic-ai with a Model of its own that does nothing else: its FunctionModel counts tokens of all the history."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tools import Tool
from pydantic_ai.usage import UsageLimits


class Scripted(Model):
    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def system(self) -> str:
        return "scripted"

    async def request(self, messages: Any, *_: Any) -> ModelResponse:
        # The request after the n-th round has 2n + 1 messages.
        number = len(messages) // 2
        if number < self._rounds:
            call = ToolCallPart("add", f'{{"a": {number}, "b": 3}}', tool_call_id=f"call_{number}")
            return ModelResponse(parts=[call], model_name="scripted")
        return ModelResponse(parts=[TextPart("done")], model_name="scripted")


def prepare(add: Callable[..., Any], rounds: int) -> Callable[[], Awaitable[Any]]:
    agent = Agent(Scripted(rounds), tools=[add])

    async def run() -> Any:
        return (await agent.run("go", usage_limits=UsageLimits(request_limit=None))).output

    return run


def validators(function: Callable[..., Any]) -> dict[str, Callable[[str], Any]]:
    return {"pydantic-core": Tool(function).function_schema.validator.validate_json}

"""openai-agents with a Model of its own, its tracing off."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("OPENAI_API_KEY", "none")

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from agents.function_schema import function_schema
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


class Scripted(Model):
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002  # their name
        # The request after the n-th round has 2n + 1 items.
        number = len(input) // 2 if isinstance(input, list) else 0
        said = _call(number) if number < self._rounds else _text("done")
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def prepare(add: Callable[..., Any], rounds: int) -> Callable[[], Awaitable[Any]]:
    agent = Agent(name="bench", model=Scripted(rounds), tools=[function_tool(add)])
    configuration = RunConfig(tracing_disabled=True)

    async def run() -> Any:
        return (await Runner.run(agent, "go", max_turns=rounds + 2, run_config=configuration)).final_output

    return run


def validators(function: Callable[..., Any]) -> dict[str, Callable[[str], Any]]:
    schema = function_schema(function, strict_json_schema=False)

    def validate(raw: str) -> Any:
        return schema.to_call_args(schema.params_pydantic_model(**json.loads(raw)))

    return {"json, pydantic model, to_call_args": validate}


def _call(number: int) -> ResponseFunctionToolCall:
    arguments = f'{{"a": {number}, "b": 3}}'
    return ResponseFunctionToolCall(
        id=f"item_{number}", call_id=f"call_{number}", type="function_call", name="add", arguments=arguments
    )


def _text(text: str) -> ResponseOutputMessage:
    content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(id="message", type="message", role="assistant", status="completed", content=content)

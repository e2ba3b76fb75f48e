"""The Python clients complete a loop through the gateway: the model calls, the client's tool runs, the model answers."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager

import agents
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from tests.servers.gateway.fronts import call_events, reply

from callboard.core import Usage
from callboard.providers.local.download import pull
from callboard.servers.gateway import BackendSettings
from callboard.testing import FakeBackend

QUESTION = "What is 48213 times 9177?"
ARGUMENTS = {"a": 48213, "b": 9177}
PRODUCT = "442450701"
ABOUT = "Multiply two whole numbers."
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ROUNDS = 4


class Tool:
    """A tool that remembers its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, arguments):
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        self.calls.append(arguments)
        return str(arguments["a"] * arguments["b"])


# Each client's loop, as its documentation has it. It gives the last answer.


async def openai_responses(url, model, tool):
    tools = [{"type": "function", "name": "multiply", "description": ABOUT, "parameters": SCHEMA, "strict": True}]
    items = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
        for _ in range(ROUNDS):
            async with client.responses.stream(model=model, input=items, tools=tools, store=False) as stream:
                async for _ in stream:
                    pass
                response = await stream.get_final_response()
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            items += [item.model_dump(exclude={"parsed_arguments"}) for item in response.output]
            items += [
                {"type": "function_call_output", "call_id": call.call_id, "output": tool(call.arguments)}
                for call in calls
            ]
    return ""


async def openai_chat(url, model, tool):
    function = {"name": "multiply", "description": ABOUT, "parameters": SCHEMA, "strict": True}
    messages = [{"role": "user", "content": QUESTION}]
    async with AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
        for _ in range(ROUNDS):
            asking = client.chat.completions.stream(
                model=model, messages=messages, tools=[{"type": "function", "function": function}]
            )
            async with asking as stream:
                async for _ in stream:
                    pass
                message = (await stream.get_final_completion()).choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude={"parsed"}, exclude_none=True))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": tool(call.function.arguments)}
                for call in message.tool_calls
            ]
    return ""


async def anthropic_messages(url, model, tool):
    tools = [{"name": "multiply", "description": ABOUT, "input_schema": SCHEMA}]
    messages = [{"role": "user", "content": QUESTION}]
    async with AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="key", max_retries=0) as client:
        for _ in range(ROUNDS):
            asking = client.messages.stream(model=model, messages=messages, tools=tools, max_tokens=256)
            async with asking as stream:
                message = await stream.get_final_message()
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join([block.text for block in message.content if block.type == "text"])
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": tool(call.input)} for call in calls]
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    return ""


def _agent(client, model, tool, kind):
    async def invoke(_, arguments):
        return tool(arguments)

    function = agents.FunctionTool("multiply", ABOUT, SCHEMA, invoke)
    return agents.Agent("one", instructions="You calculate.", model=kind(model, client), tools=[function])


def openai_agents(kind, *, streamed):
    async def loop(url, model, tool):
        agents.set_tracing_disabled(disabled=True)
        async with AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
            agent = _agent(client, model, tool, kind)
            if not streamed:
                return (await agents.Runner.run(agent, QUESTION, max_turns=ROUNDS)).final_output
            running = agents.Runner.run_streamed(agent, QUESTION, max_turns=ROUNDS)
            async for _ in running.stream_events():
                pass
            return running.final_output

    return loop


LOOPS = {
    "openai, responses": openai_responses,
    "openai, chat": openai_chat,
    "anthropic": anthropic_messages,
    "agents": openai_agents(agents.OpenAIResponsesModel, streamed=False),
    "agents, streamed": openai_agents(agents.OpenAIResponsesModel, streamed=True),
    "agents on chat, streamed": openai_agents(agents.OpenAIChatCompletionsModel, streamed=True),
}


CALL = json.dumps({"name": "multiply", "arguments": ARGUMENTS})
REPLIES = {
    "calls": reply(*call_events("multiply", ARGUMENTS), Usage(input=11, output=7)),
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "fenced": f"I calculate.\n\n```json\n{CALL}\n```",
    "xml": "<function=multiply><parameter=a>48213</parameter><parameter=b>9177</parameter></function>",
}


def looped(name, backend, serving, model):
    async def scenario():
        async with backend() as given, serving(given) as served:
            answer = await LOOPS[name](served.url, model, tool)
            if isinstance(given, FakeBackend):
                given.assert_complete()
            return answer

    tool = Tool()
    answer = asyncio.run(scenario())
    assert tool.calls == [ARGUMENTS]
    assert PRODUCT in re.sub(r"[,. ]", "", answer), answer


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("reply", REPLIES)
def test_a_loop(loop, reply, serving):
    looped(loop, lambda: FakeBackend([REPLIES[reply], f"It is {PRODUCT}."]), serving, "some-model")


def run_on_embedded_model(loop, serving, monkeypatch):
    """It is loaded once in a process, and answers in seconds.

    On one processor: beside other tests llama.cpp's threads would wait for each other, spinning, for four times as long.
    """
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)

    @asynccontextmanager
    async def local():
        await pull("qwen2.5-coder-0.5b")
        yield BackendSettings(local="qwen2.5-coder-0.5b")

    looped(loop, local, serving, "qwen2.5-coder-0.5b")


def test_a_loop_on_the_embedded_model(serving, monkeypatch):
    """The other fronts, whole and streamed, are in tests/clients."""
    run_on_embedded_model("openai, responses", serving, monkeypatch)

"""Seed 000's conversation, in each provider's own words."""

import asyncio

import pytest

from callboard import tool
from callboard.core import InvocationCanister, ResultCanister
from callboard.errors import CallerError, ToolExecutionFailure
from callboard.execution import InvocationsProcessor
from callboard.tools import Ensemble


@tool
def get_weather(location: str) -> dict:
    """Get current weather for location.

    Args:
        location: City and state
    """
    return {"temperature": 62, "conditions": "Partly cloudy", "location": location}


@tool
def fail() -> str:
    """Fails."""
    raise ValueError("no")


ENSEMBLES = [Ensemble("weather", [get_weather, fail])]
SCHEMA = {
    "type": "object",
    "properties": {"location": {"type": "string", "description": "City and state"}},
    "required": ["location"],
    "additionalProperties": False,
}
LOCATION = {"location": "San Francisco, CA"}
OUTPUT = '{"temperature":62,"conditions":"Partly cloudy","location":"San Francisco, CA"}'
# The wire, its tool (seed 000), a message that calls it, and what is sent behind that message.
WIRES = {
    "chat": (
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Get current weather for location.",
                "parameters": SCHEMA,
            },
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_abc123",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"location": "San Francisco, CA"}'},
                }
            ],
        },
        [{"role": "tool", "tool_call_id": "call_abc123", "content": OUTPUT}],
    ),
    "messages": (
        {"name": "get_weather", "description": "Get current weather for location.", "input_schema": SCHEMA},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_abc123", "name": "get_weather", "input": LOCATION}],
        },
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_abc123",
                        "content": [{"type": "text", "text": OUTPUT}],
                    }
                ],
            }
        ],
    ),
    "responses": (
        {
            "type": "function",
            "name": "get_weather",
            "description": "Get current weather for location.",
            "parameters": SCHEMA,
        },
        [
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_abc123",
                "name": "get_weather",
                "arguments": '{"location": "San Francisco, CA"}',
            }
        ],
        [{"type": "function_call_output", "call_id": "call_abc123", "output": OUTPUT}],
    ),
    "gemini": (
        None,
        {
            "role": "model",
            "parts": [{"functionCall": {"id": "call_abc123", "name": "get_weather", "args": LOCATION}}],
        },
        None,
    ),
}


def wires():
    from callboard.wires import WIRES as THERE

    return [name for name in WIRES if name in THERE]


@pytest.mark.parametrize("wire", wires())
def test_the_seed_s_conversation(wire):
    native_tool, message, sent = WIRES[wire]
    processor = InvocationsProcessor(wire)
    tools = processor.prepare_tools(ENSEMBLES)
    if native_tool is not None:
        assert {key: tools[0][key] for key in native_tool} == native_tool
    (invocation,) = processor.normalize_invocations(message)
    assert (invocation.identifier, invocation.name, invocation.arguments) == ("call_abc123", "get_weather", LOCATION)
    results = asyncio.run(processor.execute_invocations([invocation], ENSEMBLES))
    assert [(result.invocation_id, result.text, result.error) for result in results] == [("call_abc123", OUTPUT, None)]
    native = processor.nativize_results(results)
    if sent is not None:
        assert native == sent


def test_an_object_of_the_official_client_is_read():
    from openai.types.chat import ChatCompletionMessage

    message = ChatCompletionMessage.model_validate(WIRES["chat"][1])
    assert [each.name for each in InvocationsProcessor().normalize_invocations(message)] == ["get_weather"]


def test_what_fails_is_a_result_or_raises():
    calls = [InvocationCanister("a", "fail", {}, "{}"), InvocationCanister("b", "nobody", {}, "{}")]
    results = asyncio.run(InvocationsProcessor().execute_invocations(calls, ENSEMBLES))
    assert [result.error.category for result in results] == ["execution", "not_found"]
    with pytest.raises(ToolExecutionFailure):
        asyncio.run(InvocationsProcessor(on_error="fail_fast").execute_invocations(calls[:1], ENSEMBLES))


def test_a_result_of_a_call_that_was_not_seen_is_sent_all_the_same():
    (message,) = InvocationsProcessor().nativize_results([ResultCanister(invocation_id="x", content="6")])
    assert message == {"role": "tool", "tool_call_id": "x", "content": "6"}


def test_a_wire_there_is_not():
    with pytest.raises(CallerError, match="no processor for the wire 'morse'"):
        InvocationsProcessor("morse")

"""Seed 000's conversation, in each provider's own words."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.tables import table

from callboard import tool
from callboard.core import InvocationCanister, ResultCanister
from callboard.errors import CallerError, ProviderError, ToolExecutionFailure
from callboard.execution import InvocationsProcessor
from callboard.tools import Context, Ensemble, Invoker


@tool
def get_weather(location: str) -> dict:
    """Get current weather for location.

    Args:
        location: City and state
    """
    return {"temperature": 62, "conditions": "Partly cloudy", "location": location}


@tool
def fail() -> str:
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


@table("wire", wires())
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


UNREADABLE = [
    ("chat", {"tool_calls": [{}]}, "1 of 1 calls cannot be read; "),
    ("chat", {"choices": [{"message": {"tool_calls": [WIRES["chat"][1]["tool_calls"][0], {}]}}]}, "1 of 2 calls"),
    ("chat", {"tool_calls": "x"}, "the reply is not of this wire: Expected `array | null`, got `str`"),
    ("chat", {"tool_calls": [None]}, "the reply is not of this wire"),
    ("chat", {"choices": []}, "the stream ended before the model said anything; "),
    ("gemini", {"parts": [{"functionCall": {}}]}, "1 of 1 calls cannot be read; "),
    ("gemini", {"parts": [{"functionCall": 5}]}, "the reply is not of this wire"),
    ("messages", {"content": "x"}, "the reply is not of this wire"),
    ("responses", ["x"], "the reply is not of this wire"),
    *[(wire, message, "no message of this wire; ") for wire in WIRES for message in (None, "text", 5, {}, {"a": 1})],
    *[(wire, [], "no message of this wire; ") for wire in WIRES if wire != "responses"],
]


@table(("wire", "message", "said"), UNREADABLE)
def test_a_message_that_cannot_be_read_is_refused(wire, message, said):
    with pytest.raises(CallerError) as caught:
        InvocationsProcessor(wire).normalize_invocations(message)
    assert str(caught.value).startswith(f"{wire}: {said}")


@table("wire", WIRES)
@table("other", WIRES)
def test_a_call_in_the_words_of_another_wire_is_not_lost(wire, other):
    if wire == other:
        return
    with pytest.raises(CallerError, match=f"^{wire}: .*(no message of this wire|is of the wire {other!r})"):
        InvocationsProcessor(wire).normalize_invocations(WIRES[other][1])


@table(
    ("wire", "message"),
    [
        ("chat", {"role": "assistant", "content": "Hi"}),
        ("chat", {"role": "assistant", "content": None, "tool_calls": None}),
        ("messages", {"role": "assistant", "content": []}),
        ("responses", []),
        ("responses", {"type": "message", "content": []}),
        ("gemini", {"role": "model"}),
    ],
)
def test_a_message_without_calls_has_none(wire, message):
    assert InvocationsProcessor(wire).normalize_invocations(message) == []


@table("wire", ["chat", "messages", "responses", "gemini"])
def test_the_error_that_a_provider_answered_with_is_raised(wire):
    with pytest.raises(ProviderError, match="No such model"):
        InvocationsProcessor(wire).normalize_invocations({"type": "error", "error": {"message": "No such model"}})


def test_invocations_and_their_results_say_when_they_were_made():
    begun = datetime.now(UTC)
    processor = InvocationsProcessor("chat")
    (invocation,) = processor.normalize_invocations(WIRES["chat"][1])
    (result,) = asyncio.run(processor.execute_invocations([invocation], ENSEMBLES))
    (unknown,) = asyncio.run(processor.execute_invocations([InvocationCanister("1", "nothing", {})], ENSEMBLES))
    for each in (invocation, result, unknown):
        assert begun <= each.timestamp <= datetime.now(UTC)


def test_tools_get_the_auxdata_and_keep_their_state_from_call_to_call():
    @tool
    def count(context: Context) -> str:
        context.namespace["n"] = context.namespace.get("n", 0) + 1
        return f"{context.auxdata['user']}: {context.namespace['n']}"

    ensembles = [Ensemble("counter", [count])]
    processor = InvocationsProcessor()
    call = InvocationCanister("1", "count", {})
    texts = [
        asyncio.run(processor.execute_invocations([call], ensembles, auxdata={"user": "ada"}))[0].text for _ in range(2)
    ]
    assert texts == ["ada: 1", "ada: 2"]


@table(
    ("options", "said"),
    [
        ({"wire": "claude"}, "no processor for the wire 'claude'; there are chat, messages, responses, gemini"),
        ({"wire": ["chat"]}, "no processor for the wire ['chat']; there are chat"),
        ({"on_error": "failfast"}, "on_error: no 'failfast'; there are fail_fast, feedback"),
        ({"policy": [("*", "deny")]}, "policy: a list is not a Policy; give Policy([...])"),
    ],
)
def test_a_processor_is_not_made_of_what_it_does_not_know(options, said):
    with pytest.raises(CallerError) as caught:
        InvocationsProcessor(**options)
    assert str(caught.value).startswith(said)


@table("auxdata", [[1], "x", 5])
def test_auxdata_is_a_mapping(auxdata):
    with pytest.raises(CallerError, match=r"^auxdata: a \w+ is not a mapping"):
        asyncio.run(InvocationsProcessor().execute_invocations([], ENSEMBLES, auxdata=auxdata))


def test_a_name_that_the_provider_refuses_is_sent_as_another_and_comes_back():
    schema = {"type": "object", "properties": {"user name": {"type": "string"}}, "required": ["user name"]}
    greet = Invoker("greet", lambda _, arguments: f"Hi {arguments['user name']}", schema)
    processor = InvocationsProcessor("messages")
    ensembles = [Ensemble("people", [greet])]
    (declared,) = processor.prepare_tools(ensembles)
    (name,) = declared["input_schema"]["properties"]
    assert (declared["input_schema"]["required"], name[:10]) == ([name], "user_name_")
    message = {"content": [{"type": "tool_use", "id": "a", "name": "greet", "input": {name: "Ann"}}]}
    calls = processor.normalize_invocations(message)
    (result,) = asyncio.run(processor.execute_invocations(calls, ensembles))
    assert result.text == "Hi Ann"


@table(("provider", "wire"), [("openai", "chat"), ("anthropic", "messages")])
def test_a_provider_s_name_is_its_wire(provider, wire):
    _, message, sent = WIRES[wire]
    processor = InvocationsProcessor(provider)
    invocations = processor.normalize_invocations(message)
    results = asyncio.run(processor.execute_invocations(invocations, ENSEMBLES))
    assert processor.nativize_results(results) == sent


def test_calls_without_identifiers_are_numbered_across_the_messages_of_a_conversation():
    call = {"function": {"name": "get_weather", "arguments": '{"location": "Oslo"}'}}
    processor = InvocationsProcessor()
    messages = [{"role": "assistant", "tool_calls": [call, call]}, {"role": "assistant", "tool_calls": [call]}]
    invocations = [call for each in messages for call in processor.normalize_invocations(each)]
    assert len({each.identifier for each in invocations}) == 3
    results = asyncio.run(processor.execute_invocations(invocations, ENSEMBLES))
    assert [each.invocation_id for each in results] == [each.identifier for each in invocations]


def test_two_invocations_of_one_identifier_are_the_caller_s_mistake():
    invocation = InvocationCanister("call_0_0", "get_weather", {"location": "Oslo"})
    with pytest.raises(CallerError, match="one identifier; read all messages of a conversation with one processor"):
        asyncio.run(InvocationsProcessor().execute_invocations([invocation, invocation], ENSEMBLES))

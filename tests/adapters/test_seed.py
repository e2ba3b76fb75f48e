"""Every example of seed 001 does what the seed says of it."""

import asyncio
import dataclasses
import json
from enum import Enum

import pytest
from tests.tables import table

from callboard.adapters import (
    NATIVE_TOOL_MODEL_PATTERNS,
    STRUCTURED_MODEL_PREFIXES,
    NativeToolAdapter,
    OpenAIStructuredAdapter,
    ParsedAdapter,
    ToolCallingAdapter,
    ToolCallingMode,
    ToolCallValidation,
    ValidatedAdapter,
    get_adapter,
)
from callboard.core import ArgumentsPiece, InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted
from callboard.testing import FakeBackend
from callboard.tools import tool

DIRECT_USAGE = '''
from callboard import tool
from callboard.adapters import get_adapter

@tool
def search(query: str) -> str:
    """Search the web."""
    return f"Results for {query}"

tools = [search]
messages = [{"role": "user", "content": "Search for Python docs"}]

adapter = get_adapter("gpt-4o-mini")

# Format request
request_kwargs = adapter.format_request(tools, messages)
response = client.chat.completions.create(
    model="gpt-4o-mini",
    messages=messages,
    **request_kwargs
)

# Extract tool call
payload = adapter.extract_tool_call(response)

# Validate arguments
validation = adapter.validate_tool_call(payload, {t.name: t for t in tools})
if validation.is_valid:
    result = tools[0](**validation.arguments)
else:
    print(f"Validation error: {validation.error_message}")
'''
"""The seed's, but for the two imports."""


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"Results for {query}"


@tool
def search_web(query: str) -> str:
    """Search the web for information"""  # noqa: D415  # as the seed has it
    return query


TOOLS = {"search": search}
CALL = {"tool": "search", "arguments": {"query": "Python docs"}}
RAW = '{"query":"Python docs"}'


def reply(body):
    """A model that does as it is asked."""
    if "tools" in body:
        return [
            ReplyStarted(),
            InvocationStarted(0, "call_abc123", "search"),
            ArgumentsPiece(0, RAW),
            InvocationEnded(0, "call_abc123", "search", json.loads(RAW), RAW),
            ReplyEnded("invocations"),
        ]
    if "response_format" in body:
        assert body["response_format"]["json_schema"]["strict"] is True
        return json.dumps({"action": {"scratchpad": None, **CALL}})
    return f"I search for it.\n\n```json\n{json.dumps(CALL)}\n```"


def with_client(work, reply=reply):
    """Runs `work(client)` in a thread, with the official client of a backend of ours."""
    import openai

    async def scenario():
        async with FakeBackend(reply) as backend:

            def ask():
                with openai.OpenAI(base_url=backend.url, api_key="none", max_retries=0) as client:
                    return work(client)

            done = await asyncio.to_thread(ask)
            return done, [request.body for request in backend.requests]

    return asyncio.run(scenario())


# Philosophy, "Automatic Mode Selection", "Explicit Mode Selection", "Example models".


@table(
    ("model", "adapter"),
    [
        ("gpt-4o-mini", OpenAIStructuredAdapter),
        ("claude-3-5-sonnet", NativeToolAdapter),
        ("llama-3-70b", NativeToolAdapter),
        ("mistral-7b", ValidatedAdapter),
        ("local-model", ValidatedAdapter),
    ],
)
def test_a_name_selects(model, adapter):
    assert type(get_adapter(model)) is adapter
    assert type(get_adapter(model, ToolCallingMode.AUTO)) is adapter


@table(
    ("model", "mode", "adapter"),
    [
        ("gpt-4o", ToolCallingMode.VALIDATED, ValidatedAdapter),
        ("gpt-4o", ToolCallingMode.NATIVE, NativeToolAdapter),
        ("llama-3-70b", ToolCallingMode.VALIDATED, ValidatedAdapter),
        ("local-model", ToolCallingMode.STRUCTURED, OpenAIStructuredAdapter),
        ("gpt-4o", ToolCallingMode.PARSED, ParsedAdapter),
    ],
)
def test_a_mode_overrides(model, mode, adapter):
    assert type(get_adapter(model, mode)) is adapter
    assert type(get_adapter(model, mode.value)) is adapter


STRUCTURED = ["gpt-4o-2024-08-06", "gpt-4o-mini", "gpt-4.1-nano", "o1-mini", "o1", "o3-mini", "openai/gpt-oss-120b"]
NATIVE = [
    "gpt-3.5-turbo",
    "gpt-4-turbo",
    "claude-3-5-sonnet",
    "gemini-2.0-flash",
    "llama-3-70b",
    "qwen2.5-72b",
    "deepseek-chat",
    "mistral-large",
    "openai/gpt-5",
    "anthropic/claude-opus-4",
    "google/gemma-3-27b",
    "meta-llama/llama-4-scout",
    "mistralai/mixtral-8x7b",
]
VALIDATED = ["mistral-7b", "mistral-7b-instruct-v0.3", "local-model", "phi-4"]


@table(
    ("models", "adapter"),
    [(STRUCTURED, OpenAIStructuredAdapter), (NATIVE, NativeToolAdapter), (VALIDATED, ValidatedAdapter)],
)
def test_the_example_models(models, adapter):
    assert {model: type(get_adapter(model)) for model in models} == dict.fromkeys(models, adapter)


def test_the_enum_the_validation_and_the_tables():
    assert issubclass(ToolCallingMode, Enum)
    assert {mode.name: mode.value for mode in ToolCallingMode} == {
        "AUTO": "auto",
        "NATIVE": "native",
        "STRUCTURED": "structured",
        "VALIDATED": "validated",
        "PARSED": "parsed",
    }
    assert [(field.name, field.default) for field in dataclasses.fields(ToolCallValidation)[1:]] == [
        ("error_message", None),
        ("arguments", None),
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ToolCallValidation(is_valid=True).is_valid = False
    assert STRUCTURED_MODEL_PREFIXES == ("gpt-4o", "gpt-4.1", "o1", "o3", "openai/gpt-oss")
    assert NATIVE_TOOL_MODEL_PATTERNS == (
        "gpt-3.5", "gpt-4", "claude", "gemini", "mistral", "llama", "qwen", "deepseek", "openai/", "anthropic/",
        "google/", "meta-llama/", "mistralai/",
    )  # fmt: skip


@table("mode", ["native", "structured", "validated", "parsed"])
def test_every_adapter_is_one(mode):
    assert isinstance(get_adapter("local-model", mode), ToolCallingAdapter)


# "Adapter Implementations".


def test_the_structured_request():
    adapter = OpenAIStructuredAdapter(root="anyOf")
    form = adapter.format_request([search], [])["response_format"]
    assert form["type"] == "json_schema"
    assert {key: form["json_schema"][key] for key in ("name", "strict")} == {"name": "agent_response", "strict": True}
    call, answer, scratchpad = form["json_schema"]["schema"]["anyOf"]
    assert call["type"] == answer["type"] == scratchpad["type"] == "object"
    assert {"tool", "arguments"} <= call["properties"].keys()
    assert call["properties"]["tool"]["enum"] == ["search"]
    assert "answer" in answer["properties"]
    assert scratchpad["properties"] == {"scratchpad": {"type": "string"}}


def test_the_native_request():
    assert NativeToolAdapter().format_request([search_web], []) == {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "search_web",
                    "description": "Search the web for information",
                    "parameters": {
                        "type": "object",
                        "properties": {"query": {"type": "string"}},
                        "required": ["query"],
                        "additionalProperties": False,
                    },
                },
            }
        ]
    }


@table("adapter", [ValidatedAdapter(), ParsedAdapter()])
def test_the_other_requests(adapter):
    assert adapter.format_request([search], [{"role": "user", "content": "Hi"}]) == {}


# "Direct Usage".


def test_direct_usage(capsys):
    namespace, (body,) = with_client(lambda client: run(DIRECT_USAGE, {"client": client}))
    assert namespace["payload"] == CALL
    assert namespace["result"] == "Results for Python docs"
    assert capsys.readouterr().out == ""
    assert body["model"] == "gpt-4o-mini"
    assert body["messages"] == [{"role": "user", "content": "Search for Python docs"}]
    assert body["response_format"]["json_schema"]["name"] == "agent_response"


@pytest.mark.parametrize(
    "said",
    ["It is 5.", "", '{"action": {"scratchpad": null, "answer": "5"}}', '{"action": {"scratchpad": "hm"}}', "[1]"],
)
@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-3-5-sonnet", "local-model"])
def test_direct_usage_says_what_is_valid_where_no_call_comes_back(said, model, capsys):
    source = DIRECT_USAGE.replace("gpt-4o-mini", model)
    namespace, _ = with_client(lambda client: run(source, {"client": client}), lambda _: said)
    assert "result" not in namespace
    printed = capsys.readouterr().out
    assert printed.startswith("Validation error: The reply is ")
    assert "Valid formats: " in printed


@table("mode", list(ToolCallingMode))
def test_every_mode_on_every_example_model(mode):
    models = [*STRUCTURED, *NATIVE, *VALIDATED]

    def ask(client):
        results = {}
        for model in models:
            adapter = get_adapter(model, mode)
            asked = adapter.prepare_messages([search], [{"role": "user", "content": "Search for Python docs"}])
            response = client.chat.completions.create(
                model=model, messages=asked, **adapter.format_request([search], asked)
            )
            payload = adapter.extract_tool_call(response)
            validation = adapter.validate_tool_call(payload, TOOLS)
            results[model] = search(**validation.arguments)
        return results

    results, bodies = with_client(ask)
    assert results == dict.fromkeys(models, "Results for Python docs")
    for body in bodies:
        told = "search" in json.dumps(body["messages"][:-1])
        assert told + ("tools" in body) + ("response_format" in body) == 1


def run(source, namespace):
    exec(source, namespace)
    return namespace


# "Response Payload Structure".

PAYLOADS = [
    {
        "tool": "search_web",
        "arguments": {"query": "Python documentation"},
        "scratchpad": "User wants Python docs, use search tool",
    },
    {
        "answer": "Python documentation is available at docs.python.org",
        "scratchpad": "Directly answering the question",
    },
    {"scratchpad": "Thinking about what to do next..."},
]


@table("payload", PAYLOADS)
@table("mode", ["structured", "validated", "parsed"])
@table("form", ["{}", '{{"action": {}}}'])
def test_payloads_come_as_they_were_written(payload, mode, form):
    text = form.format(json.dumps(payload)) if "action" in form else json.dumps(payload)
    adapter = get_adapter("any", mode)
    assert adapter.extract_tool_call(text) == payload
    assert adapter.extract_tool_call({"choices": [{"message": {"role": "assistant", "content": text}}]}) == payload


def test_native_falls_back_to_the_content():
    message = {"role": "assistant", "content": "It is 5."}
    assert NativeToolAdapter().extract_tool_call({"choices": [{"message": message}]}) == {"answer": "It is 5."}


# "Error Handling".


@table(
    ("arguments", "error"),
    [
        ({"query": 123}, "ArgValidationError: query\n  Input should be a valid string"),
        ({}, "ArgValidationError: query\n  Field required"),
    ],
)
@table("mode", ["native", "structured", "validated"])
def test_validation_errors(arguments, error, mode):
    adapter = get_adapter("any", mode)
    validation = adapter.validate_tool_call({"tool": "search", "arguments": arguments}, TOOLS)
    assert validation == ToolCallValidation(is_valid=False, error_message=error)


def test_parsed_takes_what_is_there():
    validation = ParsedAdapter().validate_tool_call({"tool": "search", "arguments": {"query": 123}}, TOOLS)
    assert validation == ToolCallValidation(is_valid=True, arguments={"query": 123})


def test_the_retry_strategy():
    replies = iter(['{"tool": "search", "arguments": {"query": 123}}', json.dumps(CALL)])
    adapter, messages = get_adapter("local-model"), []
    while True:
        payload = adapter.extract_tool_call(next(replies))
        validation = adapter.validate_tool_call(payload, TOOLS)
        if validation.is_valid:
            break
        messages.append({"role": "user", "content": f"Error: {validation.error_message}. Try again."})
    assert validation.arguments == {"query": "Python docs"}
    assert messages == [
        {
            "role": "user",
            "content": "Error: ArgValidationError: query\n  Input should be a valid string. Try again.",
        }
    ]

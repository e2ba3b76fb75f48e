"""The Responses front as the first proxy had it, row by row, and each weakness of that proxy that is known."""

from __future__ import annotations

import itertools
import json
import logging
import re

import pytest
from tests.servers.gateway.fronts import call_chunk, call_events, chunk, posted, reply

from callboard.core import ReasoningPiece, ReplyStarted, TextPiece, Usage
from callboard.servers.gateway.settings import GatewayLimits
from callboard.testing import Cut, FakeBackend, Raw, StatusReply

LOCATION = {"type": "string", "description": "City and state"}
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
PARAMETERS = {"type": "object", "properties": {"location": LOCATION, "unit": UNIT}, "required": ["location"]}
ABOUT = "Get the current weather in a given location"
FUNCTION = {"name": "get_weather", "description": ABOUT, "parameters": PARAMETERS}
NESTED = {"type": "function", "function": FUNCTION}
FLAT = {"type": "function", **FUNCTION}
PATCH = {
    "type": "function",
    "name": "apply_patch",
    "parameters": {"type": "object", "properties": {"patch": {"type": "string"}}, "required": ["patch"]},
}
READ = {
    "type": "function",
    "name": "read_file",
    "parameters": {"type": "object", "properties": {"file_path": {"type": "string"}, "limit": {"type": "integer"}}},
}
HI = {"model": "gpt-4o-mini", "input": "Hi"}


async def exchange(serving, replies, bodies, headers=None, **settings):
    """The answers to these bodies, and what the backend was asked."""
    async with FakeBackend(replies) as backend, serving(backend, **settings) as served:
        answers = [await served.post("responses", body, headers) for body in bodies]
        return answers, posted(backend)


async def stream_reply(serving, said, headers=None, chunk_size=None, **fields):
    """The answer to one request that is streamed unless it says otherwise."""
    async with (
        FakeBackend([said], chunk_size=chunk_size) as backend,
        serving(backend, failure_threshold=99) as served,
    ):
        return await served.post("responses", {**HI, "stream": True, **fields}, headers)


async def upstream_request(serving, **fields):
    """What the backend is asked, at first where it does not call as it is asked to."""
    (answer,), (body, *_) = await exchange(serving, lambda _: "Hello", [{**HI, **fields}])
    assert answer.status == 200, answer
    return body


def weather_call(index, location):
    return call_events("get_weather", {"location": location}, index, size=12)


def content_chunks(text, size=1):
    """A text in chunks of that many characters, from a Chat Completions backend."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return Raw([*[chunk(content=piece) for piece in pieces], chunk("stop"), "[DONE]"])


def final_response(answer):
    assert answer.status == 200, answer
    return answer.events[-1]["response"] if answer.streamed else answer.body


def output_items(answer, kind):
    return [item for item in final_response(answer)["output"] if item["type"] == kind]


def function_calls(answer):
    return [(item["name"], json.loads(item["arguments"])) for item in output_items(answer, "function_call")]


def output_text(answer):
    parts = [part for item in output_items(answer, "message") for part in item["content"]]
    whole = "".join([part.get("text", part.get("refusal")) for part in parts])
    if answer.streamed:
        deltas = [event["delta"] for event in answer.events if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == whole  # nothing is in the end that was not streamed
    return whole


# 5.1.2: parameters


@pytest.mark.parametrize("tool", [FLAT, NESTED], ids=["flat", "nested"])
async def test_both_shapes_of_a_tool(serving, tool):
    (declared,) = (await upstream_request(serving, tools=[tool]))["tools"]
    assert declared["type"] == "function"
    assert {name: declared["function"][name] for name in FUNCTION} == FUNCTION


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "now"},
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "name": "now", "parameters": None},
    ],
)
async def test_a_tool_without_parameters(serving, tool):
    (declared,) = (await upstream_request(serving, tools=[tool]))["tools"]
    assert declared["function"]["name"] == "now"
    assert declared["function"].get("parameters", {"type": "object"})["type"] == "object"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ("auto", None)),
        ("none", ("none",)),
        ("required", ("required",)),
        (
            {"type": "function", "function": {"name": "get_weather"}},
            ({"type": "function", "function": {"name": "get_weather"}},),
        ),
        ({"type": "function", "name": "get_weather"}, ({"type": "function", "function": {"name": "get_weather"}},)),
    ],
)
async def test_choices(serving, choice, expected):
    assert (await upstream_request(serving, tools=[FLAT], tool_choice=choice)).get("tool_choice") in expected


@pytest.mark.parametrize("fields", [{}, {"parallel_tool_calls": True}, {"parallel_tool_calls": False}])
async def test_parallel_calls(serving, fields):
    body = await upstream_request(serving, tools=[FLAT], **fields)
    assert body.get("parallel_tool_calls", True) == fields.get("parallel_tool_calls", True)
    (answer,), _ = await exchange(serving, ["Hello"], [{**HI, "tools": [FLAT], **fields}])
    assert answer.body["parallel_tool_calls"] == fields.get("parallel_tool_calls", True)


@pytest.mark.parametrize(
    ("field", "value", "name", "expected"),
    [
        ("max_output_tokens", 50, "max_completion_tokens", 50),
        ("temperature", 0.25, "temperature", 0.25),
        ("top_p", 0.5, "top_p", 0.5),
        (
            "instructions",
            "Be kind.",
            "messages",
            [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        ),
        ("reasoning", {"effort": "low"}, "reasoning_effort", "low"),
        ("user", "u1", "user", "u1"),
        ("metadata", {"a": "b"}, "metadata", {"a": "b"}),
        ("service_tier", "flex", "service_tier", "flex"),
        ("top_logprobs", 3, "top_logprobs", 3),
        ("prompt_cache_key", "k", "prompt_cache_key", "k"),
        ("safety_identifier", "s", "safety_identifier", "s"),
        ("text", {"verbosity": "low"}, "verbosity", "low"),
        ("text", {"format": {"type": "json_object"}}, "response_format", {"type": "json_object"}),
    ],
)
async def test_fields_reach_the_backend(serving, field, value, name, expected):
    body = await upstream_request(serving, **{field: value})
    assert body.get(name, body.get("max_tokens")) == expected


async def test_a_format_is_put_as_the_backend_wants_it(serving):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = await upstream_request(
        serving, text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    )
    assert body["response_format"]["type"] == "json_schema"
    assert (
        body["response_format"]["json_schema"] | {"name": "n", "schema": schema, "strict": True}
        == body["response_format"]["json_schema"]
    )


@pytest.mark.parametrize("instructions", ["Be kind.", "Be kind.\n\nVery."])
async def test_instructions_are_not_added_to(serving, instructions):
    body = await upstream_request(serving, instructions=instructions, tools=[FLAT])
    assert [message for message in body["messages"] if message["role"] == "system"] == [
        {"role": "system", "content": instructions}
    ]


# 5.1.4 to 6: events


TWO = reply(TextPiece("I look."), *weather_call(0, "Boston"), *weather_call(1, "Seattle"), Usage(3, 2))
SEED_ORDER = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_item.added",
    "response.output_tool_call.begin",
    "response.output_tool_call.delta",
    "response.output_tool_call.end",
    "response.output_item.done",
    "response.output_text.done",
    "response.output_item.done",
    "response.completed",
    "response.done",
]


@pytest.mark.parametrize(
    "asked", [{"headers": {"x-callboard-compat-events": "1"}}, {"compat_events": True}], ids=["header", "setting"]
)
async def test_the_seed_s_events(serving, asked):
    one = reply(TextPiece("I look."), *weather_call(0, "Boston"))
    (answer,), _ = await exchange(serving, [one], [{**HI, "stream": True, "tools": [NESTED]}], **asked)
    kinds = [event["type"] for event in answer.events]
    seeds = [kind for kind in kinds if kind in SEED_ORDER]
    assert [kind for kind, _ in itertools.groupby(seeds)] == SEED_ORDER
    # The official names go along.
    assert kinds.count("response.function_call_arguments.delta") == kinds.count("response.output_tool_call.delta") == 2
    assert kinds.count("response.function_call_arguments.done") == 1
    at = {event["type"]: event for event in answer.events}
    begin, delta, end = (at[f"response.output_tool_call.{each}"] for each in ("begin", "delta", "end"))
    (added,) = [
        event
        for event in answer.events
        if event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call"
    ]
    assert (added["item"]["status"], added["item"]["arguments"], added["item"]["name"]) == (
        "in_progress",
        "",
        "get_weather",
    )
    assert {begin["item_id"], delta["item_id"], end["item_id"]} == {added["item"]["id"]}
    assert (begin["call_id"], begin["name"], begin["output_index"]) == ("call_0", "get_weather", 1)
    assert (end["name"], json.loads(end["arguments"])) == ("get_weather", {"location": "Boston"})
    (done,) = [
        event
        for event in answer.events
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call"
    ]
    assert (done["item"]["status"], done["item"]["call_id"]) == ("completed", "call_0")
    assert [event["sequence_number"] for event in answer.events] == list(range(len(answer.events)))


async def test_without_asking_there_are_the_official_ones_alone(serving):
    kinds = {event["type"] for event in (await stream_reply(serving, TWO, tools=[FLAT])).events}
    assert [kind for kind in kinds if "output_tool_call" in kind or kind == "response.done"] == []


@pytest.mark.parametrize(
    "said", [TWO, reply(*weather_call(0, "Boston"), *weather_call(1, "Seattle"))], ids=["with text", "calls alone"]
)
@pytest.mark.parametrize("seed", ["0", "1"])
async def test_indices(serving, said, seed):
    answer = await stream_reply(serving, said, {"x-callboard-compat-events": seed}, tools=[FLAT])
    added = {
        event["output_index"]: event["item"] for event in answer.events if event["type"] == "response.output_item.added"
    }
    done = {
        event["output_index"]: event["item"] for event in answer.events if event["type"] == "response.output_item.done"
    }
    assert list(added) == sorted(added) == list(range(len(added)))
    assert {index: item["id"] for index, item in added.items()} == {index: item["id"] for index, item in done.items()}
    output = final_response(answer)["output"]
    assert [item["id"] for item in output] == [added[index]["id"] for index in sorted(added)]
    identifiers = {index: item["call_id"] for index, item in added.items() if item["type"] == "function_call"}
    first = 1 if seed == "1" or said is TWO else 0  # a message that says nothing is the seed's alone
    assert identifiers == {first: "call_0", first + 1: "call_1"}


# 5.1.7 and 8: several turns

TURN = [
    {"type": "message", "role": "user", "content": "What's the weather?"},
    {"type": "message", "role": "assistant", "content": ""},
    {
        "type": "function_call",
        "call_id": "call_xyz",
        "name": "get_weather",
        "arguments": '{"location":"San Francisco"}',
    },
    {"type": "function_call_output", "call_id": "call_xyz", "output": '{"temp":72,"condition":"sunny"}'},
]


async def test_the_seed_s_turn(serving):
    user, assistant, tool = (await upstream_request(serving, input=TURN, tools=[]))["messages"]
    assert user == {"role": "user", "content": "What's the weather?"}
    (call,) = assistant["tool_calls"]
    assert assistant["role"] == "assistant"
    assert not assistant.get("content")
    assert (call["id"], call["type"], call["function"]["name"]) == ("call_xyz", "function", "get_weather")
    assert json.loads(call["function"]["arguments"]) == {"location": "San Francisco"}
    assert tool == {"role": "tool", "tool_call_id": "call_xyz", "content": '{"temp":72,"condition":"sunny"}'}


async def test_every_order_of_items_gives_what_a_backend_takes(serving):
    orders = list(itertools.permutations(TURN))
    answers, bodies = await exchange(
        serving, ["Hello"] * len(orders), [{**HI, "input": list(order)} for order in orders]
    )
    assert {answer.status for answer in answers} == {200}
    for order, body in zip(orders, bodies, strict=True):
        owed = []
        for message in body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] in owed, order  # behind its call
                owed.remove(message["tool_call_id"])
            else:
                assert owed == [], order  # no call is left without its output
                owed = [call["id"] for call in message.get("tool_calls") or ()]
        assert owed == []
        kinds = [item["type"] for item in order]
        if kinds.index("function_call") < kinds.index("function_call_output"):
            (output,) = [message for message in body["messages"] if message["role"] == "tool"]
            assert output["content"] == TURN[3]["output"], order


async def test_calls_and_outputs_of_one_turn(serving):
    calls = [{**TURN[2], "call_id": name} for name in ("a", "b")]
    outputs = [{**TURN[3], "call_id": name, "output": name} for name in ("b", "a")]
    messages = (await upstream_request(serving, input=[TURN[0], *calls, *outputs, {"role": "user", "content": "So?"}]))[
        "messages"
    ]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert [each["id"] for each in messages[1]["tool_calls"]] == ["a", "b"]
    assert {message["tool_call_id"]: message["content"] for message in messages[2:4]} == {"a": "a", "b": "b"}


async def test_a_result_as_a_message_of_the_role_tool(serving):
    result = {
        "type": "message",
        "role": "tool",
        "tool_call_id": "call_xyz",
        "content": [{"type": "output", "content_type": "application/json", "body": '{"a":1}'}],
    }
    messages = (await upstream_request(serving, input=[*TURN[:3], result]))["messages"]
    assert (messages[-1]["role"], messages[-1]["tool_call_id"]) == ("tool", "call_xyz")
    assert messages[-1]["content"] == '{"a":1}'


ITEMS = {
    "no type": ([{"role": "user", "content": "Hi"}], "Hi"),
    "a picture's address": (
        [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}],
        "https://x/y.png",
    ),
    "a picture's address in an object": (
        [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": "https://x/y.png"}}]}],
        "https://x/y.png",
    ),
    "an output in parts": ([*TURN[:3], {**TURN[3], "output": [{"type": "input_text", "text": "sunny"}]}], "sunny"),
    "an item that nobody knows": (
        [{"role": "user", "content": "Hi"}, {"type": "web_search_call", "id": "w", "status": "completed"}],
        "Hi",
    ),
    "reasoning": (
        [
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": None},
            {"role": "assistant", "content": "Yes"},
        ],
        "Yes",
    ),
    "a reference": ([{"type": "item_reference", "id": "x"}, {"role": "user", "content": "Hi"}], "Hi"),
}


@pytest.mark.parametrize("name", ITEMS)
async def test_items_that_the_proxy_refused(serving, name):
    item, passage = ITEMS[name]
    assert passage in json.dumps((await upstream_request(serving, input=item))["messages"])


# 5.1.11 and 5.2: errors

CODES = {
    "too_many_messages": ({"input": [{"role": "user", "content": "x"}] * 11}, 400),
    "invalid_max_tokens": ({"max_output_tokens": 0}, 400),
    "instructions_too_large": ({"instructions": "x" * 101}, 400),
    "input_content_too_large": ({"input": "x" * 2001}, 413),
    "invalid_top_logprobs": ({"top_logprobs": 21}, 400),
    "background_not_supported": ({"background": True}, 400),
    "prompt_reference_not_supported": ({"prompt": {"id": "p"}}, 400),
    "model_required": ({"model": ""}, 400),
    "request_too_large": ({"input": "x" * 9000}, 413),
    "invalid_request": ({"tools": {}}, 400),
}


@pytest.mark.parametrize("stream", [True, False])
async def test_its_error_codes(serving, stream):
    limits = GatewayLimits(body=8000, items=10, content=2000, instructions=100)
    answers, asked = await exchange(
        serving, [], [{**HI, "stream": stream, **fields} for fields, _ in CODES.values()], limits=limits
    )
    assert asked == []
    answered = {
        code: (answer.body["error"]["code"], answer.status) for code, answer in zip(CODES, answers, strict=True)
    }
    assert answered == {code: (code, status) for code, (_, status) in CODES.items()}


async def test_keys_are_wanted_where_the_gateway_has_some(serving):
    from callboard.servers.gateway.auth import digest

    (answer,), _ = await exchange(serving, [], [HI], keys={"ann": digest("sk-ann-12345678")})
    assert (answer.status, answer.body["error"]["code"]) == (401, "missing_api_key")


async def test_health(serving):
    async with FakeBackend(["Hello"]) as backend, serving(backend) as served:
        health = await served.get("/health")
    assert health.status == 200
    assert health.headers["content-type"] == "application/json"
    assert {name: health.body[name] for name in ("status", "circuit_breaker")} == {
        "status": "healthy",
        "circuit_breaker": {"enabled": True, "is_open": False, "consecutive_failures": 0},
    }


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": "Bearer sk-abcdefghijklmnopqrstuvwxyz"}, "Bearer sk-abcdefghijklmnopqrstuvwxyz"),
        ({"authorization": "sk-abcdefghijklmnopqrstuvwxyz"}, "Bearer sk-abcdefghijklmnopqrstuvwxyz"),
        ({"x-api-key": "sk-abcdefghijklmnopqrstuvwxyz"}, "Bearer sk-abcdefghijklmnopqrstuvwxyz"),
        (
            {"authorization": "Bearer sk-abcdefghijklmnopqrstuvwxyz", "x-api-key": "sk-other-other-other"},
            "Bearer sk-abcdefghijklmnopqrstuvwxyz",
        ),
        ({}, None),
    ],
)
async def test_keys_are_passed_on_and_masked_in_the_log(serving, caplog, headers, expected):
    caplog.set_level(logging.DEBUG, logger="callboard")
    async with FakeBackend(["Hello"]) as backend, serving(backend) as served:
        await served.post("responses", HI, headers)
        (got,) = [each.headers for each in backend.requests if each.method == "POST"]
    assert got.get("authorization") == expected
    assert "sk-abcdefghijklmnopqrstuvwxyz" not in caplog.text
    assert ("sk-abc...wxyz" in caplog.text) == bool(headers)


async def test_models_names_are_put_right(serving):
    models = ["Qwen/Qwen3-Coder", "other"]
    async with FakeBackend(["Hello"] * 3, models=models) as backend, serving(backend) as served:
        listed = await served.get("/v1/models")
        for name in ("qwen/qwen3-coder", "OTHER", "unknown-Model"):
            await served.post("responses", {**HI, "model": name})
        asked = [each.body["model"] for each in backend.requests if each.method == "POST"]
    assert [each["id"] for each in listed.body["data"]] == ["Qwen/Qwen3-Coder", "other"]
    assert asked == ["Qwen/Qwen3-Coder", "other", "unknown-Model"]


# 5.1.13: what it logs


def log_lines(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.DEBUG and record.name == "callboard.gateway"
    ]


FRAGMENTED = [
    call_chunk(identifier="call_x", arguments="{"),
    call_chunk(arguments='"location":'),
    call_chunk(name="get_weather", arguments='"Paris"}'),
    chunk("tool_calls"),
    "[DONE]",
]


async def test_its_debug_lines(serving, caplog):
    caplog.set_level(logging.DEBUG, logger="callboard")
    answer = await stream_reply(serving, Raw(FRAGMENTED), input=TURN, tools=[FLAT])
    assert function_calls(answer) == [("get_weather", {"location": "Paris"})]
    assert log_lines(caplog) == [
        "INPUT: Found function_call (get_weather) - will attach to assistant message",
        "INPUT: Added function_call_output (call_id: call_xyz)",
        "Buffering 1 argument bytes for tool index 0 (name not yet received)",
        "Buffering 11 argument bytes for tool index 0 (name not yet received)",
        "Replaying 12 buffered argument bytes for get_weather",
        "Tool call started: get_weather (index 0)",
        "Tool call complete: get_weather - 20 bytes of args",
    ]


async def test_debug_lines_of_whatever_comes(serving, caplog):
    caplog.set_level(logging.DEBUG, logger="callboard")
    odd = [{"type": "function_call", "call_id": "a\nFORGED b", "name": "x\r\nFORGED " + "y" * 500, "arguments": "{}"}]
    await stream_reply(serving, Raw(["5", '{"choices": 3}', *FRAGMENTED]), input=odd, tools=[FLAT])
    await stream_reply(serving, Raw(FRAGMENTED), stream=False)
    assert all("\n" not in line and "\r" not in line and len(line) < 250 for line in log_lines(caplog))


async def test_nothing_is_told_that_nobody_reads(serving, caplog):
    caplog.set_level(logging.INFO, logger="callboard")
    await stream_reply(serving, Raw(FRAGMENTED), tools=[FLAT])
    assert log_lines(caplog) == []


# 5.1.3 and 5.6: calls in text

ONE = "<function=apply_patch>\n<parameter=patch>\n*** Begin Patch\n*** End Patch\n</parameter>\n</function>"
SECOND = (
    "<function=read_file>\n<parameter=file_path>test.txt</parameter>\n<parameter=limit>100</parameter>\n</function>"
)
PATCHED = ("apply_patch", {"patch": "*** Begin Patch\n*** End Patch"})
READING = ("read_file", {"file_path": "test.txt", "limit": 100})
TOOLS = [PATCH, READ]
IN_TEXT = {
    "the seed's example": (f"Let me help.\n{ONE}", "Let me help.", [PATCHED]),
    "values by their schema": (SECOND, "", [READING]),  # 100 is a number
    "text before and behind": (f"Before. {SECOND} Behind.", "Before.  Behind.", [READING]),
    "two calls": (f"{ONE}\n{SECOND}", "", [PATCHED, READING]),
    "two calls, one end": (
        f"<tool_call>\n{SECOND}\n</tool_call><tool_call>\n{ONE}\n</tool_call>",
        "",
        [READING, PATCHED],
    ),
    "in a wrapper": (f"Now. <tool_call>\n{SECOND}\n</tool_call>", "Now.", [READING]),
    "JSON in a wrapper": (
        '<tool_call>\n{"name": "read_file", "arguments": {"file_path": "test.txt", "limit": 100}}\n</tool_call>',
        "",
        [READING],
    ),
    "closed by its wrapper alone": (
        "<tool_call>\n<function=read_file>\n<parameter=limit>5</parameter>\n</tool_call>",
        "",
        [("read_file", {"limit": 5})],
    ),
    "a value that holds ends": (
        "<function=apply_patch>\n<parameter=patch>\nif a < b: </function> x\n</parameter>\n</function>",
        "",
        [("apply_patch", {"patch": "if a < b: </function> x"})],
    ),
    "indentation of a value": (
        "<function=apply_patch>\n<parameter=patch>\n    a\n  b\n\n</parameter>\n</function>",
        "",
        [("apply_patch", {"patch": "    a\n  b\n"})],
    ),
    "a parameter without its end": (
        "<function=read_file>\n<parameter=file_path>\ntest.txt\n<parameter=limit>\n100\n</parameter>\n</function>",
        "",
        [READING],
    ),
    "a call that is shown": (f"So:\n```text\n{SECOND}\n```\nis how.", f"So:\n```text\n{SECOND}\n```\nis how.", []),
    "a call in a fence of XML": (f"So:\n```xml\n{SECOND}\n```\nis how.", "So:\n\nis how.", [READING]),
    "an undeclared name": (
        "<function=launch>\n<parameter=x>1</parameter>\n</function>",
        "<function=launch>\n<parameter=x>1</parameter>\n</function>",
        [],
    ),
    "plain text": ("a < b, <function> and <func", "a < b, <function> and <func", []),
    "more than ASCII": (
        "Naïve — ✓ 😀 <function=apply_patch>\n<parameter=patch>\nü😀\n</parameter>\n</function>",
        "Naïve — ✓ 😀",
        [("apply_patch", {"patch": "ü😀"})],
    ),
}


@pytest.mark.parametrize("name", IN_TEXT)
async def test_calls_in_text_however_it_arrives(serving, name):
    written, content, expected = IN_TEXT[name]
    for size in (1, 2, 7, 1000):
        answer = await stream_reply(serving, content_chunks(written, size), tools=TOOLS)
        assert (output_text(answer).strip(), function_calls(answer)) == (content.strip(), expected), size
        ids = [item["call_id"] for item in output_items(answer, "function_call")]
        assert len(set(ids)) == len(expected)
    whole = await stream_reply(serving, written, tools=TOOLS, stream=False)
    assert (output_text(whole).strip(), function_calls(whole)) == (content.strip(), expected)


async def test_a_call_in_text_has_the_same_identifier_again(serving):
    identifiers = {
        output_items(await stream_reply(serving, content_chunks(SECOND), tools=TOOLS), "function_call")[0]["call_id"]
        for _ in range(2)
    }
    assert len(identifiers) == 1


async def test_no_call_is_made_of_text_where_no_tools_were_asked_for(serving):
    answer = await stream_reply(serving, content_chunks(SECOND))
    assert (output_text(answer), function_calls(answer)) == (SECOND, [])


@pytest.mark.parametrize("size", [1, 5])
async def test_a_call_that_is_never_closed_is_not_lost(serving, size):
    answer = await stream_reply(
        serving, content_chunks("Now. <function=read_file>\n<parameter=file_path>test.txt", size), tools=TOOLS
    )
    everything = output_text(answer) + json.dumps(final_response(answer)["output"])
    assert "Now." in everything
    assert "test.txt" in everything


async def test_text_is_streamed_before_the_reply_ends(serving, by_hand):
    async with (
        by_hand() as backend,
        serving(backend, heartbeat=0.01) as served,  # which begins the stream
        served.open("responses", {**HI, "stream": True, "tools": TOOLS}) as answer,
    ):
        asked = await backend.asked.get()
        await asked.say("Let me help.\n")
        data = b""
        while b"Let me help." not in data:
            data += await answer.content.readany()
        # On a line of its own: behind words in its line it could be a quotation, and waits for what follows.
        await asked.say(ONE)
        while b"response.output_item.done" not in data.partition(b"function_call")[2]:
            data += await answer.content.readany()
        await asked.end()
        outcome = data + await answer.read()
    assert b"response.completed" in outcome


# 5.6: the rest

USAGE = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
HELLO = chunk(content="Hello")


async def test_letters_that_are_cut_in_two_on_the_way(serving):
    greeting = "Grüße — ✓ 😀"
    for size in (1, 3):
        assert output_text(await stream_reply(serving, reply(TextPiece(greeting)), chunk_size=size)) == greeting


async def test_usage_in_a_chunk_of_its_own(serving):
    usage = final_response(await stream_reply(serving, Raw([HELLO, chunk("stop"), USAGE, "[DONE]"])))["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (11, 7, 18)


async def test_a_whole_reply_is_json(serving):
    answer = await stream_reply(serving, "Hello", stream=False)
    assert answer.headers["content-type"] == "application/json"
    assert (answer.body["status"], output_text(answer)) == ("completed", "Hello")


async def test_a_last_event_without_its_blank_line(serving):
    assert (
        output_text(
            await stream_reply(
                serving,
                Raw([HELLO, b'data: {"choices":[{"index":0,"delta":{"content":" you"},"finish_reason":"stop"}]}']),
            )
        )
        == "Hello you"
    )


ENDS = {
    "cut": (Cut([ReplyStarted(), TextPiece("Hel")]), "failed"),
    "an error": (Raw([HELLO, b": \n\n", {"error": {"message": "out of memory"}}]), "failed"),
    "length": (Raw([HELLO, chunk("length"), "[DONE]"]), "incomplete"),
    "filter": (Raw([HELLO, chunk("content_filter"), "[DONE]"]), "incomplete"),
    "no [DONE]": (Raw([HELLO, chunk("stop")]), "completed"),
    "500": (StatusReply(500, {"error": {"message": "naïve " * 2000}}), "failed"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_stream_tells_how_it_ended(serving, name):
    said, status = ENDS[name]
    answer = await stream_reply(serving, said)
    assert answer.events[-1]["type"] == f"response.{status}"
    assert final_response(answer)["status"] == status
    assert len(answer.data) < 20_000


async def test_arguments_whose_name_never_comes_are_no_call(serving):
    chunks = [
        call_chunk(identifier="c", arguments='{"a":1}'),
        chunk("tool_calls"),
        "[DONE]",
    ]
    answer = await stream_reply(serving, Raw(chunks), tools=[FLAT])
    done = [event for event in answer.events if event["type"] == "response.output_item.done"]
    assert [event for event in done if event["item"].get("name") == ""] == []


async def test_a_name_in_fragments_and_an_id_that_changes(serving):
    chunks = [
        call_chunk(identifier="call_a", name="get_", arguments=""),
        call_chunk(identifier="call_a", name="weather", arguments=""),
        call_chunk(identifier="call_b", arguments='{"location":'),
        call_chunk(arguments='"Oslo"}'),
        chunk("tool_calls"),
        "[DONE]",
    ]
    answer = await stream_reply(serving, Raw(chunks), tools=[FLAT])
    assert function_calls(answer) == [("get_weather", {"location": "Oslo"})]
    ids = {event.get("item_id") or event["item"]["id"] for event in answer.events if "output_index" in event}
    assert len(ids) == 1


@pytest.mark.parametrize("raw", ["{oops", "[1]", '"x"', '{"location": "Par'])
@pytest.mark.parametrize("stream", [True, False])
async def test_arguments_that_are_no_object_are_passed_through(serving, raw, stream):
    chunks = [
        call_chunk(identifier="c", name="get_weather", arguments=raw),
        chunk("tool_calls"),
        "[DONE]",
    ]
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": raw}}
    whole = json.dumps({"choices": [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    answer = await stream_reply(serving, Raw(chunks) if stream else Raw([whole]), tools=[FLAT], stream=stream)
    (item,) = output_items(answer, "function_call")
    assert (item["name"], item["arguments"]) == ("get_weather", raw)


async def test_reasoning_is_an_item_of_its_own(serving):
    answer = await stream_reply(
        serving,
        reply(ReasoningPiece("hm"), TextPiece("Yes."), *weather_call(0, "Oslo")),
        tools=[FLAT],
    )
    at = {
        kind: [
            (event["output_index"], event["item"]["type"])
            for event in answer.events
            if event["type"] == f"response.output_item.{kind}"
        ]
        for kind in ("added", "done")
    }
    assert at["added"] == [(0, "reasoning"), (1, "message"), (2, "function_call")]
    assert sorted(at["done"]) == at["added"]
    assert [item["type"] for item in final_response(answer)["output"]] == ["reasoning", "message", "function_call"]


async def test_reasoning_goes_back_with_what_followed_it(serving):
    history = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": "I look."},
        TURN[2],
        TURN[3],
    ]
    messages = (await upstream_request(serving, input=history))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["content"] == "I look."
    assert "<think>" not in json.dumps(messages)


async def test_a_reply_of_many_pieces_costs_no_square(serving):
    """Ten thousand pieces inside of a call that begins and never ends."""
    chunks = content_chunks("<function=apply_patch>\n<parameter=patch>\n" + "x < y " * 2000, 6)
    assert re.search(
        "failed|completed|incomplete", final_response(await stream_reply(serving, chunks, tools=TOOLS))["status"]
    )

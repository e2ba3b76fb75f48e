"""What users of Codex reported of servers, each test named after its thread.

`tests/vectors/codex.jsonl` holds the shapes that server authors test with Codex; each row names the thread that it is
from. The fakes refuse what the real servers refuse (`callboard.testing.strict`).
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.servers.gateway.conftest import behind, serve_gateway
from tests.tables import table
from tests.threads import passing

from callboard.core import ArgumentsPiece, InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, TextPiece
from callboard.testing import FakeBackend

TESTS = Path(__file__).resolve().parents[1]
USER = {"role": "user", "content": "Go."}


def through(replies, *requests, front="responses", **options):
    """The answers of a gateway to these bodies, and what its backend was sent."""
    return passing.through(replies, *[(front, {"model": "some-model", **body}) for body in requests], **options)


def calling(name, raw, *, pieces=1):
    """A reply that calls a tool with these arguments as text."""
    step = max(1, -(-len(raw) // pieces))
    cut = [raw[at : at + step] for at in range(0, len(raw), step)]
    begun = [ReplyStarted("r", "m"), InvocationStarted(0, "call_0", name, known=True)]
    ended = InvocationEnded(0, "call_0", name, None, raw)
    return [*begun, *[ArgumentsPiece(0, piece) for piece in cut], ended, ReplyEnded("invocations")]


def strings(value):
    """All strings in it, and in the arguments of calls."""
    match value:
        case dict():
            return [text for each in value.values() for text in strings(each)]
        case list():
            return [text for each in value for text in strings(each)]
        case str() if value.startswith("{"):
            return [value, *strings(json.loads(value))]
    return [value]


# Outputs and their calls.


def called(identifier):
    return {"type": "function_call", "call_id": identifier, "name": "f", "arguments": "{}"}


def output(identifier, said):
    return {"type": "function_call_output", "call_id": identifier, "output": said}


# Custom tools.

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-a = 'ä'\n+a = \"2\"\n*** End Patch\n"
GRAMMAR = (
    'start: begin_patch hunk+ end_patch\nbegin_patch: "*** Begin Patch" LF\nend_patch: "*** End Patch" LF?\n'
    'hunk: "*** Add File: " /.+/ LF add_line+ | "*** Update File: " /.+/ LF change+\n%import common.LF\n'
)
APPLY = {"name": "apply_patch", "description": "Change files."}
FORMAT = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
DECLARED = {
    "responses": {"type": "custom", **APPLY, "format": FORMAT},
    "chat": {
        "type": "custom",
        "custom": {**APPLY, "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": GRAMMAR}}},
    },
}
SPELLED = {
    "input": json.dumps({"input": PATCH}),
    "patch": json.dumps({"patch": PATCH}),
    "with an explanation": json.dumps({"explanation": "I mend it.", "patch": PATCH}),
    "nested": json.dumps({"arguments": {"input": PATCH}}),
    "object in input": json.dumps({"input": {"patch": PATCH}}),
    "shell": json.dumps({"command": ["apply_patch", PATCH]}),
    "string": json.dumps(PATCH),
    "raw": PATCH,
}
every_spelling = pytest.mark.parametrize("spelled", SPELLED.values(), ids=SPELLED)
every_wire = pytest.mark.parametrize("wire", ["chat", "messages", "gemini", "responses"])


@every_wire
@pytest.mark.parametrize("front", DECLARED)
def test_litellm_31571_a_custom_tool_keeps_its_grammar_for_the_model_with_an_example(front, wire):
    body = {"input": [USER]} if front == "responses" else {"messages": [USER]}
    (answer,), (sent,) = through(["Done."], {**body, "tools": [DECLARED[front]]}, front=front, wire=wire)
    assert answer.status == 200
    said = json.dumps(sent["tools"])
    assert json.dumps(GRAMMAR)[1:-1] in said
    assert "*** Update File: src/greeting.py" in said or wire == "responses"


@every_spelling
@pytest.mark.parametrize("pieces", [1, 7])
def test_litellm_31571_apply_patch_comes_back_as_a_custom_call_with_the_raw_patch(spelled, pieces):
    body = {"input": [USER], "tools": [DECLARED["responses"]], "stream": True}
    (answer,), _ = through([calling("apply_patch", spelled, pieces=pieces)], body)
    events = answer.events
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    (done,) = [event["input"] for event in events if event["type"] == "response.custom_tool_call_input.done"]
    (item,) = events[-1]["response"]["output"]
    assert events[-1]["type"] == "response.completed"
    assert (item["type"], item["name"], item["call_id"]) == ("custom_tool_call", "apply_patch", "call_0")
    assert "".join(deltas) == done == item["input"] == PATCH
    assert len(deltas) > 1 or pieces == 1 or spelled != SPELLED["input"]


@every_spelling
@pytest.mark.parametrize("stream", [False, True])
def test_unsloth_9121_a_custom_tool_of_chat_completions_is_called_as_one(spelled, stream):
    body = {"messages": [USER], "tools": [DECLARED["chat"]], "stream": stream}
    (answer,), _ = through([calling("apply_patch", spelled, pieces=7)], body, front="chat")
    if not stream:
        (choice,) = answer.body["choices"]
        called = {"name": "apply_patch", "input": PATCH}
        assert choice["message"]["tool_calls"] == [{"id": "call_0", "type": "custom", "custom": called}]
    else:
        deltas = [
            call for event in answer.events for c in event["choices"] for call in c["delta"].get("tool_calls", ())
        ]
        assert (deltas[0]["id"], deltas[0]["type"]) == ("call_0", "custom")
        assert "".join([each["custom"]["input"] for each in deltas]) == PATCH
        assert not any("function" in each for each in deltas)
        choice = answer.events[-1]["choices"][0] if answer.events[-1]["choices"] else answer.events[-2]["choices"][0]
    assert choice["finish_reason"] == "tool_calls"


@every_wire
@pytest.mark.parametrize("front", DECLARED)
def test_unsloth_9121_a_custom_call_and_its_output_are_replayed(front, wire):
    if front == "responses":
        call = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": PATCH}
        result = {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "Ok."}]}
        body = {"input": [USER, call, result], "tools": [DECLARED[front]]}
    else:
        custom = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": PATCH}}
        called = {"role": "assistant", "tool_calls": [custom]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "Ok."}
        body = {"messages": [USER, called, result], "tools": [DECLARED[front]]}
        body["tool_choice"] = {"type": "custom", "custom": {"name": "apply_patch"}}
    (answer,), (sent, *_) = through(["Done.", "Done."], body, front=front, wire=wire)
    assert answer.status == 200
    assert {PATCH, "Ok."} <= {*strings(sent)}


# The shapes that server authors test.

SHAPES = {row["name"]: row for row in map(json.loads, (TESTS / "vectors/codex.jsonl").read_text("utf-8").splitlines())}
BACKENDS = {
    "chat": ("some-model", ("vllm", "openai"), "messages"),
    "messages": ("claude-sonnet-4-5", (), "messages"),
    "gemini": ("gemini-3-pro", ("gemini",), "contents"),
}
"""By wire: the model, the servers whose refusals hold, and the field of the conversation."""


def events_of(reply):
    """The events of a row's reply: its text and its calls."""
    events = [ReplyStarted("r", "m"), *([TextPiece(reply["text"])] if reply["text"] else [])]
    for index, (name, arguments) in enumerate(reply["calls"]):
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
        ended = InvocationEnded(index, f"call_{index}", name, json.loads(raw), raw)
        events += [InvocationStarted(index, f"call_{index}", name, known=True), ArgumentsPiece(index, raw), ended]
    return [*events, ReplyEnded("invocations" if reply["calls"] else "stop")]


@cache
def passed(wire):
    """What became of each shape: the answer, and the one request that the backend got."""
    model, strict, _ = BACKENDS[wire]
    bodies = [{"model": model, "stream": True, "store": False, **row["request"]} for row in SHAPES.values()]
    replies = [events_of(row["reply"]) for row in SHAPES.values()]
    answers, sent = through(replies, *bodies, strict=strict, wire=wire)
    return dict(zip(SHAPES, zip(answers, sent, strict=True), strict=True))


def named(tools):
    """The names of declared tools."""
    every = [each for tool in tools for each in tool.get("functionDeclarations", [tool])]
    return [each.get("function", each)["name"] for each in every]


def assert_passed(name, wire):
    """The row's request reaches the backend and its reply comes back as the row says."""
    row, (answer, sent) = SHAPES[name], passed(wire)[name]
    found = {BACKENDS[wire][2]: sent[BACKENDS[wire][2]], "tools": named(sent.get("tools", ()))}
    found |= {field: sent[field] for field in ("system", "systemInstruction", "reasoning_effort") if field in sent}
    assert found | {"dropped": answer.headers.get("x-callboard-dropped", "")} == row["sent"][wire]
    last = answer.events[-1]
    assert last["type"] == "response.completed"
    items = last["response"]["output"]
    assert [{key: each[key] for key in each if key not in {"id", "status"}} for each in items] == row["output"]
    assert [event["item"] for event in answer.events if event["type"] == "response.output_item.done"] == items


@table("wire", BACKENDS)
@table("name", SHAPES)
def test_sglang_38690_and_vllm_56285_each_shape_of_codex_passes(name, wire):
    assert_passed(name, wire)


@table("wire", BACKENDS)
def test_sglang_33633_an_output_as_an_array_and_effort_max_pass(wire):
    for name in ("function_output_array", "function_output_picture", "function_output_empty", "effort_max"):
        assert_passed(name, wire)
    assert {"a.py", "b.py"} <= {
        line
        for text in strings(passed(wire)["function_output_array"][1])
        if isinstance(text, str)
        for line in text.split()
    }


@table("wire", BACKENDS)
def test_codex_32318_and_36942_namespaces_and_additional_tools_are_restored(wire):
    for name in ("namespace_call", "namespace_of_mcp_tools", "additional_tools", "tool_search_roundtrip"):
        assert_passed(name, wire)


# Compaction.


@table("wire", BACKENDS)
@table("by", ["trigger", "compact"])
def test_sglang_38690_a_compaction_is_replayed_twice(by, wire):
    model, strict, _ = BACKENDS[wire]
    calls = [called("a"), called("b"), output("b", "two")]
    said = []

    async def scenario():
        replies = [f"Summary {number}." if number % 2 else "Done." for number in range(1, 5)]
        async with (
            FakeBackend(replies, strict=strict) as backend,
            serve_gateway(behind(backend, wire=wire)) as served,
        ):
            items = [USER, *calls]
            for _ in range(2):
                asked = [*items, {"type": "compaction_trigger"}] if by == "trigger" else items
                path = "responses" if by == "trigger" else "/responses/compact"
                answer = await served.post(path, {"model": model, "input": asked})
                assert answer.status == 200, answer
                items = [*answer.body["output"], {"role": "user", "content": "Go on."}, *calls]
                answer = await served.post("responses", {"model": model, "input": items})
                assert (answer.status, answer.body["status"]) == (200, "completed")
            said.extend(asked.body for asked in backend.requests if asked.method == "POST")

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert any("Summary 1." in str(text) for text in strings(said[1]))
    assert any("Summary 3." in str(text) for text in strings(said[3]))
    assert not any("Summary 1." in str(text) for text in strings(said[3]))


@st.composite
def histories(draw):
    """The items of a client that cut, reordered and lost some of them."""
    items = [USER]
    for number in range(draw(st.integers(1, 4))):
        batch = [f"c{number}_{place}" for place in range(draw(st.integers(1, 3)))]
        custom = draw(st.booleans())
        call = {"type": "custom_tool_call", "name": "p", "input": "x"} if custom else called("")
        items += [{**call, "call_id": each} for each in batch]
        items += [{**output(each, "o"), "type": f"{call['type']}_output"} for each in draw(st.permutations(batch))]
        items += draw(
            st.sampled_from([[], [{"role": "developer", "content": "Mind."}], [{"role": "user", "content": "So?"}]])
        )
    gone = draw(st.sets(st.integers(0, len(items) - 1), max_size=3))
    items = [each for place, each in enumerate(items) if place not in gone]
    return items[draw(st.integers(0, len(items))) :]


@given(histories(), st.data())
@settings(max_examples=25)
def test_openclaw_28377_two_compactions_in_a_row_are_paired_for_any_history_and_cut(items, data):
    async def scenario():
        async with (
            FakeBackend(lambda body: "Summary.", strict=("openai",)) as backend,
            serve_gateway(behind(backend)) as served,
        ):
            said = items
            for path in data.draw(st.permutations(["/responses/compact", "responses"])):
                asked = said if path == "/responses/compact" else [*said, {"type": "compaction_trigger"}]
                answer = await served.post(path, {"model": "m", "input": asked})
                assert answer.status == 200, answer
                said = [*answer.body["output"], *items[data.draw(st.integers(0, len(items))) :], USER]
            answer = await served.post("responses", {"model": "m", "input": said})
            assert answer.status == 200, answer

    asyncio.run(asyncio.wait_for(scenario(), 60))

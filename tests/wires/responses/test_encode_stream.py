"""The server half of the Responses wire: the official sequence, whatever the model does.

A row of `tests/vectors/responses_sequences.jsonl` is a reply: its events, and its frames `told` shortly, or its `output`.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires import replies
from tests.wires.replies import ARGUMENTS, NAMED, TEXT, TOOLS

from callboard import core
from callboard.wires.responses import StreamEncoder

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
REQUEST = core.Request("m", (), (*TOOLS.values(), core.ToolDeclaration("tool_search", "", SCHEMA, kind="search")))
OPTIONS = {"identifier": "resp_1", "request": REQUEST}
START = core.ReplyStarted("upstream", "m")
VECTORS = Path(__file__).parents[2] / "vectors" / "responses_sequences.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]


def events_of(row):
    return msgspec.convert(row["events"], list[core.Event])


def encode(events, **options):
    """The data of the frames, whose names are their types, in sequence."""
    frames = replies.encode("responses", events, **(OPTIONS | options))
    assert frames[-1] == b"data: [DONE]\n\n"
    return check(replies.read(frames))


def check(frames):
    assert all(name == data["type"] for name, data in frames)
    assert [data["sequence_number"] for _, data in frames] == list(range(len(frames)))
    return [data for _, data in frames]


def whole(events, **options):
    return replies.whole("responses", events, **(OPTIONS | options))


def tell(data):
    """A frame, told shortly: the type, where it is, and what is new in it."""
    item = data.get("item", {})
    new = [data[key] for key in ("delta", "text", "refusal", "arguments", "input") if key in data]
    new += [item[key] for key in ("type", "status") if key in item]
    new += [data["part"]["type"]] if "part" in data else []
    place = [str(data["output_index"])] if "output_index" in data else []
    return " ".join([data["type"].removeprefix("response."), *place, *new])


@table("row", ROWS, ids=lambda row: row["name"])
def test_the_sequence(row, judge, judge_response):
    events = events_of(row)
    datas = encode(events)
    for data in datas:
        if data.get("response", {}).get("error", {}) != {"code": "cut", "message": "the reply broke off"}:
            judge(data)
    body = whole(events)
    assert json.loads(msgspec.json.encode(body)) == datas[-1]["response"]
    if body["status"] != "failed":
        judge_response(body)
    if "told" in row:
        assert list(map(tell, datas)) == row["told"]
    else:
        assert body["output"] == row["output"]
        assert [data["item"] for data in datas if data["type"] == "response.output_item.done"] == row["output"]
        assert body["usage"] == {
            "input_tokens": 7,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 12,
        }


def call(index=0, name="f", raw='{"x":1}', arguments=..., *, identifier="c1", pieces=2):
    arguments = json.loads(raw) if arguments is ... else arguments
    step = -(-len(raw) // pieces)
    cuts = [core.ArgumentsPiece(index, raw[at : at + step]) for at in range(0, len(raw), step)]
    return [
        core.InvocationStarted(index, identifier, name),
        *cuts,
        core.InvocationEnded(index, identifier, name, arguments, raw),
    ]


def test_a_function_that_is_called_tool_search_is_one():
    request = core.Request("m", (), (core.ToolDeclaration("tool_search", "", SCHEMA),))
    (item,) = whole([START, *call(0, "tool_search"), core.ReplyEnded("invocations")], request=request)["output"]
    assert (item["type"], item["name"]) == ("function_call", "tool_search")


def test_calls_of_a_retry_are_other_calls():
    events = [
        START,
        *call()[:2],
        core.ReplyEnded("retry"),
        START,
        *call(identifier="c2"),
        core.ReplyEnded("invocations"),
    ]
    output = encode(events)[-1]["response"]["output"]
    assert [(item["call_id"], item["status"]) for item in output] == [("c1", "incomplete"), ("c2", "completed")]


def test_usage_is_never_null():
    usage = encode([START, core.ReplyEnded("stop")])[-1]["response"]["usage"]
    assert usage == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }


def test_a_failure_says_whose_and_what():
    response = encode([START, core.ReplyFailed("provider", "context_length_exceeded", "too long")])[-1]["response"]
    assert (response["status"], response["error"]) == (
        "failed",
        {"code": "context_length_exceeded", "message": "too long"},
    )


def test_incomplete_says_why():
    for reason, said in (("length", "max_output_tokens"), ("filter", "content_filter")):
        response = encode([START, core.ReplyEnded(reason)])[-1]["response"]
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": said})


def test_a_heartbeat_is_an_event_between_the_first_and_the_last():
    stage = StreamEncoder(**(NAMED | OPTIONS))
    frames = stage.heartbeat() + stage.heartbeat() + stage.feed(START) + stage.feed(core.TextPiece("a"))
    frames += stage.heartbeat() + stage.feed(core.ReplyEnded("stop"))
    assert stage.heartbeat() == []
    assert frames.pop() == (b"", b"[DONE]")
    datas = check([(name.decode(), json.loads(data)) for name, data in frames])
    kinds = [data["type"].removeprefix("response.") for data in datas]
    assert kinds[:3] == ["created", "in_progress", "in_progress"]
    assert kinds.count("in_progress") == 3
    assert kinds[-1] == "completed"


def opening(**fields):
    return encode([START], **fields)[0]["response"]


DEFAULTS = {
    "id": "resp_1", "object": "response", "created_at": 1, "completed_at": None, "status": "in_progress",
    "incomplete_details": None, "model": "m", "previous_response_id": None, "instructions": None, "output": [],
    "error": None, "tools": [], "tool_choice": "auto", "truncation": "disabled", "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}}, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "top_logprobs": 0, "temperature": 1.0, "reasoning": {"effort": None, "summary": None}, "usage": None,
    "max_output_tokens": None, "max_tool_calls": None, "store": False, "background": False, "service_tier": "default",
    "metadata": {}, "safety_identifier": None, "prompt_cache_key": None,
}  # fmt: skip
F = {"type": "function", "name": "f", "description": "does", "parameters": SCHEMA, "strict": None}


def test_the_resource_has_every_field():
    assert opening(request=None) == DEFAULTS


def test_the_request_is_repeated():
    request = core.Request(
        "m",
        (core.UserCanister("u"),),
        (TOOLS["f"],),
        core.NamedTool("f"),
        parallel=False,
        constraint=core.Constraint("answer", SCHEMA),
        controls=core.Controls(0.5, 0.9, 10, effort="low"),
        extra={"metadata": {"a": "b"}, "text": {"verbosity": "low"}},
    )
    form = {"type": "json_schema", "name": "answer", "description": None, "schema": SCHEMA, "strict": True}
    assert opening(request=request) == DEFAULTS | {
        "tools": [F],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "text": {"format": form, "verbosity": "low"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 10,
        "reasoning": {"effort": "low", "summary": None},
        "metadata": {"a": "b"},
    }


def test_the_body_is_repeated_in_the_official_shape(judge_response):
    echo = {
        "model": "other",
        "input": "u",
        "instructions": "s",
        "tools": [{"type": "function", "function": {"name": "f", "description": "does", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "previous_response_id": "resp_0",
        "temperature": None,
        "store": True,
        "reasoning": {"effort": "high"},
        "prompt_cache_key": "k",
        "text": {"format": {"type": "json_object"}},
        "client_metadata": {"x": "y"},
    }
    opened = opening(request=None, echo=echo)
    assert opened == DEFAULTS | {
        "instructions": "s",
        "tools": [F],
        "tool_choice": {"type": "function", "name": "f"},
        "previous_response_id": "resp_0",
        "store": True,
        "reasoning": {"effort": "high", "summary": None},
        "prompt_cache_key": "k",
        "text": {"format": {"type": "json_object"}},
    }
    judge_response(opened)


@table("wrong", [None, 3, "x", [], [None], {}, {"type": 3}], ids=json.dumps)
def test_any_echo_is_taken(wrong):
    for name in DEFAULTS:
        assert opening(echo={name: wrong})["id"] == "resp_1"


SEED = """
response.created
response.in_progress
response.output_item.added 0
response.content_part.added 0
response.output_text.delta 0
response.output_item.added 1
response.output_tool_call.begin 1
response.output_tool_call.delta 1
response.function_call_arguments.delta 1
response.output_tool_call.delta 1
response.function_call_arguments.delta 1
response.output_tool_call.end 1
response.function_call_arguments.done 1
response.output_item.done 1
response.output_text.done 0
response.content_part.done 0
response.output_item.done 0
response.completed
response.done
"""
"""Seed 002, Event Sequencing, with the official events beside its own."""


def test_the_seed_s_events():
    raw = '{"location":"San Francisco, CA"}'
    events = [
        START,
        core.TextPiece("Hi"),
        *call(0, "get_weather", raw, identifier="call_xyz"),
        core.ReplyEnded("invocations"),
    ]
    datas = encode(events, compat_events=True)
    told = [" ".join([data["type"], *[str(data[key]) for key in ("output_index",) if key in data]]) for data in datas]
    assert told == SEED.split("\n")[1:-1]
    told = {data["type"]: data for data in datas}
    at = {"item_id": "fc_1_1", "output_index": 1}
    begin, end = told["response.output_tool_call.begin"], told["response.output_tool_call.end"]
    assert begin == {"type": begin["type"], **at, "call_id": "call_xyz", "name": "get_weather", "sequence_number": 6}
    assert end == {"type": end["type"], **at, "name": "get_weather", "arguments": raw, "sequence_number": 11}
    assert told["response.done"]["response"] == told["response.completed"]["response"]
    assert [item["type"] for item in told["response.done"]["response"]["output"]] == ["message", "function_call"]


@table("events", [events_of(row) for row in ROWS if "told" in row])
def test_the_seed_s_events_have_one_end_too(events):
    kinds = [data["type"] for data in encode(events, compat_events=True)]
    assert kinds[-1] == "response.done"
    assert kinds[-2] in {"response.completed", "response.incomplete", "response.failed"}
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]


EVENTS = st.one_of(
    st.builds(core.ReplyStarted),
    st.builds(core.TextPiece, TEXT | st.just("")),
    st.builds(core.ReasoningPiece, TEXT | st.just(""), TEXT | st.just(""), st.sampled_from(["", "m", "n"])),
    st.builds(core.RefusalPiece, TEXT | st.just("")),
    st.builds(
        core.InvocationStarted,
        st.integers(0, 2),
        st.sampled_from(["a", "b"]),
        st.sampled_from([*TOOLS, "tool_search", "?"]),
    ),
    st.builds(
        core.ArgumentsPiece, st.integers(0, 2), st.sampled_from(['{"input":"', "x", '"}', "\\", "u00e9", '"', ""])
    ),
    st.builds(
        core.InvocationEnded,
        st.integers(0, 2),
        st.just("a"),
        st.sampled_from([*TOOLS, "?"]),
        st.none() | ARGUMENTS,
        TEXT,
    ),
    st.builds(core.InvocationIncomplete, st.integers(0, 2), st.just("a"), st.just("f"), TEXT, TEXT),
    st.builds(core.Usage),
    st.just(core.ReplyEnded("retry")),
)


@given(
    st.lists(EVENTS, max_size=12),
    st.sampled_from([[], [core.ReplyEnded("stop")], [core.ReplyFailed("p", "", "")]]),
    st.booleans(),
)
def test_any_events_have_one_end(events, last, seeded):
    datas = encode([*events, *last], compat_events=seeded)
    assert datas[0]["type"] == "response.created"
    terminals = [d for d in datas if d["type"] in {"response.completed", "response.incomplete", "response.failed"}]
    (terminal,) = terminals
    assert terminal is datas[-2 if seeded else -1]
    added = [d["output_index"] for d in datas if d["type"] == "response.output_item.added"]
    done = [d["output_index"] for d in datas if d["type"] == "response.output_item.done"]
    assert added == list(range(len(added)))
    assert len(set(done)) == len(done)
    assert len(terminal["response"]["output"]) == len(added)
    for data in datas:
        if data["type"] == "response.output_item.done":
            assert terminal["response"]["output"][data["output_index"]] == data["item"]
    texts = {}
    for data in datas:
        if data["type"] in {"response.output_text.delta", "response.custom_tool_call_input.delta"}:
            texts[data["item_id"], data.get("content_index")] = (
                texts.get((data["item_id"], data.get("content_index")), "") + data["delta"]
            )
        if data["type"] in {"response.output_text.done", "response.custom_tool_call_input.done"} and "text" not in data:
            assert texts.get((data["item_id"], None), "") == data["input"]

"""The server half: the official sequence, whatever the model does, and what the client half reads of it."""

from __future__ import annotations

import json
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.responses import StreamDecoder, StreamEncoder, decode_response, encode_response

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = (
    core.ToolDeclaration("f", "does", SCHEMA),
    core.ToolDeclaration("ns__g", "", SCHEMA, namespace="ns"),
    core.ToolDeclaration("apply_patch", kind="custom"),
    core.ToolDeclaration("ns__exec", kind="custom", namespace="ns"),
    core.ToolDeclaration("tool_search", "", SCHEMA, kind="search"),
)
REQUEST = core.Request("m", (core.UserCanister("u"),), TOOLS)
START = core.ReplyStarted("upstream", "m")


def minted(index, _name):
    return f"minted_{index}"


def encoder(**fields):
    return StreamEncoder(**{"identifier": "resp_1", "model": "m", "created": 1, "request": REQUEST} | fields)


def encode(events, *, why="stop", **fields):
    stage = encoder(**fields)
    return [frame for event in events for frame in stage.feed(event)] + stage.finish(why)


def read(frames):
    """The frames' data; each a whole frame whose name is its type, in sequence, the last `[DONE]`."""
    datas = []
    for payload in frames:
        (frame,) = SSEEncoder().feed(payload)
        (one,) = SSEDecoder().feed(frame)
        assert frame.endswith(b"\n\n")
        if one.data == "[DONE]":
            assert payload is frames[-1]
            break
        data = json.loads(one.data)
        assert one.event == data["type"]
        datas.append(data)
    assert [data["sequence_number"] for data in datas] == list(range(len(datas)))
    return datas


def sequence(events, **fields):
    """The frames, told shortly: the type, where it is, and what is new in it."""
    told = []
    for data in read(encode(events, **fields)):
        kind = data["type"].removeprefix("response.")
        item = data.get("item", {})
        new = [data[key] for key in ("delta", "text", "refusal", "arguments", "input") if key in data]
        new += [item[key] for key in ("type", "status") if key in item]
        new += [data["part"]["type"]] if "part" in data else []
        place = [str(data["output_index"])] if "output_index" in data else []
        told.append(" ".join([kind, *place, *new]))
    return told


def call(index=0, name="f", raw='{"x":1}', arguments=..., *, identifier="c1", pieces=2):
    arguments = json.loads(raw) if arguments is ... else arguments
    step = -(-len(raw) // pieces)
    cuts = [core.ArgumentsPiece(index, raw[at : at + step]) for at in range(0, len(raw), step)]
    return [
        core.InvocationStarted(index, identifier, name),
        *cuts,
        core.InvocationEnded(index, identifier, name, arguments, raw),
    ]


SAID = ["created", "in_progress"]
CALLED = [
    "output_item.added 1 function_call in_progress",
    'function_call_arguments.delta 1 {"x"',
    "function_call_arguments.delta 1 :1}",
    'function_call_arguments.done 1 {"x":1}',
    "output_item.done 1 function_call completed",
]
OPENED = ["output_item.added 0 message in_progress", "content_part.added 0 output_text"]
CLOSED = ["output_text.done 0 Hello", "content_part.done 0 output_text", "output_item.done 0 message completed"]
HELLO = [core.TextPiece("Hel"), core.TextPiece("lo")]
TOLD = ["output_text.delta 0 Hel", "output_text.delta 0 lo"]

SEQUENCES = {
    "text": ([START, *HELLO, core.ReplyEnded("stop")], [*SAID, *OPENED, *TOLD, *CLOSED, "completed"]),
    "nothing said": (
        [START, core.TextPiece(""), core.ReasoningPiece(""), core.RefusalPiece(""), core.ReplyEnded("stop")],
        [*SAID, "completed"],
    ),
    "a call closes the text before it": (
        [START, *HELLO, *call(), core.ReplyEnded("invocations")],
        [*SAID, *OPENED, *TOLD, *CLOSED, *CALLED, "completed"],
    ),
    "a call alone opens no message": (
        [START, *call(), core.ReplyEnded("invocations")],
        [*SAID, *[each.replace(" 1 ", " 0 ", 1) for each in CALLED], "completed"],
    ),
    "reasoning, then text": (
        [START, core.ReasoningPiece("h"), core.ReasoningPiece("m"), core.TextPiece("a"), core.ReplyEnded("stop")],
        [
            *SAID,
            "output_item.added 0 reasoning",
            "reasoning_summary_part.added 0 summary_text",
            "reasoning_summary_text.delta 0 h",
            "reasoning_summary_text.delta 0 m",
            "reasoning_summary_text.done 0 hm",
            "reasoning_summary_part.done 0 summary_text",
            "output_item.done 0 reasoning",
            "output_item.added 1 message in_progress",
            "content_part.added 1 output_text",
            "output_text.delta 1 a",
            "output_text.done 1 a",
            "content_part.done 1 output_text",
            "output_item.done 1 message completed",
            "completed",
        ],
    ),
    "reasoning that is only opaque": (
        [START, core.ReasoningPiece("", "sig"), core.ReplyEnded("stop")],
        [*SAID, "output_item.added 0 reasoning", "output_item.done 0 reasoning", "completed"],
    ),
    "text, then a refusal": (
        [START, *HELLO, core.RefusalPiece("no"), core.ReplyEnded("refusal")],
        [
            *SAID,
            *OPENED,
            *TOLD,
            *CLOSED[:2],
            "content_part.added 0 refusal",
            "refusal.delta 0 no",
            "refusal.done 0 no",
            "content_part.done 0 refusal",
            CLOSED[2],
            "completed",
        ],
    ),
    "two calls at once": (
        [
            START,
            call(0)[0],
            call(1, identifier="c2")[0],
            *call(1, identifier="c2", pieces=1)[1:],
            *call(0, pieces=1)[1:],
            core.ReplyEnded("invocations"),
        ],
        [
            *SAID,
            "output_item.added 0 function_call in_progress",
            "output_item.added 1 function_call in_progress",
            'function_call_arguments.delta 1 {"x":1}',
            'function_call_arguments.done 1 {"x":1}',
            "output_item.done 1 function_call completed",
            'function_call_arguments.delta 0 {"x":1}',
            'function_call_arguments.done 0 {"x":1}',
            "output_item.done 0 function_call completed",
            "completed",
        ],
    ),
    "a call without pieces": (
        [
            START,
            core.InvocationStarted(0, "c1", "f"),
            core.InvocationEnded(0, "c1", "f", {}, ""),
            core.ReplyEnded("invocations"),
        ],
        [
            *SAID,
            "output_item.added 0 function_call in_progress",
            "function_call_arguments.delta 0 {}",
            "function_call_arguments.done 0 {}",
            "output_item.done 0 function_call completed",
            "completed",
        ],
    ),
    "a call that was not announced": (
        [core.InvocationEnded(0, "c1", "f", {}, ""), core.ReplyEnded("invocations")],
        [
            *SAID,
            "output_item.added 0 function_call in_progress",
            "function_call_arguments.delta 0 {}",
            "function_call_arguments.done 0 {}",
            "output_item.done 0 function_call completed",
            "completed",
        ],
    ),
    "a custom tool's call is its text": (
        [START, *call(0, "apply_patch", '{"input": "a\\n\\u26c5\\"b"}', pieces=9), core.ReplyEnded("invocations")],
        [
            *SAID,
            "output_item.added 0 custom_tool_call  in_progress".replace("  ", " "),
            "custom_tool_call_input.delta 0 a",
            "custom_tool_call_input.delta 0 \n",
            "custom_tool_call_input.delta 0 ⛅",
            'custom_tool_call_input.delta 0 "b',
            'custom_tool_call_input.done 0 a\n⛅"b',
            "output_item.done 0 custom_tool_call completed",
            "completed",
        ],
    ),
    "a custom tool's call under another key": (
        [START, *call(0, "apply_patch", '{"patch":"p"}'), core.ReplyEnded("invocations")],
        [
            *SAID,
            "output_item.added 0 custom_tool_call in_progress",
            "custom_tool_call_input.delta 0 p",
            "custom_tool_call_input.done 0 p",
            "output_item.done 0 custom_tool_call completed",
            "completed",
        ],
    ),
    "a custom tool's call that is no object": (
        [START, *call(0, "apply_patch", "*** Begin", arguments=None), core.ReplyEnded("invocations")],
        [
            *SAID,
            "output_item.added 0 custom_tool_call in_progress",
            "custom_tool_call_input.delta 0 *** Begin",
            "custom_tool_call_input.done 0 *** Begin",
            "output_item.done 0 custom_tool_call completed",
            "completed",
        ],
    ),
    "a tool search comes whole": (
        [START, *call(0, "tool_search", '{"query":"x"}'), core.ReplyEnded("invocations")],
        [
            *SAID,
            "output_item.added 0 tool_search_call in_progress",
            "output_item.done 0 tool_search_call completed",
            "completed",
        ],
    ),
    "length": (
        [START, *HELLO, core.ReplyEnded("length")],
        [*SAID, *OPENED, *TOLD, *CLOSED[:2], "output_item.done 0 message incomplete", "incomplete"],
    ),
    "a refusal that is not spelled out": ([START, core.ReplyEnded("refusal")], [*SAID, "incomplete"]),
    "a call that breaks off gets no done": (
        [START, *call()[:2], core.InvocationIncomplete(0, "c1", "f", '{"x"', "length"), core.ReplyEnded("length")],
        [*SAID, "output_item.added 0 function_call in_progress", 'function_call_arguments.delta 0 {"x"', "incomplete"],
    ),
    "failed": (
        [START, *HELLO, core.ReplyFailed("provider", "server_error", "x")],
        [*SAID, *OPENED, *TOLD, *CLOSED[:2], "output_item.done 0 message incomplete", "failed"],
    ),
    "failed before it began": ([core.ReplyFailed("provider", "server_error", "x")], [*SAID, "failed"]),
    "no end": (
        [START, *HELLO],
        [*SAID, *OPENED, *TOLD, *CLOSED[:2], "output_item.done 0 message incomplete", "failed"],
    ),
    "nothing": ([], [*SAID, "failed"]),
    "nothing after the end": (
        [START, core.ReplyEnded("stop"), *HELLO, core.ReplyFailed("provider", "x", "y")],
        [*SAID, "completed"],
    ),
    "notes and retries are not sent": (
        [START, core.Note("repaired", "x"), core.ReplyEnded("retry"), START, *HELLO, core.ReplyEnded("stop")],
        [*SAID, *OPENED, *TOLD, *CLOSED, "completed"],
    ),
}


@pytest.mark.parametrize(("events", "told"), SEQUENCES.values(), ids=SEQUENCES)
def test_the_sequence(events, told, judge):
    assert sequence(events) == told
    for data in read(encode(events)):
        if data.get("response", {}).get("error", {}) != {"code": "cut", "message": "the reply broke off"}:
            judge(data)


MIXED = [
    START,
    core.ReasoningPiece("hm", origin="m"),
    core.ReasoningPiece("", "sig", "m"),
    core.TextPiece("I'll look. "),
    *call(0, "ns__g"),
    *call(1, "apply_patch", '{"input":"a"}', identifier="c2"),
    *call(2, "ns__exec", '{"input":"b"}', identifier="c3"),
    *call(3, "tool_search", '{"query":"x"}', identifier="c4"),
    *call(4, "unknown", identifier="c5"),
    core.TextPiece("Done."),
    core.Usage(7, 5, 3, 2),
    core.ReplyEnded("invocations"),
]
OUTPUT = [
    {
        "type": "reasoning",
        "id": "rs_1_0",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "callboard.1.bQ==.ce1f2b0e.sig",
    },
    {
        "type": "message",
        "id": "msg_1_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I'll look. ", "annotations": [], "logprobs": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1_2",
        "call_id": "c1",
        "name": "g",
        "namespace": "ns",
        "arguments": '{"x":1}',
        "status": "completed",
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1_3",
        "call_id": "c2",
        "name": "apply_patch",
        "input": "a",
        "status": "completed",
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1_4",
        "call_id": "c3",
        "name": "exec",
        "namespace": "ns",
        "input": "b",
        "status": "completed",
    },
    {
        "type": "tool_search_call",
        "id": "tsc_1_5",
        "call_id": "c4",
        "execution": "client",
        "arguments": {"query": "x"},
        "status": "completed",
    },
    {
        "type": "function_call",
        "id": "fc_1_6",
        "call_id": "c5",
        "name": "unknown",
        "arguments": '{"x":1}',
        "status": "completed",
    },
    {
        "type": "message",
        "id": "msg_1_7",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}],
    },
]


def test_what_was_lowered_is_restored(judge, judge_response):
    datas = read(encode(MIXED))
    for data in datas:
        judge(data)
    assert datas[-1]["response"]["output"] == OUTPUT
    assert [data["item"] for data in datas if data["type"] == "response.output_item.done"] == OUTPUT
    assert datas[-1]["response"]["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }
    judge_response(datas[-1]["response"])


def test_a_function_that_is_called_tool_search_is_one():
    request = core.Request("m", (), (core.ToolDeclaration("tool_search", "", SCHEMA),))
    (item,) = whole([START, *call(0, "tool_search"), core.ReplyEnded("invocations")], request=request)["output"]
    assert (item["type"], item["name"]) == ("function_call", "tool_search")


def whole(events, **fields):
    return encode_response(events, **{"identifier": "resp_1", "model": "m", "created": 1, "request": REQUEST} | fields)


@pytest.mark.parametrize("events", [MIXED, *[events for events, _ in SEQUENCES.values()]])
def test_the_whole_is_the_terminal_event_s(events, judge_response):
    body = whole(events)
    assert json.loads(msgspec.json.encode(body)) == read(encode(events))[-1]["response"]
    if body["status"] != "failed":
        judge_response(body)


def test_a_retry_leaves_nothing_in_the_whole():
    retried = whole(
        [
            START,
            core.TextPiece("wrong"),
            core.ReplyEnded("retry"),
            START,
            core.TextPiece("right"),
            core.ReplyEnded("stop"),
        ]
    )
    assert retried == whole([START, core.TextPiece("right"), core.ReplyEnded("stop")])


def test_calls_of_a_retry_are_other_calls():
    events = [
        START,
        *call()[:2],
        core.ReplyEnded("retry"),
        START,
        *call(identifier="c2"),
        core.ReplyEnded("invocations"),
    ]
    output = read(encode(events))[-1]["response"]["output"]
    assert [(item["call_id"], item["status"]) for item in output] == [("c1", "incomplete"), ("c2", "completed")]


def test_usage_is_never_null():
    usage = read(encode([START, core.ReplyEnded("stop")]))[-1]["response"]["usage"]
    assert usage == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }


def test_a_failure_says_whose_and_what():
    response = read(encode([START, core.ReplyFailed("provider", "context_length_exceeded", "too long")]))[-1][
        "response"
    ]
    assert (response["status"], response["error"]) == (
        "failed",
        {"code": "context_length_exceeded", "message": "too long"},
    )


def test_incomplete_says_why():
    for reason, said in (("length", "max_output_tokens"), ("filter", "content_filter")):
        response = read(encode([START, core.ReplyEnded(reason)]))[-1]["response"]
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": said})


def test_a_heartbeat_is_an_event_between_the_first_and_the_last():
    stage = encoder()
    frames = stage.heartbeat() + stage.heartbeat() + stage.feed(START) + stage.feed(core.TextPiece("a"))
    frames += stage.heartbeat() + stage.feed(core.ReplyEnded("stop"))
    assert stage.heartbeat() == []
    kinds = [data["type"].removeprefix("response.") for data in read(frames)]
    assert kinds[:3] == ["created", "in_progress", "in_progress"]
    assert kinds.count("in_progress") == 3
    assert kinds[-1] == "completed"


def opening(**fields):
    return read(encode([START], **fields))[0]["response"]


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
        TOOLS[:1],
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
    datas = read(encode(events, compat_events=True))
    told = [" ".join([data["type"], *[str(data[key]) for key in ("output_index",) if key in data]]) for data in datas]
    assert told == SEED.split("\n")[1:-1]
    told = {data["type"]: data for data in datas}
    at = {"item_id": "fc_1_1", "output_index": 1}
    begin, end = told["response.output_tool_call.begin"], told["response.output_tool_call.end"]
    assert begin == {"type": begin["type"], **at, "call_id": "call_xyz", "name": "get_weather", "sequence_number": 6}
    assert end == {"type": end["type"], **at, "name": "get_weather", "arguments": raw, "sequence_number": 11}
    assert told["response.done"]["response"] == told["response.completed"]["response"]
    assert [item["type"] for item in told["response.done"]["response"]["output"]] == ["message", "function_call"]


@table("events", [events for events, _ in SEQUENCES.values()])
def test_the_seed_s_events_have_one_end_too(events):
    kinds = [data["type"] for data in read(encode(events, compat_events=True))]
    assert kinds[-1] == "response.done"
    assert kinds[-2] in {"response.completed", "response.incomplete", "response.failed"}
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]


# What a reply may be, and what both halves say of it.
PIECES = {core.TextPiece: "text", core.ReasoningPiece: "text", core.RefusalPiece: "text", core.ArgumentsPiece: "json"}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
ARGUMENTS = st.dictionaries(TEXT, TEXT | st.integers(-9, 9) | st.none() | st.lists(TEXT, max_size=2), max_size=2)
NAMES = {tool.name: tool.kind for tool in TOOLS[:4]}


def coalesced(events):
    """The events with neighbouring pieces of one kind joined."""
    joined = []
    for (kind, _, opaque), group in groupby(
        events, key=lambda e: (type(e), getattr(e, "index", 0), getattr(e, "opaque", ""))
    ):
        members = list(group)
        if kind in PIECES and not opaque:
            text = "".join(getattr(event, PIECES[kind]) for event in members)
            members = [msgspec.structs.replace(members[0], **{PIECES[kind]: text})]
        joined += members
    return joined


@st.composite
def replies(draw):
    """Pieces of all kinds in any order, calls interleaved, an end that fits."""
    names = draw(st.lists(st.sampled_from(sorted(NAMES)), max_size=3))
    values = [{"input": draw(TEXT)} if NAMES[name] == "custom" else draw(ARGUMENTS) for name in names]
    raws = [msgspec.json.encode(value).decode() for value in values]
    events = []
    at = [0] * len(raws)
    while True:
        waiting = [index for index in range(len(raws)) if at[index] < len(raws[index])]
        if draw(st.integers(0, 3)) == 0 or not waiting:
            kind = draw(st.sampled_from([core.TextPiece, core.ReasoningPiece, core.RefusalPiece]))
            text = draw(TEXT)
            if kind is core.ReasoningPiece:
                events.append(core.ReasoningPiece(text, origin="m"))
                if draw(st.booleans()):
                    events.append(core.ReasoningPiece("", draw(TEXT), "m"))
            else:
                events.append(kind(text))
            if not waiting:
                break
        index = draw(st.sampled_from(waiting))
        for begun in range(index + 1):
            if at[begun] == 0 and not any(isinstance(e, core.InvocationStarted) and e.index == begun for e in events):
                events.append(core.InvocationStarted(begun, f"c{begun}", names[begun]))
        step = draw(st.integers(1, 12))
        events.append(core.ArgumentsPiece(index, raws[index][at[index] : at[index] + step]))
        at[index] += step
        if at[index] >= len(raws[index]):
            events.append(core.InvocationEnded(index, f"c{index}", names[index], values[index], raws[index]))
    if draw(st.booleans()):
        events.append(core.Usage(7, 5, draw(st.integers(0, 7)), draw(st.integers(0, 5))))
    refused = any(isinstance(event, core.RefusalPiece) for event in events)
    natural = "invocations" if raws else "refusal" if refused else "stop"
    return [
        core.ReplyStarted("resp_1", "m"),
        *events,
        core.ReplyEnded(draw(st.sampled_from([natural, "length", "filter"]))),
    ]


def decode(frames):
    stage = StreamDecoder(DecodeContext(identify=minted))
    return [event for _, data in frames for event in stage.feed(data.decode())] + stage.finish()


def pieces_aside(events):
    """Where pieces of arguments stand among other things is the wire's affair; what they say is not."""
    said = [event for event in events if not isinstance(event, core.ArgumentsPiece)]
    spelled = {}
    for event in events:
        if isinstance(event, core.ArgumentsPiece):
            spelled[event.index] = spelled.get(event.index, "") + event.json
    return coalesced(said), spelled


@given(replies())
def test_what_is_encoded_is_decoded(events):
    assert pieces_aside(decode(encode(events))) == pieces_aside(events)


@given(replies())
def test_compat_events_say_the_same(events):
    assert pieces_aside(decode(encode(events, compat_events=True)))[1] == pieces_aside(events)[1]


@given(replies())
def test_the_whole_reply_says_what_the_stream_says(events):
    said = decode_response(whole(events), DecodeContext(identify=minted))
    assert said == decode_response(msgspec.json.encode(whole(events)), DecodeContext(identify=minted))
    streamed = decode(encode(events))
    assert (said[0], said[-1]) == (streamed[0], streamed[-1])
    for kind in (core.InvocationEnded, core.Usage):
        among = [sorted(map(repr, filter(lambda e: isinstance(e, kind), each))) for each in (said, streamed)]
        assert among[0] == among[1]
    for kind in (core.TextPiece, core.RefusalPiece, core.ReasoningPiece):
        among = ["".join(e.text for e in each if isinstance(e, kind)) for each in (said, streamed)]
        assert among[0] == among[1]


EVENTS = st.one_of(
    st.builds(core.ReplyStarted),
    st.builds(core.TextPiece, TEXT | st.just("")),
    st.builds(core.ReasoningPiece, TEXT | st.just(""), TEXT | st.just(""), st.sampled_from(["", "m", "n"])),
    st.builds(core.RefusalPiece, TEXT | st.just("")),
    st.builds(
        core.InvocationStarted,
        st.integers(0, 2),
        st.sampled_from(["a", "b"]),
        st.sampled_from([*NAMES, "tool_search", "?"]),
    ),
    st.builds(
        core.ArgumentsPiece, st.integers(0, 2), st.sampled_from(['{"input":"', "x", '"}', "\\", "u00e9", '"', ""])
    ),
    st.builds(
        core.InvocationEnded,
        st.integers(0, 2),
        st.just("a"),
        st.sampled_from([*NAMES, "?"]),
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
    datas = read(encode([*events, *last], compat_events=seeded))
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

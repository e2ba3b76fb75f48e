"""A backend's chunks, with every backend's habits: each row of the vectors, whole, split and cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core import (
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
)
from callboard.text.sse import SSEDecoder, encode_frame
from callboard.wires.chat import StreamDecoder
from callboard.wires.common.reply_stream import DecodeContext

VECTORS = Path(__file__).parents[2] / "vectors" / "chat"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted(VECTORS.glob("*.json"))
    for case in json.loads(path.read_text("utf-8"))
]


def minted(index, _name):
    return f"minted_{index}"


def decoder(case):
    declared = case.get("declared")
    return StreamDecoder(
        DecodeContext(
            names=case.get("names", {}),
            identify=minted,
            declared=None if declared is None else frozenset(declared),
        )
    )


def payloads(case):
    return [p if isinstance(p, str) else json.dumps(p, ensure_ascii=False) for p in case["payloads"]]


def run(stage, items, why="stop"):
    return [event for item in items for event in stage.feed(item)] + stage.finish(why)


def plain(events):
    """Failures without what only a person reads."""
    return [
        msgspec.structs.replace(event, excerpt="", message="..." if event.code == "malformed" else event.message)
        if isinstance(event, ReplyFailed)
        else event
        for event in events
    ]


def expected(case):
    return msgspec.convert(case["events"], list[Event])


@pytest.mark.parametrize("case", CASES)
def test_whole(case):
    stage = decoder(case)
    why = case.get("why", "stop")
    assert plain(run(stage, payloads(case), why)) == expected(case)
    assert stage.feed(payloads(case)[0] if payloads(case) else "[DONE]") == []
    assert stage.finish() == []


def run_bytes(stage, chunks, why="stop"):
    framing = SSEDecoder()
    frames = [frame for chunk in chunks for frame in framing.feed(chunk)] + framing.finish(why)
    return run(stage, [frame.data for frame in frames], why)


def stream(case):
    return b"".join(encode_frame(payload.encode()) for payload in payloads(case))


@pytest.mark.parametrize("case", CASES)
def test_split_at_every_byte(case):
    sent = stream(case)
    why = case.get("why", "stop")
    events = run_bytes(decoder(case), [sent[i : i + 1] for i in range(len(sent))], why)
    assert plain(events) == expected(case)


@pytest.mark.parametrize("case", CASES)
def test_cut_at_every_prefix(case):
    """Never an exception, one end, and no call is whole before all of it has come."""
    sent = stream(case)
    closed = [event for event in expected(case) if isinstance(event, InvocationEnded | InvocationIncomplete)]
    whole = {(event.identifier, event.raw) for event in closed}
    text = "".join(event.text for event in expected(case) if isinstance(event, TextPiece))
    for end in range(len(sent)):
        for why in ("stop", "cut"):
            events = run_bytes(decoder(case), [sent[:end]], why)
            assert [type(event) in {ReplyEnded, ReplyFailed} for event in events].index(True) == len(events) - 1
            assert [type(event) is ReplyStarted for event in events][1:].count(True) == 0
            assert all((e.identifier, e.raw) in whole for e in events if isinstance(e, InvocationEnded))
            assert text.startswith("".join(event.text for event in events if isinstance(event, TextPiece)))


@given(st.sampled_from([case.values[0] for case in CASES]), st.data())
def test_any_split(case, data):
    sent = stream(case)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12))), len(sent)]
    chunks = [sent[a:b] for a, b in pairwise(edges)]
    events = run_bytes(decoder(case), chunks, case.get("why", "stop"))
    assert plain(events) == expected(case)


KEYS = """
    id model choices index delta message content finish_reason tool_calls function name arguments usage error
    prompt_tokens prompt_tokens_details cached_tokens type text function_call reasoning code
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["stop", "length", "f", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4),
    max_leaves=12,
)
CALLS = st.fixed_dictionaries(
    {}, optional={"index": JSON, "id": JSON, "function": st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON})}
)  # fmt: skip
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {"delta": st.fixed_dictionaries({}, optional={"content": JSON, "tool_calls": st.lists(CALLS, max_size=3)})},
                optional={"finish_reason": st.sampled_from(["stop", "length", None])},
            ),
            max_size=2,
        ),
        "usage": JSON,
    },
)  # fmt: skip


@given(st.lists(JSON | CHUNKS, max_size=6), st.sampled_from(["stop", "cut", "length", "cancelled"]))
def test_any_json_is_taken(chunks, why):
    events = run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(chunk) for chunk in chunks], why)
    assert isinstance(events[-1], ReplyEnded | ReplyFailed)
    assert sum(isinstance(event, ReplyEnded | ReplyFailed) for event in events) == 1
    opened = [event.index for event in events if isinstance(event, InvocationStarted)]
    closed = [event.index for event in events if isinstance(event, InvocationEnded | InvocationIncomplete)]
    assert opened == list(range(len(opened)))
    assert sorted(closed) == list(range(len(closed)))
    assert set(opened) <= set(closed)
    assert len({event.identifier for event in events if isinstance(event, InvocationStarted)}) == len(opened)


@pytest.mark.parametrize("payload", ["\ud83d", '{"choices":[{"delta":{"content":"\ud83d"}}]}'])
def test_lone_surrogates_are_malformed(payload):
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed(payload)
    assert event.code == "malformed"


def test_an_excerpt_is_short():
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed("<html>" + "x" * 10_000)
    assert len(event.excerpt) == 500
    assert event.excerpt.startswith("<html>xxx")


def test_reasoning_is_marked_with_the_model_that_was_asked():
    events = StreamDecoder(DecodeContext(identify=minted, origin="asked")).feed(
        '{"model":"answered","choices":[{"delta":{"reasoning_content":"hm"}}]}'
    )
    assert [event.origin for event in events[1:]] == ["asked"]


def test_a_megabyte_of_arguments_in_pieces():
    """100,000 deltas of one call: this finishes because a piece costs the same wherever it stands."""
    stage = StreamDecoder(DecodeContext(identify=minted))
    stage.feed(
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"x\\":\\""}}]}}]}'
    )
    piece = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"0123456789"}}]}}]}'
    for _ in range(100_000):
        assert len(stage.feed(piece)) == 1
    stage.feed('{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"}"}}]}}]}')
    (ended, last) = stage.feed('{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}') + stage.feed("[DONE]")
    assert len(ended.arguments["x"]) == 1_000_000
    assert last == ReplyEnded("invocations")


def test_many_calls():
    stage = StreamDecoder(DecodeContext(identify=minted))
    for index in range(20_000):
        stage.feed(
            f'{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"a","function":{{"name":"f"}}}}]}}}}]}}'
        )
    events = stage.feed("[DONE]")
    assert len({event.identifier for event in events if isinstance(event, InvocationEnded)}) == 20_000

"""What the stream decoder of Anthropic Messages does besides the rows of `test_replay`."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replay import decoder, minted, payloads, rows, run

from callboard import core
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.messages import StreamDecoder

OFFICIAL = [pytest.param(row, id=name) for name, row in rows("messages").items() if row.get("official")]


@cache
def official_events():
    from anthropic.types import RawMessageStreamEvent
    from pydantic import TypeAdapter

    return TypeAdapter(RawMessageStreamEvent)


@table("case", OFFICIAL)
def test_the_official_rows_are_anthropic_s(case):
    events = official_events()
    for frame in case["payloads"]:
        if frame["type"] != "ping":
            events.validate_python(frame)


def frame_paths(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from frame_paths(value[key], (*path, key))


def altered(frame, path, value):
    """The frame with something else, or nothing, at that place."""
    if not path:
        return value
    copy = dict(frame)
    if len(path) == 1 and value is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = altered(copy[path[0]], path[1:], value)
    return copy


@table("case", OFFICIAL)
def test_anything_at_every_field(case):
    """Null, nothing and each wrong type in place of each field: one end, no exception."""
    for place, frame in enumerate(case["payloads"]):
        for path in list(frame_paths(frame))[1:]:
            for value in (..., None, True, -1, 1.5, "", "x", [], [1], {}, {"type": "x"}):
                frames = [*case["payloads"]]
                frames[place] = altered(frame, path, value)
                events = run(decoder("messages", case), payloads({"payloads": frames}))
                ends = [isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events]
                assert ends.index(True) == len(ends) - 1
                opened = [event.index for event in events if isinstance(event, core.InvocationStarted)]
                closed = [
                    event.index
                    for event in events
                    if isinstance(event, core.InvocationEnded | core.InvocationIncomplete)
                ]
                assert set(opened) <= set(closed)
                assert len(closed) == len(set(closed))


@given(st.permutations(rows("messages")["calls: as Anthropic sends it"]["payloads"]))
def test_any_order(frames):
    events = run(StreamDecoder(DecodeContext(identify=minted)), payloads({"payloads": frames}))
    assert [isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events].index(True) == len(events) - 1
    assert isinstance(events[0], core.ReplyStarted)
    assert sum(isinstance(event, core.ReplyStarted) for event in events) == 1


@table("payload", ["\ud83d", '{"type":"ping","x":"\ud83d"}', "[" * 100_000, "null", "3", '""'])
def test_what_is_no_frame_is_malformed(payload):
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed(payload)
    assert event.code == "malformed"
    assert len(event.excerpt) <= 500


def test_reasoning_is_marked_with_the_model_that_was_asked():
    stage = StreamDecoder(DecodeContext(identify=minted, origin="asked"))
    stage.feed('{"type":"message_start","message":{"model":"answered"}}')
    (piece,) = stage.feed('{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}')
    assert piece.origin == "asked"


def test_a_megabyte_of_arguments_in_pieces():
    """100,000 deltas of one call: this finishes because a piece costs the same wherever it stands."""
    stage = StreamDecoder(DecodeContext(identify=minted))
    stage.feed('{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f"}}')
    piece = '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}'
    stage.feed(piece % r"{\"x\":\"")
    for _ in range(100_000):
        assert len(stage.feed(piece % "0123456789")) == 1
    stage.feed(piece % r"\"}")
    (ended,) = stage.feed('{"type":"content_block_stop","index":0}')
    assert len(ended.arguments["x"]) == 1_000_000


def test_many_calls():
    stage = StreamDecoder(DecodeContext(identify=minted))
    opening = {"type": "tool_use", "id": "a", "name": "f"}
    for index in range(20_000):
        stage.feed(json.dumps({"type": "content_block_start", "index": index, "content_block": opening}))
    events = stage.feed('{"type":"message_stop"}')
    assert len({event.identifier for event in events if isinstance(event, core.InvocationEnded)}) == 20_000

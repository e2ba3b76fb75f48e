"""A backend's frames, with every backend's habits: each row of the vectors, whole, split and cut."""

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
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.messages import StreamDecoder

VECTORS = Path(__file__).parents[2] / "vectors" / "messages"
KINDS = ("text", "thinking", "calls", "endings", "usage", "failures")
ROWS = [
    (f"{kind}: {row['name']}", row)
    for kind in KINDS
    for row in map(json.loads, (VECTORS / f"{kind}.jsonl").read_text("utf-8").splitlines())
]
CASES = [pytest.param(row, id=name) for name, row in ROWS]


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
    return [frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False) for frame in case["frames"]]


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
    assert plain(run(stage, payloads(case), case.get("why", "stop"))) == expected(case)
    assert stage.feed('{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"late"}}') == []
    assert stage.finish() == []


def run_bytes(stage, chunks, why="stop"):
    framing = SSEDecoder()
    frames = [frame for chunk in chunks for frame in framing.feed(chunk)] + framing.finish(why)
    return run(stage, [frame.data for frame in frames], why)


def stream(case, ending=b"\n"):
    sent = b": a comment\n\n" + b"".join(encode_frame(payload.encode(), b"x") for payload in payloads(case))
    return sent.replace(b"\n", ending)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_split_at_every_byte(case, ending):
    sent = stream(case, ending)
    events = run_bytes(decoder(case), [sent[i : i + 1] for i in range(len(sent))], case.get("why", "stop"))
    assert plain(events) == expected(case)


@pytest.mark.parametrize("case", CASES)
def test_cut_at_every_prefix(case):
    """Never an exception, one end, and no call is whole before all of it has come."""
    sent = stream(case)
    closed = [event for event in expected(case) if isinstance(event, InvocationEnded | InvocationIncomplete)]
    whole = {(event.identifier, event.raw) for event in closed}
    text = "".join(event.text for event in expected(case) if isinstance(event, TextPiece))
    for end in range(len(sent)):
        whole_frames = sent[:end].endswith(b"\n\n")  # a cut drops the last frame, so that only these differ
        for why in ("stop", "cut") if whole_frames else ("stop",):
            events = run_bytes(decoder(case), [sent[:end]], why)
            assert [type(event) in {ReplyEnded, ReplyFailed} for event in events].index(True) == len(events) - 1
            assert [type(event) is ReplyStarted for event in events][1:].count(True) == 0
            assert all((e.identifier, e.raw) in whole for e in events if isinstance(e, InvocationEnded))
            assert text.startswith("".join(event.text for event in events if isinstance(event, TextPiece)))


@given(st.sampled_from([row for _, row in ROWS]), st.data())
def test_any_split(case, data):
    sent = stream(case)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12))), len(sent)]
    events = run_bytes(decoder(case), [sent[a:b] for a, b in pairwise(edges)], case.get("why", "stop"))
    assert plain(events) == expected(case)


@pytest.mark.parametrize("case", [param for param in CASES if param.values[0].get("official")])
def test_the_official_rows_are_anthropic_s(case):
    from anthropic.types import RawMessageStreamEvent
    from pydantic import TypeAdapter

    events = TypeAdapter(RawMessageStreamEvent)
    for frame in case["frames"]:
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


@pytest.mark.parametrize("case", [param for param in CASES if param.values[0].get("official")])
def test_anything_at_every_field(case):
    """Null, nothing and each wrong type in place of each field: one end, no exception."""
    for place, frame in enumerate(case["frames"]):
        for path in list(frame_paths(frame))[1:]:
            for value in (..., None, True, -1, 1.5, "", "x", [], [1], {}, {"type": "x"}):
                frames = [*case["frames"]]
                frames[place] = altered(frame, path, value)
                events = run(decoder(case), payloads({"frames": frames}))
                ends = [isinstance(event, ReplyEnded | ReplyFailed) for event in events]
                assert ends.index(True) == len(ends) - 1
                opened = [event.index for event in events if isinstance(event, InvocationStarted)]
                closed = [event.index for event in events if isinstance(event, InvocationEnded | InvocationIncomplete)]
                assert set(opened) <= set(closed)
                assert len(closed) == len(set(closed))


@given(st.permutations(next(row for name, row in ROWS if name == "calls: as Anthropic sends it")["frames"]))
def test_any_order(frames):
    events = run(StreamDecoder(DecodeContext(identify=minted)), payloads({"frames": frames}))
    assert [isinstance(event, ReplyEnded | ReplyFailed) for event in events].index(True) == len(events) - 1
    assert isinstance(events[0], ReplyStarted)
    assert sum(isinstance(event, ReplyStarted) for event in events) == 1


@pytest.mark.parametrize("payload", ["\ud83d", '{"type":"ping","x":"\ud83d"}', "[" * 100_000, "null", "3", '""'])
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
    assert len({event.identifier for event in events if isinstance(event, InvocationEnded)}) == 20_000

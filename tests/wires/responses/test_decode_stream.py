"""What the stream decoder of the Responses wire does besides the rows of `test_replay`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replay import decoder, minted, payloads, rows, run, terminals

from callboard import core
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.responses import StreamDecoder, decode_response

ROWS = [*rows("responses").values()]


@given(st.sampled_from(ROWS), st.data())
def test_any_order(case, data):
    """Frames that come in any order, twice or not at all."""
    sent = data.draw(st.lists(st.sampled_from(payloads(case) or ["[DONE]"]), max_size=12))
    check(run(decoder("responses", case), sent))


def check(events):
    assert terminals(events) == events[-1:]
    opened = [event.index for event in events if isinstance(event, core.InvocationStarted)]
    closed = [event.index for event in events if isinstance(event, core.InvocationEnded | core.InvocationIncomplete)]
    assert opened == sorted(opened)
    assert sorted(closed) == list(range(len(closed)))
    assert set(opened) <= set(closed)
    assert len({event.identifier for event in events if isinstance(event, core.InvocationStarted)}) == len(opened)


KEYS = """
    type delta output_index item_id content_index summary_index text refusal arguments input name item response error
    code message id status role content summary encrypted_content call_id namespace execution output usage model
    incomplete_details reason input_tokens input_tokens_details cached_tokens
"""
WORDS = """
    message reasoning function_call custom_tool_call tool_search_call web_search_call output_text refusal summary_text
    completed incomplete failed in_progress client f c1
"""
TYPES = sorted({p["type"] for row in ROWS for p in row["payloads"] if isinstance(p, dict) and "type" in p})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(max_size=3) | st.sampled_from(WORDS.split()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=12,
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(WORDS.split()[:6])},
    optional=dict.fromkeys(
        ("id", "call_id", "name", "namespace", "arguments", "input", "content", "status", "summary"), JSON
    ),
)
FRAMES = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "item": ITEMS,
        "response": st.fixed_dictionaries(
            {},
            optional={"output": st.lists(ITEMS, max_size=3), "status": JSON, "error": JSON, "usage": JSON, "id": JSON},
        ),
    }
    | dict.fromkeys(("delta", "output_index", "item_id", "content_index", "arguments", "name", "error", "text"), JSON),
)


@given(st.lists(FRAMES | JSON, max_size=8), st.sampled_from(["stop", "cut", "length", "cancelled"]))
def test_any_json_is_taken(frames, why):
    check(run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(frame) for frame in frames], why))


@given(st.lists(ITEMS, max_size=4), JSON, JSON)
def test_any_whole_reply_is_taken(output, status, error):
    check(decode_response({"output": output, "status": status, "error": error}, DecodeContext(identify=minted)))


FULL = [p for row in ROWS for p in row["payloads"] if isinstance(p, dict)]


def broken(value, wrong):
    """The value with each of its fields, at any depth, replaced or left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {**value, key: wrong}
            yield {name: other for name, other in value.items() if name != key}
            yield from ({**value, key: each} for each in broken(inner, wrong))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield [*value[:place], wrong, *value[place + 1 :]]
            yield from ([*value[:place], each, *value[place + 1 :]] for each in broken(inner, wrong))


@table("wrong", [None, 3, "x", [], {}, [None], {"type": 3}], ids=json.dumps)
def test_every_field_wrong_or_absent(wrong):
    unlike = {json.dumps(frame) for frame in FULL}
    for frame in sorted(unlike):
        for each in broken(json.loads(frame), wrong):
            check(run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(each)]))


@table("payload", ["\ud83d", '{"type":"response.output_text.delta","delta":"\ud83d"}'])
def test_lone_surrogates_are_malformed(payload):
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed(payload)
    assert event.code == "malformed"


@table(
    "body",
    [b"<html>", b"\xff\xfe", "", "[]", "null", b"{}", {}, {"output": 3}, {"output": ["x"]}, {"status": "queued"}],
    ids=repr,
)
def test_what_is_no_reply_has_failed(body):
    (event,) = decode_response(body, DecodeContext(identify=minted))
    assert (event.party, event.code) == ("provider", "malformed")


def test_a_whole_reply_that_is_an_error():
    assert decode_response('{"error":{"message":"x","code":"y"}}', DecodeContext(identify=minted)) == [
        core.ReplyFailed("provider", "y", "x", '{"error":{"message":"x","code":"y"}}')
    ]


def test_reasoning_is_marked_with_the_model_that_was_asked():
    stage = StreamDecoder(DecodeContext(identify=minted, origin="asked"))
    events = stage.feed('{"type":"response.reasoning_text.delta","delta":"hm"}')
    assert events[1].origin == "asked"


def test_a_megabyte_of_arguments_in_pieces():
    """100,000 deltas of one call: this finishes because a piece costs the same wherever it stands."""
    stage = StreamDecoder(DecodeContext(identify=minted))
    item = {"type": "function_call", "id": "a", "call_id": "c", "name": "f"}
    stage.feed(json.dumps({"type": "response.output_item.added", "output_index": 0, "item": item}))
    delta = {"type": "response.function_call_arguments.delta", "item_id": "a", "output_index": 0}
    stage.feed(json.dumps({**delta, "delta": '{"x":"'}))
    piece = json.dumps({**delta, "delta": "0123456789"})
    for _ in range(100_000):
        assert len(stage.feed(piece)) == 1
    stage.feed(json.dumps({**delta, "delta": '"}'}))
    (ended, last) = stage.feed('{"type":"response.completed","response":{"status":"completed"}}')
    assert len(ended.arguments["x"]) == 1_000_000
    assert last == core.ReplyEnded("invocations")


def test_many_calls():
    stage = StreamDecoder(DecodeContext(identify=minted))
    for index in range(20_000):
        item = {"type": "function_call", "call_id": "a", "name": "f"}
        stage.feed(json.dumps({"type": "response.output_item.added", "output_index": index, "item": item}))
    events = stage.feed('{"type":"response.completed","response":{"status":"completed"}}')
    assert len({event.identifier for event in events if isinstance(event, core.InvocationEnded)}) == 20_000

"""What the stream decoder of Gemini does besides the rows of `test_replay`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replay import context, expected, minted, payloads, rows, run, without_prose

from callboard import core
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.gemini import StreamDecoder, decode_response

WHOLE = [pytest.param(row, id=name) for name, row in rows("gemini").items() if not row.get("why") and row["payloads"]]


@table("case", [case for case in WHOLE if "finishReason" in json.dumps(case.values[0]["payloads"])])
def test_a_list_of_chunks_is_the_stream(case):
    """What comes without `alt=sse`; a body that came whole needs no finishReason, a stream does."""
    chunks = [chunk for p in payloads(case) if p[0] in "[{" and p != "[DONE]" for chunk in [json.loads(p)]]
    if any(isinstance(chunk, list) for chunk in chunks):
        chunks = [inner for chunk in chunks for inner in chunk]
    if len(chunks) < len(case["payloads"]):
        chunks = chunks[:1]  # what stands behind a proxy's [DONE] is no part of the reply
    body = json.dumps(chunks, indent=2)
    for given_body in (body, body.encode(), chunks):
        assert without_prose(decode_response(given_body, context(case))) == expected(case)


PART = {"text": "a", "thought": True, "thoughtSignature": "QQ=="}
CALL = {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}, "willContinue": False, "partialArgs": []}}
FULL = {
    "candidates": [
        {"index": 0, "content": {"parts": [PART, CALL], "role": "model"}, "finishReason": "STOP", "finishMessage": "m"}
    ],
    "usageMetadata": {
        "promptTokenCount": 1,
        "candidatesTokenCount": 1,
        "thoughtsTokenCount": 1,
        "cachedContentTokenCount": 1,
    },
    "promptFeedback": {"blockReason": ""},
    "responseId": "r",
    "modelVersion": "m",
    "error": None,
}


def spoiled(value, wrong):
    """The value with each of its places, one at a time, replaced by `wrong`."""
    yield wrong
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: each} for each in spoiled(inner, wrong))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from ([*value[:place], each, *value[place + 1 :]] for each in spoiled(inner, wrong))


@table("wrong", [None, True, 0, -1.5, "x", [], {}, [None], [[]], {"x": None}, "[DONE]"])
def test_anything_at_every_field(wrong):
    for chunk in spoiled(FULL, wrong):
        events = run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(chunk), json.dumps(FULL)])
        assert sum(isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events) == 1
        assert isinstance(events[-1], core.ReplyEnded | core.ReplyFailed)
        whole = decode_response(
            chunk if isinstance(chunk, dict | list) else json.dumps(chunk), DecodeContext(identify=minted)
        )
        assert isinstance(whole[-1], core.ReplyEnded | core.ReplyFailed)


KEYS = """
    candidates content parts text thought thoughtSignature functionCall name id args finishReason index error code
    status message usageMetadata promptTokenCount promptFeedback blockReason willContinue
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["STOP", "OTHER", "f", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "text": JSON,
        "thought": JSON,
        "thoughtSignature": JSON,
        "functionCall": st.fixed_dictionaries(
            {}, optional={"name": JSON, "args": JSON, "id": JSON, "willContinue": JSON}
        ),
    },
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "candidates": st.lists(
            st.fixed_dictionaries(
                {"content": st.fixed_dictionaries({}, optional={"parts": st.lists(PARTS, max_size=3)})},
                optional={"finishReason": st.sampled_from(["STOP", "OTHER", "MAX_TOKENS", None])},
            ),
            max_size=2,
        ),
        "usageMetadata": JSON,
    },
)


@given(st.lists(JSON | CHUNKS, max_size=6), st.sampled_from(["stop", "cut", "length", "cancelled"]))
def test_any_json_is_taken(chunks, why):
    events = run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(chunk) for chunk in chunks], why)
    assert isinstance(events[-1], core.ReplyEnded | core.ReplyFailed)
    assert sum(isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events) == 1
    opened = [event.index for event in events if isinstance(event, core.InvocationStarted)]
    closed = [event.index for event in events if isinstance(event, core.InvocationEnded | core.InvocationIncomplete)]
    assert closed == list(range(len(closed)))
    assert set(opened) <= set(closed)
    assert len({event.identifier for event in events if isinstance(event, core.InvocationStarted)}) == len(opened)


@table("payload", ["\ud83d", '{"candidates":[{"content":{"parts":[{"text":"\ud83d"}]}}]}', "[" * 5000])
def test_nonsense_is_malformed(payload):
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed(payload)
    assert event.code == "malformed"


def test_an_excerpt_is_short():
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed("<html>" + "x" * 10_000)
    assert len(event.excerpt) == 500
    assert event.excerpt.startswith("<html>xxx")


def test_reasoning_is_marked_with_the_model_that_was_asked():
    chunk = {"modelVersion": "answered", "candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]}
    events = StreamDecoder(DecodeContext(identify=minted, origin="asked")).feed(json.dumps(chunk))
    assert [event.origin for event in events[1:]] == ["asked"]


def test_many_calls():
    stage = StreamDecoder(DecodeContext(identify=minted))
    chunk = '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","id":"a"}}]}}]}'
    events = [event for _ in range(20_000) for event in stage.feed(chunk)]
    assert len({event.identifier for event in events if isinstance(event, core.InvocationEnded)}) == 20_000

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
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.gemini import StreamDecoder, decode_response

VECTORS = Path(__file__).parents[2] / "vectors" / "gemini"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted(VECTORS.glob("*.json"))
    for case in json.loads(path.read_text("utf-8"))
]
WHOLE = [case for case in CASES if not case.values[0].get("why") and case.values[0]["payloads"]]


def minted(index, _name):
    return f"minted_{index}"


def options(case):
    declared = case.get("declared")
    return {
        "names": case.get("names", {}),
        "identify": minted,
        "declared": None if declared is None else frozenset(declared),
    }


def decoder(case):
    return StreamDecoder(DecodeContext(**options(case)))


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
    assert plain(run(stage, payloads(case), case.get("why", "stop"))) == expected(case)
    assert stage.feed('{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}') == []
    assert stage.finish() == []


def run_bytes(stage, chunks, why="stop"):
    framing = SSEDecoder()
    frames = [frame for chunk in chunks for frame in framing.feed(chunk)] + framing.finish(why)
    return run(stage, [frame.data for frame in frames], why)


def stream(case):
    """As Google frames it, with carriage returns."""
    return b"".join(encode_frame(payload.encode()) for payload in payloads(case)).replace(b"\n", b"\r\n")


@pytest.mark.parametrize("case", CASES)
def test_split_at_every_byte(case):
    sent = stream(case)
    events = run_bytes(decoder(case), [sent[i : i + 1] for i in range(len(sent))], case.get("why", "stop"))
    assert plain(events) == expected(case)


@pytest.mark.parametrize("case", CASES)
def test_cut_at_every_prefix(case):
    """Never an exception, one end, and no call is whole before all of it has come."""
    sent = stream(case)
    whole = {(event.identifier, event.raw) for event in expected(case) if isinstance(event, InvocationEnded)}
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
    events = run_bytes(decoder(case), [sent[a:b] for a, b in pairwise(edges)], case.get("why", "stop"))
    assert plain(events) == expected(case)


@pytest.mark.parametrize("case", [case for case in WHOLE if "finishReason" in json.dumps(case.values[0]["payloads"])])
def test_a_list_of_chunks_is_the_stream(case):
    """What comes without `alt=sse`; a body that came whole needs no finishReason, a stream does."""
    chunks = [chunk for p in payloads(case) if p[0] in "[{" and p != "[DONE]" for chunk in [json.loads(p)]]
    if any(isinstance(chunk, list) for chunk in chunks):
        chunks = [inner for chunk in chunks for inner in chunk]
    if len(chunks) < len(case["payloads"]):
        chunks = chunks[:1]  # what stands behind a proxy's [DONE] is no part of the reply
    body = json.dumps(chunks, indent=2)
    for given_body in (body, body.encode(), chunks):
        assert plain(decode_response(given_body, DecodeContext(**options(case)))) == expected(case)


PART = {"text": "a", "thought": True, "thoughtSignature": "QQ=="}
CALL = {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}, "willContinue": False, "partialArgs": []}}
FULL = {
    "candidates": [{"index": 0, "content": {"parts": [PART, CALL], "role": "model"}, "finishReason": "STOP", "finishMessage": "m"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "thoughtsTokenCount": 1, "cachedContentTokenCount": 1},
    "promptFeedback": {"blockReason": ""},
    "responseId": "r",
    "modelVersion": "m",
    "error": None,
}  # fmt: skip


def spoiled(value, wrong):
    """The value with each of its places, one at a time, replaced by `wrong`."""
    yield wrong
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: each} for each in spoiled(inner, wrong))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from ([*value[:place], each, *value[place + 1 :]] for each in spoiled(inner, wrong))


@pytest.mark.parametrize("wrong", [None, True, 0, -1.5, "x", [], {}, [None], [[]], {"x": None}, "[DONE]"])
def test_anything_at_every_field(wrong):
    for chunk in spoiled(FULL, wrong):
        events = run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(chunk), json.dumps(FULL)])
        assert sum(isinstance(event, ReplyEnded | ReplyFailed) for event in events) == 1
        assert isinstance(events[-1], ReplyEnded | ReplyFailed)
        whole = decode_response(
            chunk if isinstance(chunk, dict | list) else json.dumps(chunk), DecodeContext(identify=minted)
        )
        assert isinstance(whole[-1], ReplyEnded | ReplyFailed)


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
        "functionCall": st.fixed_dictionaries({}, optional={"name": JSON, "args": JSON, "id": JSON, "willContinue": JSON}),
    },
)  # fmt: skip
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
    assert isinstance(events[-1], ReplyEnded | ReplyFailed)
    assert sum(isinstance(event, ReplyEnded | ReplyFailed) for event in events) == 1
    opened = [event.index for event in events if isinstance(event, InvocationStarted)]
    closed = [event.index for event in events if isinstance(event, InvocationEnded | InvocationIncomplete)]
    assert closed == list(range(len(closed)))
    assert set(opened) <= set(closed)
    assert len({event.identifier for event in events if isinstance(event, InvocationStarted)}) == len(opened)


@pytest.mark.parametrize(
    "payload", ["\ud83d", '{"candidates":[{"content":{"parts":[{"text":"\ud83d"}]}}]}', "[" * 5000]
)
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
    assert len({event.identifier for event in events if isinstance(event, InvocationEnded)}) == 20_000

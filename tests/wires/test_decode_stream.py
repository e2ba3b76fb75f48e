"""What the stream decoders do besides the rows of `test_replay`: with any JSON, in any order, and in constant time a piece."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replay import broken, context, decoder, expected, payloads, rows, run, terminals, without_prose
from tests.wires.replies import CONTEXT, decode_whole

from callboard import core
from callboard.wires import WIRES, DecodeContext

every_wire = pytest.mark.parametrize("wire", list(WIRES))
WHYS = st.sampled_from(["stop", "cut", "length", "cancelled"])
CHAT_KEYS = """
    id model choices index delta message content finish_reason tool_calls function name arguments usage error
    prompt_tokens prompt_tokens_details cached_tokens type text function_call reasoning code
"""
GEMINI_KEYS = """
    candidates content parts text thought thoughtSignature functionCall name id args finishReason index error code
    status message usageMetadata promptTokenCount promptFeedback blockReason willContinue
"""
RESPONSES_KEYS = """
    type delta output_index item_id content_index summary_index text refusal arguments input name item response error
    code message id status role content summary encrypted_content call_id namespace execution output usage model
    incomplete_details reason input_tokens input_tokens_details cached_tokens
"""
WORDS = """
    message reasoning function_call custom_tool_call tool_search_call web_search_call output_text refusal summary_text
    completed incomplete failed in_progress client f c1
"""
RESPONSES = [*rows("responses").values()]
TYPES = sorted({p["type"] for row in RESPONSES for p in row["payloads"] if isinstance(p, dict) and "type" in p})


def stage(wire, **fields):
    return WIRES[wire].stream_decoder(DecodeContext(identify=CONTEXT.identify, **fields))


def any_json(keys, words):
    """Values of any kind, with names and words that the wire knows."""
    return st.recursive(
        st.none() | st.booleans() | st.integers(-1, 99) | st.text(max_size=3) | st.sampled_from([*words.split(), "{"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys.split()), inner, max_size=5),
        max_leaves=12,
    )


def some(**fields):
    """Objects with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def few(strategy, most=3):
    return st.lists(strategy, max_size=most)


def chat_frames():
    json_ = any_json(CHAT_KEYS, "stop length f")
    calls = some(index=json_, id=json_, function=some(name=json_, arguments=json_))
    delta = {"delta": some(content=json_, tool_calls=few(calls))}
    choices = st.fixed_dictionaries(delta, optional={"finish_reason": st.sampled_from(["stop", "length", None])})
    return json_ | some(choices=few(choices, 2), usage=json_)


def gemini_frames():
    json_ = any_json(GEMINI_KEYS, "STOP OTHER f")
    call = some(name=json_, args=json_, id=json_, willContinue=json_)
    parts = few(some(text=json_, thought=json_, thoughtSignature=json_, functionCall=call))
    reasons = st.sampled_from(["STOP", "OTHER", "MAX_TOKENS", None])
    candidates = st.fixed_dictionaries({"content": some(parts=parts)}, optional={"finishReason": reasons})
    return json_ | some(candidates=few(candidates, 2), usageMetadata=json_)


RESPONSES_JSON = any_json(RESPONSES_KEYS, WORDS)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(WORDS.split()[:6])},
    optional=dict.fromkeys(
        ("id", "call_id", "name", "namespace", "arguments", "input", "content", "status", "summary"), RESPONSES_JSON
    ),
)


def responses_frames():
    json_ = RESPONSES_JSON
    response = some(output=few(ITEMS), status=json_, error=json_, usage=json_, id=json_)
    fields = ("delta", "output_index", "item_id", "content_index", "arguments", "name", "error", "text")
    typed = {"type": st.sampled_from(TYPES)}
    optional = {"item": ITEMS, "response": response} | dict.fromkeys(fields, json_)
    return json_ | st.fixed_dictionaries(typed, optional=optional)


FRAMES = {"chat": chat_frames(), "gemini": gemini_frames(), "responses": responses_frames()}


def check(wire, events):
    """One end, and every call that began ended once, under an identifier of its own."""
    assert terminals(events) == events[-1:] != []
    opened = [event.index for event in events if isinstance(event, core.InvocationStarted)]
    closed = [event.index for event in events if isinstance(event, core.InvocationEnded | core.InvocationIncomplete)]
    assert opened == sorted(opened)
    assert sorted(closed) == list(range(len(closed)))
    assert set(opened) <= set(closed)
    assert wire != "chat" or opened == list(range(len(opened)))
    assert wire != "gemini" or closed == sorted(closed)
    assert len({event.identifier for event in events if isinstance(event, core.InvocationStarted)}) == len(opened)


@pytest.mark.parametrize("wire", list(FRAMES))
@given(data=st.data(), why=WHYS)
def test_any_json_is_taken(wire, data, why):
    frames = data.draw(st.lists(FRAMES[wire], max_size=8))
    check(wire, run(stage(wire), [json.dumps(frame) for frame in frames], why))


@given(few(ITEMS, 4), RESPONSES_JSON, RESPONSES_JSON)
def test_any_whole_response_is_taken(output, status, error):
    check("responses", decode_whole("responses", {"output": output, "status": status, "error": error}))


@given(st.sampled_from(RESPONSES), st.data())
def test_frames_of_responses_in_any_order_twice_or_not_at_all(case, data):
    sent = data.draw(st.lists(st.sampled_from(payloads(case) or ["[DONE]"]), max_size=12))
    check("responses", run(decoder("responses", case), sent))


@given(st.permutations(rows("messages")["calls: as Anthropic sends it"]["payloads"]))
def test_frames_of_messages_in_any_order(frames):
    events = run(stage("messages"), payloads({"payloads": frames}))
    assert terminals(events) == events[-1:] != []
    assert [isinstance(event, core.ReplyStarted) for event in events] == [True] + [False] * (len(events) - 1)


# Official rows.

OFFICIAL = [pytest.param(row, id=name) for name, row in rows("messages").items() if row.get("official")]


@table("case", OFFICIAL)
def test_the_official_rows_are_anthropic_s(case, official_events):
    for frame in case["payloads"]:
        if frame["type"] != "ping":
            official_events.validate_python(frame)


@pytest.fixture(scope="module")
def official_events():
    from anthropic.types import RawMessageStreamEvent
    from pydantic import TypeAdapter

    return TypeAdapter(RawMessageStreamEvent)


CHUNKED = [pytest.param(row, id=name) for name, row in rows("gemini").items() if not row.get("why") and row["payloads"]]


@table("case", [case for case in CHUNKED if "finishReason" in json.dumps(case.values[0]["payloads"])])
def test_a_list_of_chunks_is_the_stream(case):
    """What comes without `alt=sse`; a body that came whole needs no finishReason, a stream does."""
    chunks = [chunk for p in payloads(case) if p[0] in "[{" and p != "[DONE]" for chunk in [json.loads(p)]]
    if any(isinstance(chunk, list) for chunk in chunks):
        chunks = [inner for chunk in chunks for inner in chunk]
    if len(chunks) < len(case["payloads"]):
        chunks = chunks[:1]  # what stands behind a proxy's [DONE] is no part of the reply
    body = json.dumps(chunks, indent=2)
    for each in (body, body.encode(), chunks):
        assert without_prose(WIRES["gemini"].decode_response(each, context(case))) == expected(case)


# Fields that are wrong or absent.

WRONG = [None, True, 0, -1, -1.5, "", "x", [], [1], {}, [None], [[]], {"x": None}, {"type": 3}, {"type": "x"}, "[DONE]"]
PART = {"text": "a", "thought": True, "thoughtSignature": "QQ=="}
CALL = {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}, "willContinue": False, "partialArgs": []}}
COUNTS = ["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount"]
CANDIDATE = {"content": {"parts": [PART, CALL], "role": "model"}, "finishReason": "STOP", "finishMessage": "m"}
GEMINI = {
    "candidates": [{"index": 0, **CANDIDATE}],
    "usageMetadata": dict.fromkeys(COUNTS, 1),
    "promptFeedback": {"blockReason": ""},
    "responseId": "r",
    "modelVersion": "m",
    "error": None,
}


@table("wrong", WRONG, ids=json.dumps)
def test_every_field_of_a_frame_wrong_or_absent(wrong):
    for frame in sorted({json.dumps(p) for row in RESPONSES for p in row["payloads"] if isinstance(p, dict)}):
        for each in broken(json.loads(frame), wrong):
            check("responses", run(stage("responses"), [json.dumps(each)]))
    for chunk in (wrong, *broken(GEMINI, wrong)):
        events = run(stage("gemini"), [json.dumps(chunk), json.dumps(GEMINI)])
        assert terminals(events) == events[-1:] != []
        whole = decode_whole("gemini", chunk if isinstance(chunk, dict | list) else json.dumps(chunk))
        assert terminals(whole)[-1:] == whole[-1:] != []


@table("case", OFFICIAL)
def test_every_field_of_a_stream_of_messages_wrong_or_absent(case):
    for place, frame in enumerate(case["payloads"]):
        for wrong in (None, True, -1, 1.5, "", "x", [], [1], {}, {"type": "x"}):
            for each in broken(frame, wrong):
                frames = [*case["payloads"][:place], each, *case["payloads"][place + 1 :]]
                events = run(decoder("messages", case), payloads({"payloads": frames}))
                assert terminals(events) == events[-1:] != []
                closing = core.InvocationEnded | core.InvocationIncomplete
                opened = [event.index for event in events if isinstance(event, core.InvocationStarted)]
                closed = [event.index for event in events if isinstance(event, closing)]
                assert set(opened) <= set(closed)
                assert len(closed) == len(set(closed))


MALFORMED = {
    "chat": ['{"choices":[{"delta":{"content":"\ud83d"}}]}'],
    "messages": ['{"type":"ping","x":"\ud83d"}', "[" * 100_000, "null", "3", '""'],
    "gemini": ['{"candidates":[{"content":{"parts":[{"text":"\ud83d"}]}}]}', "[" * 5000],
    "responses": ['{"type":"response.output_text.delta","delta":"\ud83d"}'],
}


@table(("wire", "payload"), [(wire, each) for wire, own in MALFORMED.items() for each in ("\ud83d", *own)])
def test_what_is_no_frame_is_malformed(wire, payload):
    (event,) = stage(wire).feed(payload)
    assert event.code == "malformed"
    assert len(event.excerpt) <= 500


@table("wire", list(WIRES))
def test_an_excerpt_is_short(wire):
    (event,) = stage(wire).feed("<html>" + "x" * 10_000)
    assert len(event.excerpt) == 500
    assert event.excerpt.startswith("<html>xxx")


def test_a_whole_response_that_is_an_error():
    body = '{"error":{"message":"x","code":"y"}}'
    assert decode_whole("responses", body) == [core.ReplyFailed("provider", "y", "x", body)]


THOUGHTS = {
    "chat": ['{"model":"answered","choices":[{"delta":{"reasoning_content":"hm"}}]}'],
    "messages": [
        '{"type":"message_start","message":{"model":"answered"}}',
        '{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}',
    ],
    "gemini": ['{"modelVersion":"answered","candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}]}'],
    "responses": ['{"type":"response.reasoning_text.delta","delta":"hm"}'],
}


@table("wire", list(WIRES))
def test_reasoning_is_marked_with_the_model_that_was_asked(wire):
    decoding = stage(wire, origin="asked")
    started, thought = [event for frame in THOUGHTS[wire] for event in decoding.feed(frame)]
    assert (type(started), thought.origin) == (core.ReplyStarted, "asked")


CHAT_CALL = '{"choices":[{"delta":{"tool_calls":[{"index":0,%s"function":{%s"arguments":"%s"}}]}}]}'
BLOCK = '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}'
DELTA = '{"type":"response.function_call_arguments.delta","item_id":"a","output_index":0,"delta":"%s"}'
ITEM = (
    '{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call",%s"call_id":"a","name":"f"}}'
)
START = '{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"a","name":"f"}}'
COMPLETED = '{"type":"response.completed","response":{"status":"completed"}}'
LONG = {
    "chat": (
        [CHAT_CALL % ('"id":"a",', '"name":"f",', r"{\"x\":\"")],
        CHAT_CALL % ("", "", "0123456789"),
        [CHAT_CALL % ("", "", r"\"}"), '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}', "[DONE]"],
    ),
    "messages": (
        [START % 0, BLOCK % r"{\"x\":\""],
        BLOCK % "0123456789",
        [BLOCK % r"\"}", '{"type":"content_block_stop","index":0}', '{"type":"message_stop"}'],
    ),
    "responses": ([ITEM % (0, '"id":"a",'), DELTA % r"{\"x\":\""], DELTA % "0123456789", [DELTA % r"\"}", COMPLETED]),
}
"""The frames of one call: before, for each piece, behind."""


@table("wire", LONG)
def test_a_megabyte_of_arguments_in_pieces(wire):
    """100,000 deltas of one call: this finishes because a piece costs the same wherever it stands."""
    before, piece, after = LONG[wire]
    decoding = stage(wire)
    for frame in before:
        decoding.feed(frame)
    for _ in range(100_000):
        assert len(decoding.feed(piece)) == 1
    *_, ended, last = [event for frame in after for event in decoding.feed(frame)]
    assert len(ended.arguments["x"]) == 1_000_000
    assert last == core.ReplyEnded("invocations")


MANY = {
    "chat": ('{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":"a","function":{"name":"f"}}]}}]}', "[DONE]"),
    "messages": (START, '{"type":"message_stop"}'),
    "gemini": (
        '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","id":"a","args":{"x":%d}}}]}}]}',
        "[DONE]",
    ),
    "responses": (ITEM.replace("%s", ""), COMPLETED),
}


@table("wire", list(WIRES))
def test_many_calls(wire):
    frame, last = MANY[wire]
    decoding = stage(wire)
    events = [event for place in range(20_000) for event in decoding.feed(frame % place)] + decoding.feed(last)
    assert len({event.identifier for event in events if isinstance(event, core.InvocationEnded)}) == 20_000

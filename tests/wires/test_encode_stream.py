"""The server half of every wire: what it sends is what the client half and the provider's own client read.

A row of `tests/vectors/replies.jsonl` is a reply: its events, the data of the `frames` in which a wire sends them, and the whole `body`.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replies import decode, decode_whole, encode, encoder, joined, read, replies, whole

from callboard import core
from callboard.wires import WIRES

VECTORS = Path(__file__).parents[1] / "vectors" / "replies.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
every_wire = pytest.mark.parametrize("wire", list(WIRES))
STARTED = core.ReplyStarted("r1", "m")
FAILURE = core.ReplyFailed("provider", "overloaded_error", "too much", "<html>")


@table("row", ROWS, ids=lambda row: f"{row['wire']} {row['name']}")
def test_a_reply_frame_by_frame_and_whole(row):
    events = msgspec.convert(row["events"], list[core.Event])
    frames = encode(row["wire"], events)
    assert [data for _, data in read(frames)] == row["frames"]
    assert json.loads(msgspec.json.encode(whole(row["wire"], events))) == row["body"]
    assert (frames[-1] == b"data: [DONE]\n\n") == (row["wire"] in {"chat", "responses"})


# What is sent is what is read.


def in_blocks(events):
    """The events block by block, in the order in which the blocks begin."""
    blocks, place, rest, previous = {}, 0, [], None
    for event in events:
        match event:
            case core.InvocationStarted(index=i) | core.ArgumentsPiece(index=i) | core.InvocationEnded(index=i):
                key = ("call", i)
            case core.TextPiece() | core.ReasoningPiece():
                place += type(event) is not type(previous)
                key = ("said", place)
            case _:
                rest.append(event)
                continue
        if not isinstance(event, core.ArgumentsPiece | core.InvocationEnded):
            previous = event
        blocks.setdefault(key, []).append(event)
    start, *end = rest
    return joined([start, *[event for block in blocks.values() for event in block], *end])


def pieces_aside(events):
    """Where pieces of arguments stand among other things is the wire's affair; what they say is not."""
    spelled = {}
    for event in events:
        if isinstance(event, core.ArgumentsPiece):
            spelled[event.index] = spelled.get(event.index, "") + event.json
    return joined([event for event in events if not isinstance(event, core.ArgumentsPiece)]), spelled


def in_message_order(events):
    """The events as a whole message of Chat Completions orders them: reasoning, text, refusal, the calls one by one."""
    order = [core.ReplyStarted, core.ReasoningPiece, core.TextPiece, core.RefusalPiece]
    said = [event for event in events if type(event) in order]
    calls = [event for event in events if isinstance(event, core.InvocationStarted | core.ArgumentsPiece)]
    rest = [event for event in events if event not in said and event not in calls]
    return joined([*sorted(said, key=lambda e: order.index(type(e))), *sorted(calls, key=lambda e: e.index), *rest])


def by_kinds(events):
    """What a whole response says: its texts, its calls and its usage, whatever their order."""
    texts = {
        kind: "".join(e.text for e in events if isinstance(e, kind))
        for kind in (core.TextPiece, core.RefusalPiece, core.ReasoningPiece)
    }
    return (
        events[0],
        events[-1],
        texts,
        sorted(repr(e) for e in events if isinstance(e, core.InvocationEnded | core.Usage)),
    )


STREAMED = {"chat": joined, "messages": joined, "gemini": joined, "responses": pieces_aside}
EXPECTED = STREAMED | {"messages": in_blocks}
READ_WHOLE = {"chat": list, "messages": joined, "gemini": joined, "responses": by_kinds}
EXPECTED_WHOLE = {"chat": in_message_order, "messages": in_blocks, "gemini": joined, "responses": by_kinds}


@every_wire
@given(data=st.data())
def test_what_is_encoded_is_decoded_streamed_and_whole(wire, data):
    events = data.draw(replies(wire))
    assert STREAMED[wire](decode(wire, encode(wire, events))) == EXPECTED[wire](events)
    body = whole(wire, events)
    expected = EXPECTED_WHOLE[wire](decode(wire, encode(wire, events)) if wire == "responses" else events)
    for each in (body, msgspec.json.encode(body)):
        assert READ_WHOLE[wire](decode_whole(wire, each)) == expected


@given(replies("responses"))
def test_compat_events_say_the_same(events):
    assert (
        pieces_aside(decode("responses", encode("responses", events, compat_events=True)))[1] == pieces_aside(events)[1]
    )


@given(replies("messages"))
def test_blocks_are_open_one_at_a_time(events):
    frames = read(encode("messages", events))
    assert all(name == data["type"] for name, data in frames)
    kinds = [name.removeprefix("content_block_") for name, _ in frames]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    places = [data["index"] for name, data in frames if name.startswith("content_block")]
    assert places == sorted(places)
    for index, block in groupby(frames[1:-2], key=lambda frame: frame[1]["index"]):
        names = [name for name, _ in block]
        assert (names[0], names[-1]) == ("content_block_start", "content_block_stop"), index
        assert set(names[1:-1]) <= {"content_block_delta"}


@pytest.fixture(scope="module")
def official():
    """What reads a frame's data and a whole body in the official packages."""
    from anthropic import types as anthropic
    from google.genai import types as google
    from openai.types import chat
    from pydantic import TypeAdapter

    event = TypeAdapter(anthropic.RawMessageStreamEvent)
    return {
        "chat": (
            lambda data: chat.ChatCompletionChunk.model_validate_json(json.dumps(data), strict=True),
            lambda body: chat.ChatCompletion.model_validate(body, strict=True),
        ),
        "messages": (event.validate_python, lambda body: anthropic.Message.model_validate(body, strict=True)),
        "gemini": (google.GenerateContentResponse.model_validate,) * 2,
    }


@pytest.mark.parametrize("wire", ["chat", "messages", "gemini"])
@given(data=st.data())
def test_the_official_packages_read_frames_and_bodies(official, wire, data):
    read_frame, read_body = official[wire]
    events = data.draw(replies(wire))
    for _, each in read(encode(wire, events)):
        read_frame(each)
    read_body(whole(wire, events))


CALL = msgspec.convert(next(row["events"] for row in ROWS if row["wire"] == "chat"), list[core.Event])


@table("events", [CALL, [STARTED, core.RefusalPiece("no"), core.ReplyEnded("refusal")]])
def test_openai_adds_the_chunks_up_as_we_do(official, events):
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    for _, data in read(encode("chat", events)):
        state.handle_chunk(official["chat"][0](data))
    ours, theirs = official["chat"][1](whole("chat", events)), state.get_final_completion()
    assert theirs.usage == ours.usage
    assert theirs.choices[0].finish_reason == ours.choices[0].finish_reason
    message, expected = (reply.choices[0].message for reply in (theirs, ours))
    assert ((message.content or None), message.refusal) == (expected.content, expected.refusal)
    calls = [
        [(c.id, c.function.name, c.function.arguments) for c in each.tool_calls or []] for each in (message, expected)
    ]
    assert calls[0] == calls[1]


@given(events=replies("messages"))
def test_anthropic_adds_the_frames_up_as_we_do(official, events):
    from anthropic.lib.streaming._messages import accumulate_event

    read_frame, read_body = official["messages"]
    snapshot, buffers = None, {}
    for _, data in read(encode("messages", events)):
        snapshot = accumulate_event(event=read_frame(data), current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot.to_dict(exclude_none=True) == read_body(whole("messages", events)).to_dict(exclude_none=True)


# Ends.

NO_ANSWER = {"error": {"message": "too much", "type": "server_error", "param": None, "code": "overloaded_error"}}
FAILED = {
    "chat": NO_ANSWER,
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "too much"}},
    "gemini": {"error": {"code": 503, "message": "too much", "status": "UNAVAILABLE"}},
}


@table("wire", FAILED)
def test_a_failure_is_told_and_ends_the_stream(wire):
    frames = encode(wire, [STARTED, core.TextPiece("a"), FAILURE, core.TextPiece("b"), core.ReplyEnded("stop")])
    assert read(frames)[-1][1] == FAILED[wire] == whole(wire, [FAILURE])
    assert read(frames)[-1][0] == ("error" if wire == "messages" else "")
    for events in (decode(wire, frames), decode_whole(wire, FAILED[wire])):
        assert msgspec.structs.replace(events[-1], excerpt="<html>") == FAILURE


CUT = {"chat": ("code", "cut"), "messages": ("type", "api_error"), "gemini": ("status", "INTERNAL")}


@table("why", ["stop", "cut", "cancelled"])
@table("wire", CUT)
def test_events_that_break_off_are_a_failure(wire, why):
    events = [STARTED, core.TextPiece("a")]
    field, word = CUT[wire]
    assert whole(wire, events)["error"][field] == word
    if (wire, why) == ("gemini", "cancelled"):
        word = "CANCELLED"
    assert read(encode(wire, events, why))[-1][1]["error"][field] == word


@table("wire", list(WIRES))
def test_nothing_is_sent_behind_the_end(wire):
    late = [
        core.TextPiece("a"),
        core.ReplyStarted(),
        core.ReplyEnded("stop"),
        FAILURE,
        core.InvocationStarted(0, "a", "f"),
    ]
    for first in ([], CALL):
        stage = encoder(wire)
        frames = [frame for event in [*first, core.ReplyEnded("stop")] for frame in stage.feed(event)]
        assert len(frames) > len(read(frames)) - 1 >= 0
        assert [stage.feed(event) for event in late] == [[]] * len(late)
        assert stage.finish() == []


@table("wire", ["chat", "messages"])
def test_an_incomplete_call_is_sent_as_far_as_it_came(wire):
    events = [
        STARTED,
        core.InvocationStarted(0, "a", "f"),
        core.ArgumentsPiece(0, '{"x'),
        core.InvocationIncomplete(0, "a", "f", '{"x', "length"),
        core.InvocationIncomplete(1, "b", "", "{}", "no name"),
        core.Usage(1, 1),
        core.ReplyEnded("length"),
    ]
    assert decode(wire, encode(wire, events)) == [*events[:4], *events[5:]]
    if wire == "chat":
        assert decode_whole(wire, whole(wire, events)) == [*events[:4], *events[5:]]
    else:
        assert whole(wire, events)["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": {"raw": '{"x'}}]


@table("wire", list(WIRES))
def test_after_a_retry_the_whole_reply_is_the_second(wire):
    second = [STARTED, core.TextPiece("good"), core.ReplyEnded("stop")]
    assert whole(
        wire, [core.ReplyStarted("r0", "m"), core.TextPiece("bad"), core.ReplyEnded("retry"), *second]
    ) == whole(wire, second)


BEGUN = core.InvocationStarted(0, "a", "f")


@table("events", [
    [core.ArgumentsPiece(3, "{}"), core.InvocationEnded(4, "a", "f", {}, ""), core.ReplyEnded("stop")],
    [core.TextPiece(""), core.ReasoningPiece(""), core.ReplyStarted(), core.ReplyEnded("retry"), *[core.ReplyEnded("stop")] * 2],
    [BEGUN, core.TextPiece("a"), core.ReplyEnded("invocations")],
    [BEGUN, core.InvocationEnded(0, "a", "f", None, "[1"), core.ArgumentsPiece(0, "]"), core.ReplyEnded("stop")],
    [],
    [core.ReplyEnded("retry")],
    [core.ReplyEnded("stop"), core.ReplyFailed("provider", "x", "y")],
    [FAILURE, core.ReplyEnded("stop")],
    CALL * 2,
])  # fmt: skip
@table("wire", ["messages", "gemini"])
def test_there_is_one_end_whatever_came(wire, events):
    frames = read(encode(wire, events))
    if wire == "messages":
        names = [name for name, _ in frames]
        ends = [name in {"message_stop", "error"} for name in names]
        assert names.count("content_block_start") == names.count("content_block_stop")
    else:
        ends = ["finishReason" in json.dumps(data) or "error" in data for _, data in frames]
    assert ends.index(True) == len(ends) - 1
    whole(wire, events)


NO_REPLY = [b"", b"<html>", b"[]", b"\xff", {}, {"error": "no"}]
NO_REPLIES = {
    "chat": [{"choices": {"a": 1}}, {"choices": []}],
    "messages": [{"content": {"a": 1}}, {"type": "error"}, {"content": ["x"]}, "[" * 9999],
    "gemini": [b"3", {"candidates": {"a": 1}}],
    "responses": ["[]", "null", b"{}", {"output": 3}, {"output": ["x"]}, {"status": "queued"}],
}


@table(("wire", "body"), [(wire, body) for wire, bodies in NO_REPLIES.items() for body in [*NO_REPLY, *bodies]])
def test_a_body_that_is_no_reply_is_a_failure(wire, body):
    (failure,) = decode_whole(wire, body)
    assert failure.party == "provider"
    assert failure.code in {"malformed", "cut", "server_error"}
    assert len(failure.excerpt) <= 500


def test_a_whole_reply_without_finish_reason():
    body = {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}]}
    call = core.InvocationEnded(0, "minted_0", "f", {}, "")
    assert decode_whole("chat", body)[-2:] == [call, core.ReplyEnded("invocations")]
    body = {"candidates": [{"content": {"parts": [{"text": "a"}]}}]}
    assert decode_whole("gemini", body) == [core.ReplyStarted(), core.TextPiece("a"), core.ReplyEnded("stop")]


SAID, REFUSED = [core.TextPiece("a")], [core.RefusalPiece("no")]


@table(("wire", "before", "ending", "word"), [
    ("chat", SAID, "stop", "stop"),
    ("chat", SAID, "length", "length"),
    ("chat", SAID, "filter", "content_filter"),
    ("chat", REFUSED, "refusal", "stop"),
    ("chat", [], "refusal", "content_filter"),
    ("messages", REFUSED, "stop", "end_turn"),
    ("messages", REFUSED, "invocations", "tool_use"),
    ("messages", REFUSED, "length", "max_tokens"),
    ("messages", REFUSED, "filter", "refusal"),
    ("messages", REFUSED, "refusal", "refusal"),
    ("gemini", SAID, "stop", "STOP"),
    ("gemini", SAID, "length", "MAX_TOKENS"),
    ("gemini", SAID, "filter", "SAFETY"),
    ("gemini", REFUSED, "refusal", "SAFETY"),
    ("gemini", [], "stop", "STOP"),
    ("gemini", [BEGUN, core.InvocationEnded(0, "a", "f", None, "[1")], "invocations", "MALFORMED_FUNCTION_CALL"),
    ("gemini", [BEGUN, core.InvocationIncomplete(0, "a", "f", "{", "cut")], "stop", "MALFORMED_FUNCTION_CALL"),
    ("gemini", [BEGUN, core.InvocationIncomplete(0, "a", "f", "{", "length")], "length", "MAX_TOKENS"),
])  # fmt: skip
def test_reasons(wire, before, ending, word):
    events = [STARTED, *before, core.ReplyEnded(ending)]
    body, frames = whole(wire, events), [data for _, data in read(encode(wire, events))]
    match wire:
        case "chat":
            words = [choice["finish_reason"] for data in frames for choice in data["choices"]]
            assert body["choices"][0]["finish_reason"] == word
        case "messages":
            words = [data["delta"]["stop_reason"] for data in frames if data["type"] == "message_delta"]
            assert body["stop_reason"] == word
            assert frames[-2]["usage"] == body["usage"]
            assert set(map(str, body["usage"].values())) == {"0", "{'thinking_tokens': 0}"}
            assert body["content"] == [{"type": "text", "text": "no"}]
        case _:
            candidates = [data["candidates"][0] for data in frames]
            words = [candidate.get("finishReason") for candidate in candidates]
            (candidate,) = body["candidates"]
            assert candidate["finishReason"] == word
            assert candidate.get("finishMessage") == candidates[-1].get("finishMessage")
            assert ("finishMessage" in candidate) == (BEGUN in before)
    assert [each for each in words if each] == [word]


# One wire's own.


def test_usage_is_sent_only_when_asked_for():
    assert not any(b"usage" in frame for frame in encode("chat", CALL, include_usage=False))


def test_a_whole_call_does_not_wait_for_its_end_when_another_begins():
    stage = encoder("messages")
    for event in CALL[:6]:
        stage.feed(event)
    assert [name for name, _ in read(stage.feed(CALL[6]))] == ["content_block_stop", "content_block_start"]


def test_what_overtakes_a_call_waits_for_it():
    stage = encoder("messages")
    stage.feed(core.InvocationStarted(0, "a", "f"))
    stage.feed(core.ArgumentsPiece(0, '{"x'))
    assert stage.feed(core.TextPiece("meanwhile")) == stage.feed(core.InvocationStarted(1, "b", "g")) == []
    assert stage.feed(core.ArgumentsPiece(1, "{}")) == []
    assert len(stage.feed(core.ArgumentsPiece(0, '":1}'))) == 1
    frames = read(stage.feed(core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}')))
    assert [(name.removeprefix("content_block_"), data["index"]) for name, data in frames] == [
        ("stop", 0), ("start", 1), ("delta", 1), ("stop", 1), ("start", 2), ("delta", 2),
    ]  # fmt: skip


def test_many_calls_that_wait():
    """20,000 calls, none whole before the end: this finishes because each is told once."""
    count = 20_000
    events = [core.InvocationStarted(i, f"c{i}", "f") for i in range(count)]
    events += [core.ArgumentsPiece(i, '{"x":1}') for i in reversed(range(count))]
    assert len(encode("messages", [*events, core.ReplyEnded("invocations")])) == 3 * count + 3


def test_a_reply_of_messages_that_says_nothing():
    names = [name for name, _ in read(encode("messages", [core.ReplyEnded("stop")]))]
    assert names == ["message_start", "message_delta", "message_stop"]
    assert whole("messages", [core.ReplyEnded("stop")])["content"] == []


BODY = next(row["body"] for row in ROWS if row["wire"] == "messages")
BODY = BODY | {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "no"}}


def test_anything_at_every_field_of_a_whole_reply_of_messages():
    for name in BODY:
        for value in (None, True, -1, 1.5, "x", [], [1], [None], {}, [{"type": "x"}], [{"type": "tool_use"}]):
            events = decode_whole("messages", BODY | {name: value})
            assert [isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events].index(True) == len(
                events
            ) - 1


def test_an_explained_refusal():
    end = [core.RefusalPiece("no"), core.Usage(9, 4, 5, 2), core.ReplyEnded("refusal")]
    assert decode_whole("messages", BODY)[-3:] == end


def test_a_signature_that_no_part_follows_is_sent_at_the_end():
    events = [STARTED, core.TextPiece("a"), core.ReasoningPiece("", ">QQ==", "m"), core.ReplyEnded("stop")]
    frames = encode("gemini", events)
    (last,) = read(frames)[-1][1]["candidates"]
    assert last["content"]["parts"] == [{"text": "", "thoughtSignature": "QQ=="}]
    assert decode("gemini", frames) == decode_whole("gemini", whole("gemini", events)) == events

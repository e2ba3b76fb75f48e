"""The server half: what it sends is what the client half and OpenAI's own client read."""

from __future__ import annotations

import json
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.wires.chat import StreamDecoder, StreamEncoder, decode_response, encode_response
from callboard.wires.common.reply_stream import DecodeContext

PIECES = {core.TextPiece: "text", core.ReasoningPiece: "text", core.RefusalPiece: "text", core.ArgumentsPiece: "json"}


def minted(index, _name):
    return f"minted_{index}"


def encode(events, *, include_usage=True, why="stop"):
    stage = StreamEncoder(identifier="r1", model="m", created=1, include_usage=include_usage)
    return [data for payloads in [*map(stage.feed, events), stage.finish(why)] for _, data in payloads]


def decode(payloads):
    stage = StreamDecoder(DecodeContext(identify=minted))
    return [event for payload in payloads for event in stage.feed(payload.decode())] + stage.finish()


def whole(events):
    """The body of the reply that is not streamed."""
    return encode_response(events, identifier="r1", model="m", created=1)


def coalesced(events):
    """The events with neighbouring pieces of one kind joined."""
    given_events = []
    for (kind, _), group in groupby(events, key=lambda event: (type(event), getattr(event, "index", 0))):
        members = list(group)
        if kind in PIECES:
            joined = "".join(getattr(event, PIECES[kind]) for event in members)
            members = [msgspec.structs.replace(members[0], **{PIECES[kind]: joined})]
        given_events += members
    return given_events


def in_message_order(events):
    """The events as a whole message orders them: reasoning, text, refusal, the calls one by one."""
    order = [core.ReplyStarted, core.ReasoningPiece, core.TextPiece, core.RefusalPiece]
    said = [event for event in events if type(event) in order]
    calls = [event for event in events if isinstance(event, core.InvocationStarted | core.ArgumentsPiece)]
    rest = [event for event in events if event not in said and event not in calls]
    return coalesced([*sorted(said, key=lambda e: order.index(type(e))), *sorted(calls, key=lambda e: e.index), *rest])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
ARGUMENTS = st.dictionaries(TEXT, TEXT | st.integers(-9, 9) | st.none() | st.lists(TEXT, max_size=2), max_size=2)


@st.composite
def replies(draw):
    """What a reply may be: pieces of all kinds in any order, calls interleaved, an end that fits."""
    raws = [json.dumps(arguments) for arguments in draw(st.lists(ARGUMENTS, max_size=3))]
    names = [draw(st.sampled_from(["f", "get_weather"])) for _ in raws]
    events = []
    at = [0] * len(raws)
    while True:
        waiting = [index for index in range(len(raws)) if at[index] < len(raws[index])]
        if draw(st.integers(0, 3)) == 0 or not waiting:
            kind = draw(st.sampled_from([core.TextPiece, core.ReasoningPiece, core.RefusalPiece]))
            text = draw(TEXT)
            events.append(core.ReasoningPiece(text, origin="m") if kind is core.ReasoningPiece else kind(text))
            if not waiting:
                break
        index = draw(st.sampled_from(waiting))
        for begun in range(index + 1):
            if at[begun] == 0 and not any(isinstance(e, core.InvocationStarted) and e.index == begun for e in events):
                events.append(core.InvocationStarted(begun, f"c{begun}", names[begun]))
        step = draw(st.integers(1, 12))
        events.append(core.ArgumentsPiece(index, raws[index][at[index] : at[index] + step]))
        at[index] += step
    events += [core.InvocationEnded(i, f"c{i}", names[i], json.loads(raw), raw) for i, raw in enumerate(raws)]
    if draw(st.booleans()):
        events.append(core.Usage(7, 5, draw(st.integers(0, 7)), draw(st.integers(0, 5))))
    refused = any(isinstance(event, core.RefusalPiece) for event in events)
    natural = "invocations" if raws else "refusal" if refused else "stop"
    return [
        core.ReplyStarted("r1", "m"),
        *events,
        core.ReplyEnded(draw(st.sampled_from([natural, "length", "filter"]))),
    ]


@given(replies())
def test_what_is_encoded_is_decoded(events):
    assert coalesced(decode(encode(events))) == coalesced(events)


@given(replies())
def test_the_whole_reply_says_what_the_stream_says(events):
    assert decode_response(whole(events), DecodeContext(identify=minted)) == in_message_order(events)
    assert decode_response(msgspec.json.encode(whole(events)), DecodeContext(identify=minted)) == in_message_order(
        events
    )


CALL = [
    core.ReplyStarted("r1", "m"),
    core.ReasoningPiece("hm"),
    core.TextPiece("I'll look."),
    core.InvocationStarted(0, "a", "f"),
    core.ArgumentsPiece(0, '{"x'),
    core.ArgumentsPiece(0, '":1}'),
    core.InvocationStarted(1, "b", "g"),
    core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}'),
    core.InvocationEnded(1, "b", "g", {}, ""),
    core.Note("repaired", "something"),
    core.Usage(9, 4, 5, 2),
    core.ReplyEnded("invocations"),
]


def test_a_stream_payload_by_payload():
    head = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta, reason=None):
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    *payloads, done = encode(CALL)
    assert done == b"[DONE]"
    assert [json.loads(payload) for payload in payloads] == [
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "I'll look."}),
        chunk(
            {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"x'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]}),
        chunk(
            {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]}
        ),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
        chunk({}, "tool_calls"),
        head
        | {
            "choices": [],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        },
    ]


def test_usage_is_sent_only_when_asked_for():
    assert not any(b"usage" in payload for payload in encode(CALL, include_usage=False))


@table(
    ("events", "reason"),
    [
        ([core.TextPiece("a"), core.ReplyEnded("stop")], "stop"),
        ([core.TextPiece("a"), core.ReplyEnded("length")], "length"),
        ([core.TextPiece("a"), core.ReplyEnded("filter")], "content_filter"),
        ([core.RefusalPiece("no"), core.ReplyEnded("refusal")], "stop"),
        ([core.ReplyEnded("refusal")], "content_filter"),
        (CALL[1:], "tool_calls"),
    ],
)
def test_reasons(events, reason):
    events = [core.ReplyStarted("r1", "m"), *events]
    (last, *_) = [choice for p in encode(events)[:-1] for choice in json.loads(p)["choices"] if choice["finish_reason"]]
    assert last["finish_reason"] == whole(events)["choices"][0]["finish_reason"] == reason


FAILURE = core.ReplyFailed("provider", "overloaded_error", "too much", "<html>")


def test_a_failure_is_told_and_ends_the_stream():
    *_, error, done = encode([core.ReplyStarted("r1", "m"), core.TextPiece("a"), FAILURE, core.TextPiece("b")])
    expected = {"error": {"message": "too much", "type": "server_error", "param": None, "code": "overloaded_error"}}
    assert json.loads(error) == expected == whole([FAILURE])
    assert done == b"[DONE]"
    assert decode([error])[-1] == msgspec.structs.replace(FAILURE, excerpt=error.decode())


@table("why", ["stop", "cut", "cancelled"])
def test_events_that_break_off_are_a_failure(why):
    *_, error, done = encode([core.ReplyStarted("r1", "m"), core.TextPiece("a")], why=why)
    assert json.loads(error)["error"]["code"] == whole([core.ReplyStarted("r1", "m")])["error"]["code"] == "cut"
    assert done == b"[DONE]"


def test_nothing_is_sent_twice_at_the_end():
    stage = StreamEncoder(identifier="r1", model="m", created=1)
    assert stage.feed(core.ReplyEnded("stop"))[-1] == (b"", b"[DONE]")
    assert stage.feed(core.TextPiece("a")) == stage.feed(core.ReplyEnded("stop")) == stage.finish() == []


def test_an_incomplete_call_is_sent_as_far_as_it_came():
    events = [
        core.ReplyStarted("r1", "m"),
        core.InvocationStarted(0, "a", "f"),
        core.ArgumentsPiece(0, '{"x'),
        core.InvocationIncomplete(0, "a", "f", '{"x', "length"),
        core.InvocationIncomplete(1, "b", "", "{}", "no name"),
        core.ReplyEnded("length"),
    ]
    assert (
        decode(encode(events))
        == decode_response(whole(events), DecodeContext(identify=minted))
        == [*events[:4], events[-1]]
    )


def test_after_a_retry_the_whole_reply_is_the_second():
    events = [
        core.ReplyStarted("r0", "m"),
        core.TextPiece("bad"),
        core.ReplyEnded("retry"),
        core.ReplyStarted("r1", "m"),
        core.TextPiece("good"),
        core.ReplyEnded("stop"),
    ]
    assert whole(events)["choices"][0]["message"]["content"] == "good"


@table("body", [b"", b"<html>", b"[]", {}, {"choices": {"a": 1}}, {"choices": []}, {"error": "no"}])
def test_a_body_that_is_no_reply_is_a_failure(body):
    (failure,) = decode_response(body, DecodeContext(identify=minted))
    assert failure.party == "provider"
    assert failure.code in {"malformed", "cut", "server_error"}


def test_a_whole_reply_without_finish_reason():
    body = {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}]}
    assert decode_response(body, DecodeContext(identify=minted))[-2:] == [
        core.InvocationEnded(0, "minted_0", "f", {}, ""),
        core.ReplyEnded("invocations"),
    ]


@pytest.fixture(scope="module")
def types():
    """What the official package reads."""
    from openai.types import chat

    return chat


@given(events=replies())
def test_openai_reads_the_chunks(types, events):
    for payload in encode(events)[:-1]:
        types.ChatCompletionChunk.model_validate_json(payload, strict=True)


@given(events=replies())
def test_openai_reads_the_whole(types, events):
    types.ChatCompletion.model_validate(whole(events), strict=True)


@pytest.mark.parametrize(
    "events", [CALL, [core.ReplyStarted("r1", "m"), core.RefusalPiece("no"), core.ReplyEnded("refusal")]]
)
def test_openai_adds_the_chunks_up_as_we_do(types, events):
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    for payload in encode(events)[:-1]:
        state.handle_chunk(types.ChatCompletionChunk.model_validate_json(payload))
    ours = types.ChatCompletion.model_validate(whole(events))
    theirs = state.get_final_completion()
    assert theirs.usage == ours.usage
    assert theirs.choices[0].finish_reason == ours.choices[0].finish_reason
    message, expected = (reply.choices[0].message for reply in (theirs, ours))
    assert (message.content or None) == expected.content
    assert message.refusal == expected.refusal
    calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]
    assert calls == [(c.id, c.function.name, c.function.arguments) for c in expected.tool_calls or []]

"""Whatever events come, in whatever order: what clients rely on, and that nothing cut is told as whole."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import pipe
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires import WIRES
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.common.tool_calls import is_cut_off

INDICES = st.integers(0, 3)
WORDS = st.sampled_from(["", "a", "Hi\n", "ü"])
JSON = st.sampled_from(["", "{", "{}", '{"a": 1}', '{"a": "', "[1]", "x"])
PIECES = st.one_of(
    st.builds(core.ReplyStarted, WORDS, WORDS),
    st.builds(core.TextPiece, WORDS),
    st.builds(core.RefusalPiece, WORDS),
    st.builds(
        core.ReasoningPiece,
        WORDS,
        opaque=st.sampled_from(["", "seal", "redacted:x"]),
        origin=st.sampled_from(["", "m", "o"]),
    ),
    st.builds(core.InvocationStarted, INDICES, WORDS, st.sampled_from(["f", "g"])),
    st.builds(core.ArgumentsPiece, INDICES, JSON),
    st.builds(
        core.InvocationEnded, INDICES, WORDS, st.sampled_from(["f", "g"]), st.sampled_from([None, {}, {"a": 1}]), JSON
    ),
    st.builds(core.InvocationIncomplete, INDICES, WORDS, st.sampled_from(["", "f"]), JSON, st.just("length")),
    st.builds(core.Usage, st.integers(0, 9), st.integers(0, 9)),
    st.just(core.Note("dropped", "x")),
)
ENDS = st.one_of(
    st.builds(core.ReplyEnded, st.sampled_from(["stop", "invocations", "length", "filter", "refusal", "no_call"])),
    st.just(core.ReplyFailed("provider", "server_error", "x")),
    st.none(),
)
REPLIES = st.tuples(st.lists(PIECES, max_size=12), ENDS).map(
    lambda reply: [*reply[0], *([reply[1]] if reply[1] else [])]
)


def sent(wire, events):
    """The JSON of what a client of that wire gets."""
    encoder = pipe(WIRES[wire].stream_encoder(identifier="r", model="m", created=0), SSEEncoder())
    frames = [frame for event in events for frame in encoder.feed(event)] + encoder.finish()
    return [json.loads(frame.data) for frame in SSEDecoder().feed(b"".join(frames)) if frame.data != "[DONE]"]


def unfinished(events):
    """Whether a call began and did not end, or was told as cut."""
    open_calls = set()
    for event in events:
        match event:
            case core.InvocationStarted(index=index):
                if index in open_calls:
                    return True
                open_calls.add(index)
            case core.InvocationEnded(index=index):
                open_calls.discard(index)
            case core.InvocationIncomplete():
                return True
            case _:
                pass
    return bool(open_calls)


@given(REPLIES)
def test_blocks_of_messages_stand_in_a_row_and_are_closed_once(events):
    place, kind = 0, ""
    frames = sent("messages", events)
    for frame in frames:
        match frame["type"]:
            case "content_block_start":
                assert (frame["index"], kind) == (place, "")
                kind = frame["content_block"]["type"]
            case "content_block_delta":
                assert frame["index"] == place
                assert (
                    kind
                    == {
                        "text_delta": "text",
                        "thinking_delta": "thinking",
                        "signature_delta": "thinking",
                        "input_json_delta": "tool_use",
                    }[frame["delta"]["type"]]
                )
            case "content_block_stop":
                assert frame["index"] == place
                assert kind
                place, kind = place + 1, ""
            case "message_delta":
                assert kind == ""
    assert [frame["type"] for frame in frames if frame["type"] in ("message_stop", "error")] == [frames[-1]["type"]]


WHOLE = {
    "chat": {"stop", "tool_calls"},
    "messages": {"end_turn", "tool_use"},
    "responses": {"completed"},
    "gemini": {"STOP"},
}


def reason(wire, frames):
    match wire:
        case "chat":
            found = [each["choices"][0]["finish_reason"] for each in frames if each.get("choices")]
        case "messages":
            found = [each["delta"]["stop_reason"] for each in frames if each["type"] == "message_delta"]
        case "gemini":
            found = [each["candidates"][0].get("finishReason") for each in frames if "candidates" in each]
        case _:
            found = [frames[-1]["response"]["status"]]
    return next(filter(None, found), "failed")


@pytest.mark.parametrize("wire", list(WHOLE))
@given(REPLIES)
def test_nothing_cut_is_told_as_whole(wire, events):
    told = reason(wire, sent(wire, events))
    if unfinished(events) or not (events and isinstance(events[-1], core.ReplyEnded)):
        assert told not in WHOLE[wire]


@table("wire", list(WHOLE))
@table("ending", [each for each in get_args(core.Ending) if each != "retry"])
def test_every_ending_has_a_word_and_only_whole_ones_are_told_as_whole(wire, ending):
    told = reason(wire, sent(wire, [core.ReplyStarted(), core.TextPiece("Hi"), core.ReplyEnded(ending)]))
    assert (told in WHOLE[wire]) == (ending in ("stop", "invocations"))
    assert told != "failed"


WARNINGS = {
    "chat": lambda body: body["x_callboard"]["incomplete"],
    "messages": lambda body: body["x_callboard"]["incomplete"],
    "responses": lambda body: body.get("response", body)["metadata"]["callboard_incomplete"].split("; "),
    "gemini": lambda body: body["candidates"][0]["finishMessage"].split("; "),
}


@table("wire", list(WHOLE))
def test_why_a_reply_is_incomplete_reaches_the_client_streamed_and_whole(wire):
    notes = [core.Note("alert", text, code="incomplete") for text in ("no tool was called", "a call had no name")]
    events = [
        core.ReplyStarted(),
        core.TextPiece("Hi"),
        *notes,
        core.Note("alert", "other"),
        core.ReplyEnded("no_call"),
    ]
    read = WARNINGS[wire]
    seen = []
    for body in [*sent(wire, events), WIRES[wire].encode_response(events, identifier="r", model="m", created=0)]:
        with suppress(KeyError):
            seen.append(read(body))
    assert seen == [["no tool was called", "a call had no name"]] * 2


@table("wire", list(WHOLE))
def test_a_reply_that_is_complete_says_nothing_of_it(wire):
    events = [core.ReplyStarted(), core.TextPiece("Hi"), core.Note("alert", "other"), core.ReplyEnded("stop")]
    body = WIRES[wire].encode_response(events, identifier="r", model="m", created=0)
    with pytest.raises(KeyError):
        WARNINGS[wire](body)
    for frame in sent(wire, events):
        with pytest.raises(KeyError):
            WARNINGS[wire](frame)


def test_a_warning_stands_beside_the_client_s_own_metadata():
    options = {"identifier": "r", "model": "m", "created": 0, "echo": {"metadata": {"a": "b"}}}
    events = [core.Note("alert", "x" * 600, code="incomplete"), core.ReplyEnded("no_call")]
    body = WIRES["responses"].encode_response(events, **options)
    assert body["metadata"] == {"a": "b", "callboard_incomplete": "x" * 512}


@given(REPLIES)
def test_a_whole_reply_of_gemini_ends_as_its_stream_does(events):
    body = WIRES["gemini"].encode_response(events, identifier="r", model="m", created=0)
    streamed = sent("gemini", events)[-1]
    if "error" in body:
        assert "error" in streamed
        return
    ends = [
        [each.get(key) for key in ("finishReason", "finishMessage")]
        for each in (body["candidates"][0], streamed["candidates"][0])
    ]
    assert ends[0] == ends[1]


def test_a_call_that_began_and_did_not_end_is_named_on_gemini():
    *_, last = sent(
        "gemini",
        [core.InvocationStarted(0, "c", "f"), core.ArgumentsPiece(0, '{"a": '), core.ReplyEnded("invocations")],
    )
    candidate = last["candidates"][0]
    assert (candidate["finishReason"], candidate["finishMessage"]) == (
        "MALFORMED_FUNCTION_CALL",
        "Malformed function call: f()",
    )


@given(REPLIES)
def test_no_item_is_incomplete_in_a_completed_response(events):
    *_, last = sent("responses", events)
    if last["type"] == "response.completed":
        assert {item.get("status", "completed") for item in last["response"]["output"]} <= {"completed"}


OBJECTS = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=6,
    ),
    min_size=1,
)


@given(OBJECTS, st.data())
def test_arguments_are_open_until_their_last_brace(value, data):
    raw = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    assert is_cut_off(raw[: data.draw(st.integers(1, len(raw) - 1))])
    assert not is_cut_off(raw)


@table("raw", ["", "[1", "[2,3]", "x", '"', '{"a": 1 "b"}', '{"a": 1}}', "{} {"])
def test_what_a_model_wrote_wrong_is_not_open(raw):
    assert not is_cut_off(raw)


SAYING = {
    "chat": r'{"choices": [{"index": 0, "delta": {"content": "%s"}}]}',
    "messages": r'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "%s"}}',
    "responses": r'{"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m", "delta": "%s"}',
    "gemini": r'{"candidates": [{"content": {"role": "model", "parts": [{"text": "%s"}]}}]}',
}
OPENING = {
    "messages": [
        '{"type": "message_start", "message": {"id": "m", "model": "m", "content": []}}',
        '{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}',
    ]
}


def decoded(wire, *texts):
    """The text that a client gets of frames with these texts, and the notes."""
    decoder = WIRES[wire].stream_decoder(DecodeContext(identify=lambda name, index: f"c{index}"))
    frames = [*OPENING.get(wire, ()), *[SAYING[wire] % text for text in texts]]
    events = [event for frame in frames for event in decoder.feed(frame)] + decoder.finish()
    said = "".join([event.text for event in events if isinstance(event, core.TextPiece)])
    assert isinstance(events[-1], core.ReplyEnded | core.ReplyFailed)
    return said, [event.text for event in events if isinstance(event, core.Note)]


@table("wire", list(SAYING))
def test_half_a_character_whose_other_half_never_comes_is_noted(wire):
    for texts, said in [
        (("a\\ud83d",), "a"),
        (("a\\ud83d", "b"), "ab"),
        (("a\\ud83d", "b\\ud83d", "\\ude00"), "ab\U0001f600"),
    ]:
        text, (note,) = decoded(wire, *texts)
        assert text == said
        assert note == "half a character came, and its other half never did"


@table("wire", list(SAYING))
def test_halves_that_meet_are_not_noted(wire):
    assert decoded(wire, "a\\ud83d", "\\ude00", "b") == ("a\U0001f600b", [])
    assert decoded(wire, "a\\ud83d", "", "\\ude00b") == ("a\U0001f600b", [])


CALLING = {
    "chat": lambda raw: [
        {
            "choices": [
                {
                    "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": raw}}]},
                    "finish_reason": "tool_calls",
                }
            ]
        }
    ],
    "messages": lambda raw: [
        {"type": "message_start", "message": {"id": "m", "model": "m", "content": []}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": raw}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
    "responses": lambda raw: [
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": raw},
        },
    ],
}


@table("wire", list(CALLING))
def test_half_a_character_in_arguments_is_the_model_s_mistake(wire):
    decoder = WIRES[wire].stream_decoder(DecodeContext(identify=lambda name, index: "c"))
    raw = r'{"a": "x\ud83d"}'
    events = [event for frame in CALLING[wire](raw) for event in decoder.feed(json.dumps(frame))]
    (call,) = [event for event in [*events, *decoder.finish()] if isinstance(event, core.InvocationEnded)]
    assert (call.arguments, call.raw) == (None, raw)

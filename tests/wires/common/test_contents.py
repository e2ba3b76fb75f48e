"""What a model's reasoning is signed with goes back to that model, through whatever client, and to no other."""

from __future__ import annotations

from itertools import product

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import ReasoningContent, ReasoningPiece, ReplyEnded, ReplyStarted, TextPiece, identify_in_turn, pipe
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires import WIRES
from callboard.wires.common.contents import seal, seal_for_client, unseal
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.field_mapping import mark_signatures, translate_request

THEIRS = "org/their-own"
CALL = {"name": "f", "args": {"x": 1}}
TOOL_USE = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"x": 1}}
# A reply of each backend, and what of it has to come back byte for byte.
SIGNED = {
    "gemini": [
        {"text": "hm", "thought": True, "thoughtSignature": "VGhv"},
        {"text": "Well.", "thoughtSignature": "VGV4"},
        {"functionCall": {"id": "call_1", **CALL}, "thoughtSignature": "Q2Fs/+=="},
    ],
    "messages": [
        {"type": "thinking", "thinking": "hm", "signature": "EqQBCgIYAhIM+/sig=="},
        {"type": "redacted_thinking", "data": "Emw+"},
        {"type": "text", "text": "Well."},
        TOOL_USE,
    ],
    "responses": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAAA.bc-_"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"x":1}'},
    ],
}
REPLIES = {
    "gemini": lambda parts: {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]},
    "messages": lambda blocks: {"type": "message", "content": blocks, "stop_reason": "tool_use"},
    "responses": lambda items: {"status": "completed", "output": items},
}
OPAQUE = {
    "gemini": ["VGhv", "VGV4", "Q2Fs/+=="],
    "messages": ["EqQBCgIYAhIM+/sig==", "Emw+"],
    "responses": ["gAAAA.bc-_"],
}
FRONTS = ["gemini", "messages", "responses"]


def events_of(back, origin):
    body = msgspec.json.encode(REPLIES[back](SIGNED[back]))
    return WIRES[back].decode_response(body, DecodeContext(identify=identify_in_turn(1), origin=origin))


def client_reply(front, events, model, *, stream, back=""):
    """What a client has of the reply, and sends back."""
    events = mark_signatures(events, front, back)
    said = {"identifier": "r_1", "model": model, "created": 1}
    if not stream:
        body = WIRES[front].encode_response(events, **said)
        return {"messages": body.get("content"), "responses": body.get("output")}.get(front) or body["candidates"][0][
            "content"
        ]["parts"]
    encoder = pipe(WIRES[front].stream_encoder(**said), SSEEncoder())
    data = b"".join(frame for event in events for frame in encoder.feed(event))
    frames = [msgspec.json.decode(each.data) for each in SSEDecoder().feed(data) if each.data != "[DONE]"]
    match front:
        case "responses":
            return frames[-1]["response"]["output"]
        case "gemini":
            return [part for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    return blocks(frames)


def blocks(frames):
    """A message as Anthropic's client puts it together."""
    found = {}
    for frame in frames:
        if frame["type"] == "content_block_start":
            found[frame["index"]] = dict(frame["content_block"])
        elif frame["type"] == "content_block_delta":
            block, delta = found[frame["index"]], frame["delta"]
            match delta["type"]:
                case "input_json_delta":
                    block["input"] = msgspec.json.decode(delta["partial_json"])
                case kind:
                    field = kind.removesuffix("_delta")
                    block[field] = block[field] + delta[field] if field != "signature" else delta[field]
    return list(found.values())


def next_request(front, said, model):
    match front:
        case "messages":
            answer = {"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}
            body = {"messages": [{"role": "assistant", "content": said}, {"role": "user", "content": [answer]}]}
        case "gemini":
            answer = {"functionResponse": {"id": "call_1", "name": "f", "response": {"output": "ok"}}}
            body = {"contents": [{"role": "model", "parts": said}, {"role": "user", "parts": [answer]}]}
        case _:
            body = {"input": [*said, {"type": "function_call_output", "call_id": "call_1", "output": "ok"}]}
    return WIRES[front].decode_request(msgspec.json.decode(msgspec.json.encode({"model": model, **body})))


def sent(front, request, back, model):
    """What the backend gets under the name that it knows."""
    asked, _ = translate_request(msgspec.structs.replace(request, model=model), front, back)
    return msgspec.json.decode(msgspec.json.encode(WIRES[back].encode_request(asked).body))


def replayed(back, body):
    """What the model said, as it is told the next time."""
    match back:
        case "gemini":
            return body["contents"][0]["parts"]
        case "messages":
            return body["messages"][0]["content"]
        case _:
            return body["input"][:-1]


@table(("front", "back"), list(product(FRONTS, SIGNED)))
@table("stream", [True, False])
@table("asked", ["asked", THEIRS])
def test_a_signature_comes_back_as_it_was(front, back, stream, asked):
    said = client_reply(front, events_of(back, THEIRS), asked, stream=stream, back=back)
    request = next_request(front, said, asked)
    again = replayed(back, sent(front, request, back, THEIRS))
    if front == "messages":  # a turn in the one order that all three have
        assert again == SIGNED[back]
    for opaque in OPAQUE[back]:
        assert f'"{opaque}"' in msgspec.json.encode(again).decode()


@table(("front", "back", "other"), list(product(FRONTS, SIGNED, SIGNED)))
@table("model", ["asked", "another"])
def test_a_signature_goes_to_no_other_model(front, back, other, model):
    said = client_reply(front, events_of(back, THEIRS), "asked", stream=True, back=back)
    request = next_request(front, said, "asked")
    body = msgspec.json.encode(sent(front, request, other, model)).decode()
    assert [opaque for opaque in OPAQUE[back] if opaque in body] == []
    assert "callboard." not in body


@table("stream", [True, False])
def test_what_two_models_thought_is_told_apart(stream):
    thoughts = [ReasoningPiece("a", "", "one"), ReasoningPiece("b", "", "two"), ReasoningPiece("c", "c2ln", "two")]
    said = client_reply(
        "messages", [ReplyStarted(), *thoughts, TextPiece("t"), ReplyEnded("stop")], "two", stream=stream
    )
    request = next_request("messages", said, "two")
    assert request.canisters[0].content[:2] == (
        ReasoningContent("a", "", "one"),
        ReasoningContent("bc", "c2ln", "two"),
    )


@table("stream", [True, False])
def test_what_was_thought_without_a_signature_knows_its_model(stream):
    events = [ReplyStarted(), ReasoningPiece("hm", "", THEIRS), TextPiece("t"), ReplyEnded("stop")]
    request = next_request("messages", client_reply("messages", events, "asked", stream=stream), "asked")
    assert sent("messages", request, "chat", THEIRS)["messages"][0]["reasoning_content"] == "hm"
    assert "hm" not in str(sent("messages", request, "chat", "asked"))


@table(("front", "back"), [pair for pair in product(FRONTS, SIGNED) if pair[0] != pair[1]])
def test_what_was_signed_elsewhere_or_made_up_is_not_sent(front, back):
    """What a client has of the same wire's own provider, or without any gateway."""
    said = next_request(front, client_reply(front, events_of(front, "m"), "m", stream=True, back=front), "m")
    body = msgspec.json.encode(sent(front, said, back, "m")).decode()
    assert [opaque for opaque in OPAQUE[front] if opaque in body] == []


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), st.data())
def test_of_a_seal_that_was_cut_nothing_opaque_is_left(opaque, data):
    whole = seal(opaque, "gemini|m")
    cut = whole[: -data.draw(st.integers(1, len(opaque)))]
    assert unseal(cut, "other") == ("", "gemini|m")


def test_a_model_s_own_goes_as_it_is():
    assert seal_for_client("c2ln", "m", "m") == seal_for_client("c2ln", "", "m") == "c2ln"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(texts, texts, texts, texts)
def test_a_seal_is_opened_by_who_made_it(opaque, origin, model, other):
    assert unseal(seal(opaque, origin), other) == (opaque, origin)
    assert unseal(seal_for_client(opaque, origin, model), model) == (opaque, origin or model)
    within = seal(opaque, origin)  # another gateway's, for which this one is the client
    assert unseal(seal_for_client(within, model, model), model) == (within, model)

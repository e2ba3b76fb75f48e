"""Texts that a client sent apart stay apart, and what a model said stays to the letter."""

from __future__ import annotations

import msgspec
from tests.tables import table

from callboard import core
from callboard.wires import WIRES

APART = (core.TextualContent("text 1."), core.TextualContent("Make it."))
JOINED = "text 1.\nMake it."
CALL = core.InvocationCanister("a", "f", {}, "{}")
SAID = {
    "user": core.UserCanister(APART),
    "supervisor": core.SupervisorCanister(APART),
    "document": core.DocumentCanister(APART, title="T"),
    "result": core.ResultCanister(APART, invocation_id="a"),
}
HELD = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}


def strings(value):
    """All texts in a body."""
    match value:
        case dict():
            return [text for each in value.values() for text in strings(each)]
        case list():
            return [text for each in value for text in strings(each)]
        case str():
            return [value]
    return []


def body(wire, *canisters, model="m"):
    lowered = WIRES[wire].encode_request(core.Request(model, canisters))
    return msgspec.json.decode(msgspec.json.encode(lowered.body)), lowered.dropped


@table("wire", WIRES)
@table("said", SAID)
def test_texts_that_were_sent_apart_stand_apart(wire, said):
    before = [CALL] if said == "result" else []
    found = strings(body(wire, *before, SAID[said])[0])
    assert [text for text in found if "1.Make" in text] == []
    joined = any(JOINED in text for text in found)
    assert joined or {"text 1.", "Make it."} <= {text.removeprefix("T\n\n") for text in found}
    assert joined or wire != "chat"


def test_gemini_is_instructed_in_one_part_a_supervisor():
    said, _ = body("gemini", core.SupervisorCanister(APART), core.SupervisorCanister("more"))
    assert said["systemInstruction"] == {"parts": [{"text": JOINED}, {"text": "more"}]}


@table("wire", WIRES)
def test_texts_with_a_picture_are_parts(wire):
    said, _ = body(wire, core.UserCanister((*APART, core.PictureContent(b"png"))))
    assert {"text 1.", "Make it."} <= set(strings(said))


@table("wire", WIRES)
def test_what_a_model_said_in_pieces_is_not_changed(wire):
    events = [
        core.TextPiece("One "),
        core.ReasoningPiece("hm", "s", "m"),
        core.TextPiece("wo"),
        core.TextPiece("rd."),
        core.ReplyEnded("stop"),
    ]
    fold = core.Fold()
    canisters = [canister for event in events for canister in fold.feed(event)]
    found = strings(body(wire, core.UserCanister("u"), *canisters)[0])
    assert "".join([text for text in found if text in {"One ", "word.", "One word."}]) == "One word."


@table("wire", WIRES)
def test_several_texts_come_back_as_one_where_they_are_one(wire):
    request = core.Request("m", (core.UserCanister(APART),))
    said = msgspec.json.decode(msgspec.json.encode(WIRES[wire].encode_request(request).body))
    again = WIRES[wire].decode_request({"model": "m", **said})
    assert again.canisters == (core.UserCanister(JOINED) if wire == "chat" else core.UserCanister(APART),)
    assert WIRES[wire].encode_request(again).body[HELD[wire]] == said[HELD[wire]]


@table("wire", WIRES)
def test_a_conversation_begins_as_it_began(wire):
    canisters = [core.SupervisorCanister(APART)]
    before = b""
    for turn in range(3):
        canisters += [core.UserCanister(APART), core.AssistantCanister(APART), core.UserCanister(f"{turn}")]
        request = core.Request("m", tuple(canisters), stream=False)
        encoded = msgspec.json.encode(WIRES[wire].encode_request(request).body[HELD[wire]])
        assert encoded.startswith(before)
        before = encoded.rstrip(b"]}")


@table("wire", WIRES)
def test_what_is_lost_often_is_told_once(wire):
    lost = (core.ReasoningContent("x", "s", "another"), core.TextualContent("t"), core.PictureContent())
    canisters = [each for _ in range(3) for each in (core.UserCanister(lost), core.AssistantCanister(lost))]
    dropped = WIRES[wire].encode_request(core.Request("m", tuple(canisters))).dropped
    assert sorted(dropped) == ["picture", "reasoning"]

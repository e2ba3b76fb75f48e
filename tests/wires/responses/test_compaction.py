"""A conversation's summary as an item, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.wires.responses import decode_request
from callboard.wires.responses.compaction import CompactionEncoder, encode_compaction
from callboard.wires.responses.content import read_summary, seal, seal_summary
from callboard.wires.responses.response_object import complete_items, input_items

SAID = {"identifier": "resp_1", "model": "m", "created": 0}


@given(st.text(), st.text(min_size=1))
def test_a_summary_comes_back(text, origin):
    assert read_summary(seal_summary(text, origin)).endswith(text.encode("utf-8", "replace").decode())


@table("sealed", [None, 5, "", "theirs", "callboard.1.", "callboard.1.bQ==.%%", seal("x", "m")])
def test_what_is_not_ours_is_left_alone(sealed):
    assert read_summary(sealed) is None


def test_a_model_reads_it_as_said_by_the_user():
    item = {"type": "compaction", "encrypted_content": seal_summary("A dog was seen.", "other")}
    request = decode_request({"model": "m", "input": [item, {"role": "user", "content": "So?"}]})
    first, second = request.canisters
    assert isinstance(first, core.UserCanister)
    assert first.text.endswith("A dog was seen.")
    assert second == core.UserCanister("So?")


@pytest.mark.parametrize(
    ("events", "status", "items"),
    [
        ([core.ReplyStarted(), core.TextPiece("a"), core.TextPiece("b"), core.Usage(1, 2), core.ReplyEnded("stop")], "completed", 1),
        ([core.ReasoningPiece("x"), core.InvocationStarted(0, "c", "f"), core.TextPiece("ab"), core.ReplyEnded("invocations")],
         "completed", 1),
        ([core.TextPiece("x"), core.ReplyEnded("retry"), core.Note("alert", "x"), core.TextPiece("ab"), core.ReplyEnded("stop")],
         "completed", 1),
        ([core.TextPiece("ab"), core.ReplyEnded("length")], "incomplete", 1),
        ([core.TextPiece("ab"), core.ReplyFailed("provider", "x", "x")], "failed", 0),
        ([core.TextPiece("ab")], "failed", 0),
        ([], "failed", 0),
    ],
)  # fmt: skip
def test_a_reply_is_one_item(events, status, items, judge_response):
    response = encode_compaction(events, **SAID)
    judge_response({**response, "error": response["error"] and {**response["error"], "code": "server_error"}})
    assert response["status"] == status
    assert [item["type"] for item in response["output"]] == ["compaction"] * items
    assert all(read_summary(item["encrypted_content"]).endswith("ab") for item in response["output"])


def test_nothing_follows_the_end():
    encoder = CompactionEncoder(**SAID)
    for event in (core.TextPiece("x"), core.ReplyEnded("stop")):
        encoder.feed(event)
    assert encoder.feed(core.ReplyEnded("stop")) == encoder.feed(core.Usage()) == encoder.finish() == []
    assert len(encoder.response["output"]) == 1


@table(
    "said",
    [None, "hi", [], [{"role": "user", "content": "hi"}], [{"type": "reasoning"}], [{"type": []}, {"type": ["x"]}, {}]],
)
def test_what_is_listed_means_the_same(said):
    items = complete_items(input_items(said), "1")
    assert complete_items(items, "2") == items
    assert len({item["id"] for item in items}) == len(items)
    one, other = (decode_request({"model": "m", "input": given}).canisters for given in (said, items))
    assert one == other


def test_only_the_role_assistant_lists_a_text_as_output():
    said = [{"role": role, "content": "hi"} for role in ("assistant", "user", ["assistant"], None)]
    parts = [part["type"] for item in complete_items(said, "1") for part in item["content"]]
    assert parts == ["output_text", "input_text", "input_text", "input_text"]

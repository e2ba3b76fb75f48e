import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import decode_canister, decode_event, encode_line
from callboard.errors import CallerError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, json_values, max_size=3)
parts = st.one_of(
    st.builds(core.TextualContent, texts),
    st.builds(core.PictureContent, st.binary(max_size=9)),
    st.builds(core.FileContent, st.binary(max_size=9), name=texts),
    st.builds(core.ReasoningContent, texts, texts, texts),
    st.builds(core.RefusalContent, texts),
)
spoken = st.tuples(parts) | st.tuples(parts, parts)
stamped = {"timestamp": st.none() | st.datetimes(timezones=st.timezones()).map(lambda t: t.replace(fold=0))}
canisters = st.one_of(
    st.builds(core.UserCanister, spoken),
    st.builds(core.AssistantCanister, spoken),
    st.builds(core.SupervisorCanister, spoken),
    st.builds(core.DocumentCanister, spoken, title=texts),
    st.builds(core.InvocationCanister, texts, texts, st.none() | objects, texts),
    st.builds(
        core.ResultCanister,
        content=spoken,
        invocation_id=texts,
        error=st.none() | st.builds(core.ToolError, st.just("timeout"), texts),
    ),
)


@given(canisters)
def test_a_canister_survives_its_line(canister):
    line = encode_line(canister)
    assert b"\n" not in line
    assert decode_canister(line) == canister


@table(
    "event",
    [
        core.TextPiece("é", (0, 1)),
        core.ArgumentsPiece(1, '{"a"'),
        core.InvocationEnded(0, "c", "f", {"a": [1]}, '{"a":[1]}'),
        core.Usage(1, 2, 3, 4),
        core.Note("coerced", "x"),
        core.ReplyEnded("length"),
        core.ResultReady(core.ResultCanister(invocation_id="c", content="x")),
        core.RunEnded("completed", "out", core.Usage(1, 1)),
    ],
)
def test_an_event_survives_its_line(event):
    assert decode_event(encode_line(event)) == event


def test_a_line_names_its_kind_in_snake_case():
    assert encode_line(core.TextPiece("a")) == b'{"type":"text_piece","text":"a"}'
    assert encode_line(core.UserCanister("a")) == b'{"role":"user","content":[{"type":"text","text":"a"}]}'


@table("line", [b"", b"{", b"[]", b'{"role":"nobody"}', b'{"role":"user","content":5}'])
def test_what_is_no_canister_is_refused_with_its_place(line):
    with pytest.raises(CallerError, match=r"messages.jsonl:3: not a canister"):
        decode_canister(line, path="messages.jsonl:3")

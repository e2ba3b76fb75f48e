import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import (
    ArgumentsPiece,
    AssistantCanister,
    DocumentCanister,
    FileContent,
    InvocationCanister,
    InvocationEnded,
    Note,
    PictureContent,
    ReasoningContent,
    RefusalContent,
    ReplyEnded,
    ResultCanister,
    ResultReady,
    RunEnded,
    SupervisorCanister,
    TextPiece,
    TextualContent,
    ToolError,
    Usage,
    UserCanister,
    decode_canister,
    decode_event,
    encode_line,
)
from callboard.errors import CallerError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, json_values, max_size=3)
parts = st.one_of(
    st.builds(TextualContent, texts),
    st.builds(PictureContent, st.binary(max_size=9)),
    st.builds(FileContent, st.binary(max_size=9), name=texts),
    st.builds(ReasoningContent, texts, texts, texts),
    st.builds(RefusalContent, texts),
)
spoken = st.tuples(parts) | st.tuples(parts, parts)
stamped = {"timestamp": st.none() | st.datetimes(timezones=st.timezones()).map(lambda t: t.replace(fold=0))}
canisters = st.one_of(
    st.builds(UserCanister, spoken),
    st.builds(AssistantCanister, spoken),
    st.builds(SupervisorCanister, spoken),
    st.builds(DocumentCanister, spoken, title=texts),
    st.builds(InvocationCanister, texts, texts, st.none() | objects, texts),
    st.builds(
        ResultCanister,
        content=spoken,
        invocation_id=texts,
        error=st.none() | st.builds(ToolError, st.just("timeout"), texts),
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
        TextPiece("é", (0, 1)),
        ArgumentsPiece(1, '{"a"'),
        InvocationEnded(0, "c", "f", {"a": [1]}, '{"a":[1]}'),
        Usage(1, 2, 3, 4),
        Note("coerced", "x"),
        ReplyEnded("length"),
        ResultReady(ResultCanister(invocation_id="c", content="x")),
        RunEnded("completed", "out", Usage(1, 1)),
    ],
)
def test_an_event_survives_its_line(event):
    assert decode_event(encode_line(event)) == event


def test_a_line_names_its_kind_in_snake_case():
    assert encode_line(TextPiece("a")) == b'{"type":"text_piece","text":"a"}'
    assert encode_line(UserCanister("a")) == b'{"role":"user","content":[{"type":"text","text":"a"}]}'


@table("line", [b"", b"{", b"[]", b'{"role":"nobody"}', b'{"role":"user","content":5}'])
def test_what_is_no_canister_is_refused_with_its_place(line):
    with pytest.raises(CallerError, match=r"messages.jsonl:3: not a canister"):
        decode_canister(line, path="messages.jsonl:3")

"""Every case whole, at every chunk size and cut anywhere; and what holds for any text at all."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    TextPiece,
    ToolDeclaration,
)
from callboard.dialects import DIALECTS, Parser, dialect_named, parse
from callboard.dialects.blocks import MAX_HELD
from callboard.errors import CallerError
from callboard.testing import coalesce

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "vectors/dialects/objects.jsonl").read_text("utf-8").splitlines()
]
TOOLS = [ToolDeclaration("get_weather"), ToolDeclaration("get_time")]
FRAMING = re.compile(r"[\s`~,;\[\]]*(?:json|tool_call)?[\s`~,;\[\]]*")


def declared(case):
    if "tools" not in case:
        return TOOLS
    return None if case["tools"] is None else [ToolDeclaration(tool["name"]) for tool in case["tools"]]


def in_pieces(text, sizes, tools, dialect, why):
    parser, events, at = Parser(tools, dialect), [], 0
    for size in sizes:
        events += parser.feed(text[at : at + size])
        at += size
    return coalesce([*events, *parser.feed(text[at:]), *parser.finish(why)])


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['dialect']}-{case['id']}")
def test_a_case_means_what_it_says(case):
    tools, why = declared(case), case.get("stop", "stop")
    events = coalesce(parse(case["text"], tools, case["dialect"], why=why))
    assert "".join(event.text for event in of(TextPiece, events)) == case["text_out"]
    assert "".join(event.text for event in of(ReasoningPiece, events)) == case.get("reasoning", "")
    ended = of(InvocationEnded, events)
    assert [(event.name, event.arguments) for event in ended] == [
        (call["name"], call["arguments"]) for call in case["calls"]
    ]
    assert [event.raw for event in ended if event.arguments is None] == [
        call["raw"] for call in case["calls"] if "raw" in call
    ]
    assert [{"name": event.name, "raw": event.raw} for event in of(InvocationIncomplete, events)] == case.get(
        "incomplete", []
    )
    assert [event.name for event in of(InvocationStarted, events) if not event.known] == case.get("unknown", [])
    assert [event.text for event in of(Note, events)] == case.get("notes", [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['dialect']}-{case['id']}")
def test_a_case_is_the_same_at_every_chunk_size(case):
    text, why = case["text"], case.get("stop", "stop")
    whole = coalesce(parse(text, declared(case), case["dialect"], why=why))
    for size in range(1, len(text)):
        pieces = in_pieces(text, [size] * (len(text) // size), declared(case), case["dialect"], why)
        assert pieces == whole, size


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['dialect']}-{case['id']}")
def test_a_cut_never_makes_a_call_that_the_whole_has_not(case):
    whole = {(e.name, e.raw) for e in of(InvocationEnded, parse(case["text"], declared(case), case["dialect"]))}
    for end in range(len(case["text"])):
        events = parse(case["text"][:end], declared(case), case["dialect"], why="length")
        check(case["text"][:end], events)
        assert {(event.name, event.raw) for event in of(InvocationEnded, events)} <= whole


def check(text, events):
    """What holds for any text: calls are told in order, and no character is lost."""
    open_calls, arguments, spans = {}, {}, []
    for event in events:
        match event:
            case InvocationStarted():
                assert event.index == len(arguments)
                open_calls[event.index], arguments[event.index] = event, []
            case ArgumentsPiece():
                assert event.index in open_calls
                arguments[event.index].append(event.json)
            case InvocationEnded() | InvocationIncomplete():
                started = open_calls.pop(event.index)
                assert (event.identifier, event.name) == (started.identifier, started.name)
                assert event.raw == "".join(arguments[event.index])
                if isinstance(event, InvocationEnded) and event.arguments is not None:
                    assert event.arguments == json.loads(event.raw)
                spans.append(event.offsets)
            case TextPiece() | Note():
                spans.append(event.offsets)
    assert not open_calls
    covered = [False] * len(text)
    for begin, end in spans:
        covered[begin:end] = [True] * (end - begin)
    rest = "".join(char if not seen else "\0" for char, seen in zip(text, covered, strict=True))
    return [piece for piece in rest.split("\0") if piece]


FRAGMENTS = st.sampled_from(
    [
        *'`{}[]",:\\\n \tx~',
        "```",
        "```json\n",
        "````",
        "\n```\n",
        '"name"',
        '"get_time"',
        '"arguments"',
        '{"name":"get_time","arguments":{"a":"b"}}',
        '{"name":"get_time","arguments":{',
        '{"name":"Bob"}',
        '{"answer":"hi \\u00e9"}',
        '"scratchpad"',
        "null",
        "�",
        "\0",
        "\U0001d4b3",
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=4), max_size=14).map("".join)


@settings(max_examples=600)
@given(
    TEXTS,
    st.sampled_from(sorted(DIALECTS)),
    st.lists(st.integers(1, 7), max_size=30),
    st.sampled_from(["stop", "length"]),
)
def test_any_text_however_it_is_cut(text, dialect, sizes, why):
    whole = coalesce(parse(text, TOOLS, dialect, why=why))
    assert in_pieces(text, sizes, TOOLS, dialect, why) == whole
    left = check(text, whole)
    if dialect == "json":
        for piece in left:
            assert FRAMING.fullmatch(piece), (piece, whole)


@given(TEXTS)
def test_without_tools_the_text_passes_untouched(text):
    assert "".join(event.text for event in parse(text, [])) == text


def test_arguments_stream_as_they_arrive():
    parser = Parser(TOOLS)
    parser.feed('{"name": "get_weather", "arguments": {"city": "')
    assert parser.feed("Os") == [ArgumentsPiece(0, "Os", (47, 49))]


def test_an_answer_streams_as_it_arrives():
    parser = Parser(TOOLS, "action")
    parser.feed('{"action": {"answer": "')
    assert parser.feed("It ") == [TextPiece("It ", (23, 26))]


def test_what_is_held_back_is_bounded():
    parser = Parser(TOOLS)
    assert parser.feed('{"x": "') == []
    said = [event for _ in range(20) for event in parser.feed("y" * 8192)]
    assert len("".join(event.text for event in said)) > 20 * 8192 - MAX_HELD - 8192


def test_after_finish_another_text_may_follow():
    parser = Parser(TOOLS)
    first = [*parser.feed('{"name":"get_time","arguments":{}}'), *parser.finish()]
    second = [*parser.feed('{"name":"get_time","arguments":{}}'), *parser.finish()]
    assert [event.identifier for event in of(InvocationEnded, first + second)] == ["call_0_0", "call_0_1"]
    assert of(InvocationEnded, second)[0].offsets == (34, 68)


@pytest.mark.parametrize("opener", ["{", "[", "```", "`", '{"a":', "[{"])
def test_a_hundred_thousand_openers_are_text(opener):
    text = opener * 100_000
    assert "".join(event.text for event in parse(text, TOOLS)) == text


def test_a_dialect_is_found_by_its_name():
    assert dialect_named("JSON").name == "json"
    with pytest.raises(CallerError, match="no dialect 'klingon'; there are json, action"):
        Parser(TOOLS, "klingon")

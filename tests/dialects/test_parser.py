"""Every case of every dialect: whole, at every chunk size, cut anywhere; and what holds for any text."""

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.dialects import DIALECTS, Parser, find_dialects, get_dialect, parse, render_call, render_calls
from callboard.dialects.text_buffer import MAX_HELD
from callboard.errors import CallerError
from callboard.testing import coalesce

VECTORS = Path(__file__).parents[1] / "vectors/dialects"
BEHIND = 32
"""Characters in which it shows that a call is whole."""


def vectors(name):
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text("utf-8").splitlines()]


OBJECTS = vectors("objects")
"""JSON objects, with every character that is said."""
CASES = vectors("cases") + vectors("catalogue")
ALL = [*OBJECTS, *CASES]
TOOLS = [core.ToolDeclaration("get_weather"), core.ToolDeclaration("get_time")]
NOTE = [
    core.ToolDeclaration(name, "", {"type": "object", "properties": {"text": {"type": "string"}}})
    for name in ("note", "python", "bash")
]
CODE = {"smolagents": "python", "markdown_bash": "bash"}
"""The tool that a dialect of code calls."""


def name_of(case):
    return f"{case['dialect']}-{case['id']}"


def declared(case):
    tools = case.get("tools", [{"name": tool.name} for tool in TOOLS])
    if tools is None:
        return None
    return [core.ToolDeclaration(tool["name"], "", tool.get("parameters", {}), tool.get("cli", {})) for tool in tools]


def read(case, sizes=(), text=None, why=None):
    """The events of a case whose text is cut into pieces of these sizes and a rest."""
    text = case["text"] if text is None else text
    parser = Parser(declared(case), case["dialect"], start_in_reasoning=case.get("start_in_reasoning", False))
    events, at = [], 0
    for size in sizes:
        events += parser.feed(text[at : at + size])
        at += size
    return coalesce([*events, *parser.feed(text[at:]), *parser.finish(why or case.get("stop", "stop"))])


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def text_of(kind, events):
    return "".join(event.text for event in of(kind, events))


def collapse_spaces(text):
    return " ".join((text or "").split())


def calls(events):
    return [(event.name, event.arguments, event.raw) for event in of(core.InvocationEnded, events)]


# The cases.


@table("case", CASES, ids=name_of)
def test_a_case_means_what_it_says(case):
    events = read(case)
    content = collapse_spaces(text_of(core.TextPiece, events))
    assert content == collapse_spaces(case["expected_content"]) or (
        case.get("content_optional") and content in {"", collapse_spaces(case["text"])}
    )
    if "expected_reasoning" in case:
        assert collapse_spaces(text_of(core.ReasoningPiece, events)) == collapse_spaces(case["expected_reasoning"])
    ended = of(core.InvocationEnded, events)
    wanted = [{"name": call["name"], "arguments": call["arguments"]} for call in case["expected_calls"]]
    told = [{"name": call.name, "arguments": call.arguments} for call in ended]
    # As text, so that 1 is not True.
    assert json.dumps(told, sort_keys=True) == json.dumps(wanted, sort_keys=True)
    for call, expected in zip(ended, case["expected_calls"], strict=True):
        assert call.identifier == expected.get("id", call.identifier)
    assert [event.name for event in of(core.InvocationIncomplete, events)] == [
        call["name"] for call in case.get("expected_incomplete", [])
    ]
    unknown = [event.name for event in of(core.InvocationStarted, events) if not event.known]
    assert set(case.get("expected_unknown", [])) <= set(unknown)


@table("case", OBJECTS, ids=name_of)
def test_an_object_means_what_it_says(case):
    events = read(case)
    assert text_of(core.TextPiece, events) == case["text_out"]
    assert text_of(core.ReasoningPiece, events) == case.get("reasoning", "")
    ended = of(core.InvocationEnded, events)
    assert [(call.name, call.arguments) for call in ended] == [
        (call["name"], call["arguments"]) for call in case["calls"]
    ]
    assert [call.raw for call in ended if call.arguments is None] == [
        call["raw"] for call in case["calls"] if "raw" in call
    ]
    assert [{"name": event.name, "raw": event.raw} for event in of(core.InvocationIncomplete, events)] == case.get(
        "incomplete", []
    )
    assert [event.name for event in of(core.InvocationStarted, events) if not event.known] == case.get("unknown", [])
    assert [event.text for event in of(core.Note, events)] == case.get("notes", [])


def test_every_dialect_has_cases():
    assert set(DIALECTS) == {case["dialect"] for case in ALL}


@table("case", ALL, ids=name_of)
def test_a_case_is_the_same_at_these_chunk_sizes(case):
    whole = read(case)
    for each in (1, 2, 3, 5, 7, 11, 16, 31):
        assert read(case, [each] * (len(case["text"]) // each)) == whole, each


@settings(max_examples=4 * settings.default.max_examples)
@given(st.sampled_from(ALL), st.lists(st.integers(1, 40), max_size=60))
def test_a_case_is_the_same_however_it_is_cut(case, sizes):
    assert read(case, sizes) == read(case)


@table("case", ALL, ids=name_of)
def test_a_cut_makes_no_call_and_loses_none(case, fuzzer):
    """The calls of a text that was cut are those of the whole text that end before the cut."""
    whole, kept_of = (of(core.InvocationEnded, read(case, why=why)) for why in (None, "length"))
    for end in range(len(case["text"])):
        events = read(case, text=case["text"][:end], why="length")
        fuzzer.check_calls(events)
        kept = of(core.InvocationEnded, events)
        assert calls(kept) == calls(whole)[: len(kept)], end
        # What closes a call may stand behind the span of it, and a block of commands is calls when it is whole.
        if case["dialect"] != "markdown_bash":
            assert len(kept) >= sum(call.offsets[1] + BEHIND < end for call in kept_of), end
        if end % 3 == 0:
            fuzzer.check_calls(read(case, text=case["text"][:end], why="stop"))


@table("case", ALL, ids=name_of)
def test_every_character_of_a_case_is_told_or_framing(case, fuzzer):
    fuzzer.check(fuzzer.Input.of(case))


@table("case", ALL, ids=name_of)
def test_without_tools_the_text_passes_untouched(case):
    if DIALECTS[case["dialect"]].is_only_format:
        return  # its text, too, is spelled in it
    assert read({**case, "tools": [], "start_in_reasoning": False}, [1] * 9) == [
        core.TextPiece(case["text"], (0, len(case["text"])))
    ]


# Every dialect.


every_dialect = table("dialect", [DIALECTS[name] for name in sorted(DIALECTS)], ids=lambda dialect: dialect.name)


def spelled(dialect, *texts):
    name = CODE.get(dialect.name, "note")
    invocations = [
        core.InvocationCanister(f"{index}abcdefgh", name, {"text": text}) for index, text in enumerate(texts)
    ]
    return render_calls(dialect, invocations, NOTE)


@every_dialect
def test_no_marker_is_in_what_is_said(dialect):
    """A thought, a text, two calls, and a text behind them."""
    twice = dialect.name not in {"react", "smolagents", "markdown_bash"}
    rendered = "".join(
        [
            *(f"{each.opens}I think.{each.closes}" for each in dialect.reasoning[:1]),
            "I look.\n\n",
            spelled(dialect, "one", *(["two"] if twice else [])),
        ]
    )
    events = parse(rendered, NOTE, dialect)
    assert text_of(core.ReasoningPiece, events) == ("I think." if dialect.reasoning else "")
    assert text_of(core.TextPiece, events).strip() == "I look."
    name = CODE.get(dialect.name, "note")
    assert [(event.name, event.arguments) for event in of(core.InvocationEnded, events)] == [
        (name, {"text": text}) for text in (["one", "two"] if twice else ["one"])
    ]
    assert not of(core.Note, events)


ALONE = {"auto", "bare_json", "json", "markdown_json", "qwen25_coder", "thoughts_json", "xlam"}
"""What they spell is an object with nothing around it that says that it is a call: its last member shows that. The tag of
qwen25_coder is also around definitions of tools."""


@every_dialect
def test_a_string_streams_as_it_arrives(dialect):
    if dialect.name in ALONE:
        return
    text = "The quick brown fox."
    rendered = spelled(dialect, text)
    # A command's first word says whether it is one of a tool.
    begin = text.index(" ") + 1
    parser = Parser(NOTE, dialect)
    parser.feed(rendered[: rendered.index(text) + begin])
    for char in text[begin:-1]:
        events = parser.feed(char)
        assert [event.json for event in events] == [char]
        assert isinstance(events[0], core.ArgumentsPiece)


@table("dialect", sorted(ALONE))
def test_an_object_alone_is_told_when_it_is_closed(dialect):
    rendered = spelled(DIALECTS[dialect], "The quick brown fox.")
    closed = rendered.index('fox."}}') + len('fox."}}')
    parser = Parser(NOTE, dialect)
    assert of(core.InvocationStarted, parser.feed(rendered[: closed - 1])) == []
    told = parser.feed(rendered[closed - 1 : closed])
    assert [call.arguments for call in of(core.InvocationEnded, told)] == [{"text": "The quick brown fox."}]


@table("dialect", sorted(ALONE))
def test_a_call_that_is_longer_than_what_is_held_is_one_all_the_same(dialect):
    text = "x" * 2 * MAX_HELD
    rendered = spelled(DIALECTS[dialect], text)
    parser = Parser(NOTE, dialect)
    events = [event for at in range(0, len(rendered), 999) for event in parser.feed(rendered[at : at + 999])]
    assert [call.arguments for call in of(core.InvocationEnded, [*events, *parser.finish()])] == [{"text": text}]


@every_dialect
def test_identifiers_are_unique_and_the_same_every_time(dialect):
    text = spelled(dialect, "one") + "\n" + spelled(dialect, "two")
    first, again = parse(text, NOTE, dialect), parse(text, NOTE, dialect)
    assert first == again
    identifiers = [event.identifier for event in of(core.InvocationStarted, first)]
    assert len(set(identifiers)) == len(identifiers)


def waiting(parser, text):
    """Feeds a text by characters; how many of them at most were not told."""
    most = told = 0
    for fed, char in enumerate(text, 1):
        told = max([told, *(event.offsets[1] for event in parser.feed(char))])
        most = max(most, fed - told)
    return most


@every_dialect
def test_prose_is_not_held_back(dialect, fuzzer):
    longest = max(map(len, fuzzer.markers(dialect.name)), default=1)
    prose = "So a < b, a <b> c, x = [1] or {2}; see `f(x)` and <a href='b'>it</a>: f(x), 5 > 3.\nThen: done | over.\n"
    assert waiting(Parser(NOTE, dialect), prose) <= max(longest, 3)


@every_dialect
def test_half_a_marker_is_held_back_until_it_is_none(dialect, fuzzer):
    markers = fuzzer.markers(dialect.name)
    longest = max(map(len, markers), default=0)
    for marker in markers:
        for size in range(1, len(marker)):
            half = marker[:size]
            if any(each in half for each in markers):
                break  # it is a shorter one
            parser = Parser(NOTE, dialect)
            assert waiting(parser, f"So {half}") <= longest, half
            told = parser.feed("\N{SNOWMAN}x")
            assert told[-1].offsets[1] == len(half) + 5, half


@every_dialect
def test_a_candidate_is_held_back_to_a_bound(dialect):
    for size, candidate in product((1, 7, 8192), ('{"x": "', '[{"x": "', "```json\n{", "f(x=", "Thought: ")):
        parser = Parser(TOOLS, dialect)
        parser.feed(candidate)
        fed = 3 * MAX_HELD if size > 1000 else 100
        told = [event for _ in range(fed // size) for event in parser.feed("y" * size)]
        held = len(candidate) + fed - sum(len(getattr(event, "text", getattr(event, "json", ""))) for event in told)
        assert held <= MAX_HELD + len(candidate) + 8192


# The rest.


def test_an_answer_streams_as_it_arrives():
    parser = Parser(TOOLS, "action")
    parser.feed('{"action": {"answer": "')
    assert parser.feed("It ") == [core.TextPiece("It ", (23, 26))]


def test_after_finish_another_text_may_follow():
    parser = Parser(TOOLS)
    first = [*parser.feed('{"name":"get_time","arguments":{}}'), *parser.finish()]
    second = [*parser.feed('{"name":"get_time","arguments":{}}'), *parser.finish()]
    assert [event.identifier for event in of(core.InvocationEnded, first + second)] == ["call_0_0", "call_0_1"]
    assert of(core.InvocationEnded, second)[0].offsets == (34, 68)


def test_auto_says_which_dialect_is_spoken():
    for name in ("hermes", "kimi_k2", "glm47", "mistral", "harmony", "pythonic", "functiongemma", "json"):
        parser = Parser(NOTE)
        assert parser.dialect.name == "auto"
        parser.feed(render_call(DIALECTS[name], core.InvocationCanister("0", "note", {"text": "x"}), NOTE))
        parser.feed("\n")
        assert parser.dialect.name == name


def test_a_repair_is_for_whole_calls_and_noted():
    text = '<tool_call>{"name": "note", "arguments": {"text": x}}</tool_call>'
    for cut, why, wanted in ((len(text), "stop", {"text": "x"}), (len(text) - 20, "length", None)):
        parser = Parser(NOTE, "hermes", repair=lambda raw: json.loads(raw.replace("x}", '"x"}')))
        events = [*parser.feed(text[:cut]), *parser.finish(why)]
        assert [event.arguments for event in of(core.InvocationEnded, events)] == ([wanted] if wanted else [])
        assert [event.kind for event in of(core.Note, events)] == (["repaired"] if wanted else [])


def test_identifiers_of_a_conversation():
    """What the model counts in one reply is no identifier in a conversation."""
    text = "".join(
        f"<|tool_call_begin|>{each}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
        for each in ("functions.note:0", "functions.note:0", "note", "7")
    )
    alone = parse(text, NOTE, "kimi_k2")
    assert [call.identifier for call in of(core.InvocationEnded, alone)] == [
        "functions.note:0",
        "call_0_1",
        "note",
        "7",
    ]
    told = parse(text, NOTE, "kimi_k2", identify=lambda index, name: f"turn-3-{name}-{index}")
    assert [call.identifier for call in of(core.InvocationEnded, told)][1] == "turn-3-note-1"
    assert len({call.identifier for call in of(core.InvocationEnded, told)}) == 4


def test_a_dialect_is_found_by_its_name():
    assert get_dialect("Kimi-K2").name == "kimi_k2"
    with pytest.raises(CallerError, match="no dialect 'klingon'"):
        Parser(TOOLS, "klingon")


def test_dialects_that_find_a_call_are_found():
    text = 'Let me see. <tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    tool = core.ToolDeclaration(name="weather", description="", schema={"type": "object"})
    assert {"auto", "hermes"} <= set(find_dialects(text, [tool]))
    assert "pythonic" not in find_dialects(text, [tool])
    for found in (find_dialects(text, []), find_dialects("", [tool]), find_dialects("It rains.", [tool])):
        assert found == ()

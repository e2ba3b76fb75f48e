"""What models write that is no call, or not quite one: nothing raises, nothing is lost, nothing takes long."""

import os
import sys
from itertools import product

import pytest
from tests.tables import table

from callboard import core
from callboard.dialects import DIALECTS, Parser, parse, render_call
from callboard.dialects.text_buffer import MAX_HELD
from callboard.testing import coalesce

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "data": {"type": "object"}}}
COMMAND = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    core.ToolDeclaration("note", "", SCHEMA),
    core.ToolDeclaration("other", "", SCHEMA),
    core.ToolDeclaration("bash", "", COMMAND),
]
HERE = "PLACE"


every_dialect = table("dialect", [DIALECTS[name] for name in sorted(DIALECTS)], ids=lambda dialect: dialect.name)


def spelled(dialect, name="note", **arguments):
    tools = [core.ToolDeclaration(name, "", SCHEMA), *TOOLS]
    return render_call(dialect, core.InvocationCanister("abcdefgh0", name, arguments or {"text": HERE}), tools)


def example(dialect):
    return spelled(dialect, "bash" if dialect.name == "markdown_bash" else "note")


def read(text, dialect, why="stop", tools=TOOLS, *, size=1, thinking=False):
    """The events, which are the same whole and in pieces of that size."""
    whole = coalesce(parse(text, tools, dialect, why=why, start_in_reasoning=thinking))
    parser = Parser(tools, dialect, start_in_reasoning=thinking)
    pieces = [parser.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert coalesce([event for piece in [*pieces, parser.finish(why)] for event in piece]) == whole
    return whole


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def text_alone(events):
    """The events without the note that a marker made no call."""
    return [event for event in events if getattr(event, "code", "") != "missed_call"]


def text_of(events):
    return "".join(event.text for event in of(core.TextPiece, events))


def calls(events):
    return [(event.name, event.arguments) for event in of(core.InvocationEnded, events)]


def lost(text, events):
    """How many characters are in no text, no reasoning, no note and no call."""
    kinds = (core.TextPiece, core.ReasoningPiece, core.Note, core.InvocationEnded, core.InvocationIncomplete)
    covered = 0
    reached = 0
    for event in of(kinds, events):
        begin, end = event.offsets
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return len(text) - covered


# Markers that are too many, too few, or out of place.


@every_dialect
def test_a_closer_too_many_is_no_text(dialect):
    text = example(dialect)
    wanted = calls(parse(text, TOOLS, dialect))
    closers = "".join(dialect.render_frame.closers)
    events = read(f"{text}{closers}\n{closers}", dialect)
    assert calls(events) == wanted
    assert not text_of(events).strip()


@every_dialect
def test_an_opener_too_many_makes_no_difference(dialect):
    text = example(dialect)
    wanted = calls(parse(text, TOOLS, dialect))
    for opener in dialect.render_frame.openers:
        assert calls(read(opener + text, dialect)) == wanted


@every_dialect
def test_a_call_whose_frame_stays_open_is_a_call(dialect):
    text = example(dialect)
    wanted = calls(parse(text, TOOLS, dialect))
    for closer in reversed(dialect.render_frame.closers):
        text = text.rstrip().removesuffix(closer)
        assert calls(read(text, dialect)) == wanted


@every_dialect
def test_half_an_opener_is_text(dialect):
    if not dialect.render_frame.openers or dialect.render_frame.at_line_start:
        return
    half = dialect.render_frame.openers[0][:-1] + " "
    events = read(half + example(dialect), dialect)
    for token in dialect.ignored:
        half = half.replace(token, "")
    assert text_of(events).strip() == half.strip()
    assert len(calls(events)) == 1


@every_dialect
def test_markers_that_prose_speaks_of_are_text(dialect):
    tools = [core.ToolDeclaration("note")]
    for opener in {*dialect.render_frame.openers, *dialect.render_frame.closers} - {*dialect.ignored}:
        for text in (f"The {opener} marker, as it is.", f"Use `{opener}` for it.", f"```\n{opener}\n```\n"):
            for why in ("stop", "length"):
                assert text_alone(read(text, dialect, why, tools)) == [core.TextPiece(text, (0, len(text)))]


@every_dialect
def test_a_call_in_a_fence_of_another_language_is_an_example(dialect):
    text = f"So it goes:\n````text\n{example(dialect)}\n````\nThat is all."
    assert text_alone(read(text, dialect)) == [core.TextPiece(text, (0, len(text)))]


@table("blanks", ["\N{NO-BREAK SPACE}", "\f", " " * 64], ids=["no-break space", "form feed", "many"])
def test_blanks_after_a_closing_fence(blanks):
    """Only spaces, tabs and carriage returns may follow: a call after other characters is still in the fence."""
    text = f"```text\nx\n```{blanks}\n{example(DIALECTS['hermes'])}"
    assert bool(calls(read(text, "hermes"))) == (not blanks.strip(" "))


@every_dialect
def test_a_call_in_the_argument_of_another_is_its_text(dialect):
    """Where the dialect can spell it, which those can whose strings are escaped."""
    if dialect.name in {"hermes", "llama3_json", "mistral", "deepseek_v31", "kimi_k2", "harmony", "pythonic", "json"}:
        for other in DIALECTS.values():
            inner = example(other)
            assert calls(read(spelled(dialect, text=inner), dialect)) == [("note", {"text": inner})]


@table(
    ("text", "wanted", "content"),
    [
        pytest.param(
            '<tool_call>{"name": "note", "arguments": <tool_call>{"name": "other", "arguments": {}}</tool_call>',
            [("other", {})],
            '<tool_call>{"name": "note", "arguments": ',
            id="a call inside of a call",
        ),
        pytest.param(
            '<tool_call>{"name": "note", </tool_call>"arguments": {}}',
            [],
            '<tool_call>{"name": "note", </tool_call>"arguments": {}}',
            id="a closer inside of a call",
        ),
        pytest.param(
            '<tool_call>{"name": "note", "arguments": {"text": "</tool_call>"}}</tool_call>',
            [("note", {"text": "</tool_call>"})],
            "",
            id="a closer inside of a string",
        ),
        pytest.param("</tool_call></think>x", [], "</tool_call>x", id="closers alone"),
        pytest.param("<tool_call></tool_call>", [], "<tool_call></tool_call>", id="nothing in it"),
        pytest.param("<tool_call>{}</tool_call>", [], "<tool_call>{}</tool_call>", id="an empty object"),
        pytest.param("<tool_call>null</tool_call>", [], "<tool_call>null</tool_call>", id="null"),
        pytest.param(
            '<tool_call>{"name": "", "arguments": {}}</tool_call>', [("", {})], "", id="a name of no characters"
        ),
        pytest.param(
            '<tool_call>{"name": "note", "name": "other", "arguments": {}}</tool_call>',
            [("note", {})],
            "",
            id="two names",
        ),
        pytest.param(
            '<tool_call>{"name": ["note"], "arguments": {}}</tool_call>',
            [],
            '<tool_call>{"name": ["note"], "arguments": {}}</tool_call>',
            id="a name that is no string",
        ),
    ],
)
def test_hermes_out_of_order(text, wanted, content):
    events = read(text, "hermes")
    assert calls(events) == wanted
    assert text_of(events).rstrip() == content.rstrip()


def test_of_two_dialects_the_first_to_call_is_spoken():
    names = ("hermes", "kimi_k2", "mistral", "harmony", "deepseek_v31", "functiongemma", "minimax_m2", "cohere_command")
    for first in names:
        for second in names:
            if first != second:
                text = f"{spelled(DIALECTS[first])}\nNow:\n{spelled(DIALECTS[second], name='other')}"
                events = read(text, "auto")
                assert calls(events)[0] == ("note", {"text": HERE})
                assert ("other", {"text": HERE}) not in calls(events), (first, second)
                assert HERE in text_of(events)


# Characters.


@every_dialect
def test_any_character_may_come(dialect):
    text = example(dialect)
    for odd in (chr(0xD800), "\ufffd", "\0", "\u2028", "\x1b[2J", "\U0001f600", "\u0301"):
        assert read(odd + text, dialect)
        events = read(text.replace(HERE, f"a{odd}b"), dialect)
        assert all(call.arguments is None or "a" in str(call.arguments) for call in of(core.InvocationEnded, events)), (
            odd
        )
        read(text.replace("note", f"no{odd}te"), dialect)
        read(text.replace("text", f"te{odd}xt"), dialect)


@every_dialect
def test_names_of_many_kinds(dialect):
    identifiers_only = "name(" in example(dialect)
    for name in ("note.v2", "my-tool", "n" * 1000, "a/b", "Note2", "_"):
        too_long = len(name) > 256 and dialect.name == "apertus"  # whose names are keys
        if too_long or dialect.name == "markdown_bash" or (identifiers_only and not name.isidentifier()):
            continue
        tools = [core.ToolDeclaration(name, "", SCHEMA)]
        assert calls(read(spelled(dialect, name), dialect, tools=tools)) == [(name, {"text": HERE})]


@every_dialect
def test_names_that_few_can_say(dialect):
    for name in ("functions.x:0", "functions.note", "note:3", "n" * 5000, "a b", "<b>", "", "\n", "]("):
        text = example(dialect).replace("note", name)
        for tools in (TOOLS, None, [core.ToolDeclaration(name)]):
            events = read(text, dialect, tools=tools, size=1 + len(name) // 50)
            ended = of((core.InvocationEnded, core.InvocationIncomplete), events)
            assert len(of(core.InvocationStarted, events)) == len(ended), name


def test_the_counter_of_kimi_is_no_part_of_a_name():
    text = example(DIALECTS["kimi_k2"]).replace("functions.note:0", "functions.my.note:12")
    (call,) = of(core.InvocationEnded, read(text, "kimi_k2"))
    assert (call.name, call.identifier) == ("my.note", "functions.my.note:12")


# Too much of it.

MANY = 100_000 if "SOAK_RUNS" in os.environ else 5_000
"""What costs more than its characters is found by `test_openers_cost_what_their_characters_cost`."""


@every_dialect
def test_deep_nesting(dialect):
    text = example(dialect)
    quotes = text[text.index(HERE) - 1]
    for brackets in ("[" * MANY, '{"a":' * MANY, "[" * MANY + "]" * MANY):
        for deep in {text.replace(HERE, brackets), text.replace(f"{quotes}{HERE}{quotes}", brackets)}:
            events = parse(deep, TOOLS, dialect)
            ended = of((core.InvocationEnded, core.InvocationIncomplete), events)
            assert len(of(core.InvocationStarted, events)) == len(ended), brackets[:5]


@table("dialect", ["json", "hermes", "action", "thoughts_json", "auto"])
@table("unit", ['{"tool_calls": [', '{"function": ', '{"action": ', "[", "{"])
def test_deep_nesting_of_what_holds_calls(dialect, unit):
    text = unit * MANY
    for opener in ("", "<tool_call>", "```json\n"):
        assert not calls(parse(opener + text, TOOLS, dialect))


@every_dialect
def test_what_is_too_long_is_so_however_it_is_cut(dialect):
    """Names, keys, words and white space have their limits, and behind them the text goes on."""
    text = example(dialect)
    quoted = text[text.index(HERE) - 1] + HERE + text[text.index(HERE) + len(HERE)]
    for place, unit, size in product(("note", "bash", "text", quoted), ("x", " ", "`", "</think>"), (70, 300, 4100)):
        if place in text:
            long = text.replace(place, unit * (size // len(unit)), 1)
            read(f"{long}</think>{text}", dialect, size=7 if size < 1000 else 97)


@table("thinking", [False, True])
@table("name", ["auto", "json", "hermes", "qwen3_coder", "glm47", "pythonic", "react", "harmony"])
def test_what_waits_for_too_long_is_let_go_however_it_is_cut(name, thinking):
    dialect = DIALECTS[name]
    text = example(dialect)
    long = "x</think>y \n" * (MAX_HELD // 10)
    for begin in ('{"x": "', '```json\n{"name": "', text[: text.index(HERE)]):
        read(f"{begin}{long}{text}", dialect, size=7777, thinking=thinking)


def openers():
    """Each once, with one of the dialects that it opens."""
    found = {}
    for name, dialect in DIALECTS.items():
        if name != "auto":
            for frame in (*dialect.frames, *(fence.frame for fence in dialect.fences)):
                heads = [head.prefix for body in frame.grammars for head in body.heads]
                found |= {marker: name for marker in (*frame.openers, *heads) if marker}
            found |= {reasoning.opens: name for reasoning in dialect.reasoning}
    for framing in ("Final Answer:", "<|message_model|>"):  # however often they come
        del found[framing]
    found |= {
        "```json\n": "json",
        "```\n{": "json",
        "`": "json",
        "~~~\n": "json",
        '{"name": "note", "arguments": ': "json",
    }
    return sorted(found.items())


@table(("opener", "dialect"), openers())
def test_many_openers(opener, dialect):
    text = opener * MANY
    events = parse(text, TOOLS, dialect)
    assert not calls(events)
    assert lost(text, events) <= 2 * len(opener)


UNCLOSED = {
    "hermes": '<tool_call>\n{"name": "note", "arguments": {"text": "',
    "qwen3_coder": "<tool_call>\n<function=note>\n<parameter=text>\n",
    "glm47": "<tool_call>note<arg_key>text</arg_key><arg_value>",
    "anthropic_xml": '<function_calls>\n<invoke name="note">\n<parameter name="text">',
    "kimi_k2": '<|tool_call_begin|>functions.note:0<|tool_call_argument_begin|>{"text": "',
    "pythonic": "[note(text='",
    "gemma4": '<|tool_call>call:note{text:<|"|>',
    "react": "Action: note\nAction Input: ",
}


def unclosed(dialect, size):
    """A call whose argument goes on for so many characters, with half markers in it."""
    unit = "lorem ipsum < dolor </ sit amet\n"
    return UNCLOSED[dialect] + unit * (size // len(unit))


@table("dialect", ["hermes", "qwen3_coder", "glm47", "pythonic"])
def test_two_megabytes_without_a_closer(dialect):
    text = unclosed(dialect, 2_000_000)
    (call,) = of(core.InvocationIncomplete, parse(text, TOOLS, dialect, why="length"))
    assert len(call.raw) > 1_980_000
    assert call.offsets == (0, len(text))


def steps(text, dialect):
    """How many functions are called, ours and Python's."""
    parser = Parser(TOOLS, dialect)
    count = 0

    def watch(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(watch)
    try:
        for at in range(0, len(text), 64):
            parser.feed(text[at : at + 64])
        parser.finish()
    finally:
        sys.setprofile(None)
    return count


@table("dialect", UNCLOSED)
def test_a_long_argument_costs_what_its_characters_cost(dialect):
    steps(unclosed(dialect, 1_000), dialect)  # what is compiled on first use is no cost of the characters
    few, many = (steps(unclosed(dialect, size), dialect) for size in (10_000, 40_000))
    assert many <= 4.2 * few


@table("opener", ["<tool_call>", "<tool_call>\n{", '<tool_call>{"name": "note", ', "<think>", "`", "{\n"])
def test_openers_cost_what_their_characters_cost(opener):
    few, many = (steps(opener * count, "auto") for count in (1_000, 4_000))
    assert many <= 4.2 * few

"""Texts that only quote a call, and what stands around real ones.

The vectors in `quotations.jsonl` are texts of twenty kinds; their `own_form` says that a text quotes a call in the very
form in which its model calls, `echoes` that it repeats a page or a result: the call's text stands there word for word.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core import InvocationEnded, InvocationStarted, Note, ReasoningPiece, TextPiece, ToolDeclaration
from callboard.dialects import Parser, parse
from callboard.dialects.text_buffer import MAX_HELD
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.testing import coalesce

VECTORS = Path(__file__).parents[1] / "vectors/dialects"
QUOTATIONS = [json.loads(line) for line in (VECTORS / "quotations.jsonl").read_text("utf-8").splitlines()]
TOOLS = [ToolDeclaration(each["name"], "", each["parameters"]) for each in QUOTATIONS[0]["tools"]]
OBJECT = '{"name": "bash", "arguments": {"command": "ls"}}'
CALL = f"<tool_call>\n{OBJECT}\n</tool_call>"
KINDS = sorted({each["kind"] for each in QUOTATIONS})


def watched(model):
    return make_plan(resolve(model)).watched


def calls(text, dialect="auto", tools=TOOLS, why="stop"):
    events = parse(text, tools, dialect, why=why) if dialect else []
    return [event.name for event in events if isinstance(event, InvocationStarted)]


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextPiece))


# The set.


def test_there_are_two_hundred_quotations_of_every_kind():
    assert len(QUOTATIONS) >= 200
    assert len(KINDS) >= 20
    assert len({each["spelled"] for each in QUOTATIONS}) >= 25
    assert len({each["text"] for each in QUOTATIONS}) == len(QUOTATIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quotation_is_not_a_call(kind):
    """Only what is spelled in the very form in which a model calls is one."""
    for case in QUOTATIONS:
        if case["kind"] == kind and not case.get("own_form"):
            assert calls(case["text"]) == [], case["id"]
            assert calls(case["text"], watched(case["model"])) == [], case["id"]


@pytest.mark.parametrize("own", [False, True])
def test_at_most_one_quotation_in_ten_is_taken_for_a_call(own):
    made = [case for case in QUOTATIONS if calls(case["text"], watched(case["model"]) if own else "auto")]
    assert len(made) <= len(QUOTATIONS) / 10


def test_no_text_that_repeats_a_source_is_a_call():
    assert [case["id"] for case in QUOTATIONS if case.get("echoes") and calls(case["text"])] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_quotation_is_said_as_it_stands_however_it_is_cut(kind, fuzzer):
    for case in QUOTATIONS:
        if case["kind"] == kind:
            text = case["text"]
            whole = coalesce(parse(text, TOOLS, "auto"))
            for size in (1, 3, 17, len(text)):
                parser = Parser(TOOLS)
                events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
                assert coalesce([*events, *parser.finish()]) == whole, (case["id"], size)
            fuzzer.check_calls(whole)
            if not any(isinstance(event, InvocationStarted) for event in whole):
                assert text_of(whole) == text


def test_no_real_call_of_the_vectors_is_lost():
    """Two hundred and more texts of models, each read in its own dialect."""
    found = 0
    for name in ("cases", "catalogue", "objects"):
        for line in (VECTORS / f"{name}.jsonl").read_text("utf-8").splitlines():
            case = json.loads(line)
            names = case.get("tools", [{"name": "get_weather"}, {"name": "get_time"}])
            tools = names and [
                ToolDeclaration(each["name"], "", each.get("parameters", {}), each.get("cli", {})) for each in names
            ]
            events = parse(
                case["text"],
                tools,
                case["dialect"],
                why=case.get("stop", "stop"),
                start_in_reasoning=case.get("start_in_reasoning", False),
            )
            wanted = [call["name"] for call in case.get("expected_calls", case.get("calls", []))]
            assert [event.name for event in events if isinstance(event, InvocationEnded)] == wanted, case["id"]
            found += bool(wanted)
    assert found >= 200


# What is around a call.

AROUND = {
    "quotation marks": ('"', '"'),
    "curly ones": ("\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK} is there."),
    "those of German": ("\N{DOUBLE LOW-9 QUOTATION MARK}", "\N{LEFT DOUBLE QUOTATION MARK} steht da."),
    "those of French": ("\xab\xa0", "\xa0\xbb"),
    "those of German books": ("\xbb", "\xab"),
    "single ones": ("'", "'"),
    "an f-string": ('x = f"', '"'),
    "three quotation marks": ('"""\n', '\n"""'),
    "a quotation of lines": ('It says: "Hello.\n\n', '\n\nBye."'),
    "brackets": ("(", ")"),
    "emphasis": ("**", "**"),
    "a backtick over lines": ("`\n", "\n`"),
    "a tag": ("<note>", "</note>"),
    "a tag with attributes": ('<pre class="x">\n', "\n</pre>"),
    "an escaped tag": ("&lt;note&gt;\n", "\n&lt;/note&gt;"),
    "a comment": ("<!--\n", "\n-->"),
    "a comment of C": ("/*\n", "\n*/"),
    "an environment": ("\\begin{verbatim}\n", "\n\\end{verbatim}"),
    "a here-document": ("cat <<'END'\n", "\nEND\n"),
    "a sentence": ("The model writes ", " and waits."),
    "the end of a sentence": ("What it wrote was ", "."),
    "a sentence behind another": ("It is old. ", " is what it wrote then."),
    "a list item that goes on": ("- ", " calls it"),
    "a list item among others": ("1. ", "\n2. Then it waits."),
    "a table's row": ("| a | ", " |"),
    "a line of a log": ("12:00:01 got ", ""),
    "a line of a search": ("a/b.txt:3: ", ""),
    "a comment's line": ("// ", ""),
    "a line of a diff": ("@@ -1 +1,2 @@\n a\n+", ""),
    "a block quote": ("> ", ""),
    "what announces it, and words": ("So:\n\n", "\n\nThe server takes the name from it."),
    "a sentence before, and words": ("Models call in tags.\n\n", "\n\nThe server takes the name from it."),
    "brackets in a template": ("{{ ", " }}"),
    "a scalar of YAML": ("reply: >\n  ", "\nother: 1"),
    "code of another kind": ("reply: |\n  ", "\nnext: 1"),
}
REAL = {
    "nothing": ("", ""),
    "words": ("I will look: ", ""),
    "a list item": ("1. ", ""),
    "list items": ("1. ", f"\n2. {CALL}"),
    "a label": ("Action: ", "\n"),
    "what announces it": ("Let me see:\n\n", "\n"),
    "an apostrophe": ("I'll look, as that's what you're after.\n", "\nIt's done, isn't it?"),
    "an inch": ('The 5" one it is.\n', '\nIs it "that"?'),
    "a quotation before": ('You said "look".\n', ""),
    "a bracket that is left open": ("(Let me look. ", ""),
    "a tag that is left open": ("List<String> is <b>it.\n", ""),
    "a mark that is left open": ('He said "go:\n', ""),
    "a text behind": ("Checking.", " Please wait."),
    "a fence before": ("```python\nprint('<pre>\"')\n```\n", ' and "that".'),
    "code before": ('The `<pre>` tag and `"`.\n', " </pre>"),
    "a wrapper": ("<response>\n", "\n</response>"),
    "words on both sides": ("Let me look at that.\n", "\nOne moment, please."),
    "a heading": ("# Plan\n\nI look.\n", ""),
}


def flat(text, before):
    """The call in one line, where it is in the middle of one."""
    return text if not before or before.endswith("\n") else text.replace("\n", " ")


@pytest.mark.parametrize("around", AROUND)
def test_what_is_around_a_call_quotes_it(around):
    before, behind = AROUND[around]
    text = before + flat(CALL, before) + behind
    for dialect in ("auto", "hermes"):
        assert calls(text, dialect) == []
        assert text_of(parse(text, TOOLS, dialect)) == text


@pytest.mark.parametrize("around", AROUND)
def test_behind_a_quotation_a_call_is_one(around):
    before, behind = AROUND[around]
    text = f"{before}{flat(CALL, before)}{behind}\n\nNow I call.\n{CALL}"
    assert len(calls(text)) == 1
    assert text_of(parse(text, TOOLS)).strip() == text.removesuffix(CALL).strip()


@pytest.mark.parametrize("around", REAL)
def test_a_call_in_words_is_one(around):
    before, behind = REAL[around]
    assert calls(before + CALL + behind)[:1] == ["bash"]


PIECES = [*sorted({part for pair in [*AROUND.values(), *REAL.values()] for part in pair}), CALL, OBJECT, "\n", " ", "x"]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(1, 30), max_size=40), st.booleans())
def test_what_is_around_a_call_means_the_same_however_it_is_cut(pieces, sizes, stopped):
    text, why = "".join(pieces), "stop" if stopped else "length"
    parser, events, at = Parser(TOOLS), [], 0
    for size in sizes:
        events += parser.feed(text[at : at + size])
        at += size
    events += [*parser.feed(text[at:]), *parser.finish(why)]
    assert coalesce(events) == coalesce(parse(text, TOOLS, why=why))
    spans = [event.offsets for event in events if isinstance(event, (TextPiece, Note, InvocationEnded, ReasoningPiece))]
    assert spans == sorted(spans)


# What is held, and for how long.


def test_a_call_that_nothing_announces_streams_as_it_arrives():
    parser = Parser(TOOLS)
    parser.feed('I look.\n<tool_call>{"name": "bash", "arguments": {"command": "')
    assert [event.json for event in parser.feed("ls")] == ["ls"]


def test_what_only_words_could_make_a_quotation_is_a_call_when_it_is_too_long():
    text = f'So:\n<tool_call>{{"name": "bash", "arguments": {{"command": "{"x" * 2 * MAX_HELD}"}}}}</tool_call>'
    assert calls(text) == ["bash"]
    assert calls(f'"{text}" it says.') == []


def test_a_quotation_that_is_cut_is_none_the_less_text():
    assert calls(f'It says "{flat(CALL, "x")}', why="length") == []
    assert calls(f'It says "{flat(CALL, "x")}') == ["bash"]


@pytest.mark.parametrize("text", ['"' * 20_000, "<a>" * 10_000, f'"{CALL}" ' * 1_000, f"> {CALL}\n" * 1_000])
def test_texts_of_openers_and_quotations_end(text):
    assert text_of(parse(text, TOOLS)) == text


# Objects without markers.

OBJECTS = {
    '{"name": "bash", "arguments": {"command": "ls"}}': True,
    '{"id": "c1", "tool": "bash", "args": {"command": "ls"}}': True,
    '{"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}': True,
    '{"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}': True,
    '{"arguments": {"command": "ls"}, "name": "bash"}': True,
    '{"name": "bash", "arguments": {"command": "ls"}, "ts": 1}': False,
    '{"ts": 1, "name": "bash", "arguments": {"command": "ls"}}': False,
    '{"type": "log", "name": "bash", "arguments": {"command": "ls"}}': False,
    '{"type": "function", "function": {"name": "bash", "description": "", "parameters": {}}}': False,
    '{"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}': False,
    '{"name": "bash", "parameters": {"$ref": "#/x"}}': False,
    '[{"ts": 1, "name": "bash", "arguments": {}},\n{"name": "bash", "arguments": {}}]': False,
    '{"past": [\n{"name": "bash", "arguments": {}},\n{"name": "bash", "arguments": {}}\n]}': False,
    'x = [\n{"name": "bash", "arguments": {}},\n{"name": "bash", "arguments": {}}\n]': False,
}


@pytest.mark.parametrize("text", OBJECTS)
def test_an_object_alone_is_a_call_by_all_its_members(text):
    for each in (text, f"```json\n{text}\n```\n", f"Look.\n{text}\nDone."):
        assert bool(calls(each)) is OBJECTS[text]
        if not calls(each):
            assert text_of(parse(each, TOOLS)) == each


def test_arguments_of_a_tool_that_takes_a_schema_are_no_description():
    tool = ToolDeclaration("check", "", {"properties": {"type": {"type": "string"}, "properties": {"type": "object"}}})
    text = '{"name": "check", "arguments": {"type": "object", "properties": {}}}'
    assert calls(text, tools=[tool]) == ["check"]


def test_markers_around_an_object_say_enough():
    text = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}, "why": "to see"}</tool_call>'
    assert calls(text) == ["bash"]

"""Texts that only quote a call, and the words around real ones.

The vectors in `quotations.jsonl` are quotations of twenty kinds. A call that is lost is worse than a quotation that runs,
for that one still meets permissions and approvals. So only the kinds in `NEVER` may never run.
"""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import InvocationEnded, InvocationStarted, Note, ReasoningPiece, TextPiece, ToolDeclaration
from callboard.dialects import Parser, parse
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


NEVER = {"block quote"}


@table("own", [False, True])
def test_at_most_one_quotation_in_three_is_taken_for_a_call(own):
    made = [case for case in QUOTATIONS if calls(case["text"], watched(case["model"]) if own else "auto")]
    assert len(made) <= len(QUOTATIONS) / 3
    assert NEVER.isdisjoint(case["kind"] for case in made)


@table("kind", KINDS)
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
                assert text_of(whole) in {text, text.replace("<|call|>", "")}  # a token that means nothing


@table("layout", ["<tools>\n{}\n{}\n</tools>", "I have these:\n<tools>\n{}\n{}\n</tools>\n", "<tools>[{}, {}]</tools>"])
def test_the_list_of_tools_in_the_prompt_of_qwen_is_no_call(layout):
    """Qwen2.5-Coder calls in the same tag."""
    for tools in (TOOLS[:2], [ToolDeclaration("get_time", "The time.", {"type": "object", "properties": {}})] * 2):
        plain = [{"name": tool.name, "parameters": tool.schema} for tool in tools]
        described = [{"type": "function", "function": each | {"description": "A tool."}} for each in plain]
        for definitions in (plain, described):
            text = layout.format(*map(json.dumps, definitions))
            for dialect in ("auto", "qwen25_coder", watched("local:qwen2.5-coder-1.5b")):
                events = parse(text, tools, dialect)
                assert (calls(text, dialect, tools), text_of(events)) == ([], text)


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


# The words around a call.

QUOTING = {
    "quotation marks": ('"', '"'),
    "quotation marks around a sentence": ('It says "run ', ' now".'),
    "curly ones": ("\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK} is there."),
    "those of German": ("\N{DOUBLE LOW-9 QUOTATION MARK}", "\N{LEFT DOUBLE QUOTATION MARK} steht da."),
    "those of French": ("\xab\xa0", "\xa0\xbb"),
    "those of German books": ("\xbb", "\xab"),
    "single ones": ("'", "'"),
    "an f-string": ('x = f"', '"'),
    "three quotation marks": ('"""\n', '\n"""'),
    "inline code": ("It is `", "` there."),
    "inline code of two": ("``", "``"),
    "an element of HTML": ('<pre class="x">\n', "\n</pre>"),
    "a result": ("<tool_result>\n", "\n</tool_result>"),
    "a comment of HTML": ("<!--\n", "\n-->"),
    "a comment of C": ("/*\n", "\n*/"),
    "an environment": ("\\begin{verbatim}\n", "\n\\end{verbatim}"),
    "a here-document": ("cat <<'END'\n", "\nEND\n"),
    "a table's row": ("| a | ", " |"),
    "a table's first cell": ("| ", " | a |"),
    "a line of a log": ("12:00:01 got ", ""),
    "a line of a log with a date": ("[2026-01-05T12:00:01Z] got ", ""),
    "a line of a log with a level": ("[INFO] ", ""),
    "a line of a search": ("a/b.txt:3: ", ""),
    "a comment's line": ("// ", ""),
    "an added line": ("@@ -1 +1,2 @@\n a\n+", ""),
    "a line between": ("@@ -1 +1,2 @@\n a\n ", "\n+b"),
    "a block quote": ("> ", ""),
    "a block quote in a list": ("- > ", ""),
    "a fence of code": ("```python\n", "\n```"),
    "a fence of text": ("~~~ text\n", "\n~~~"),
    "a fence in a fence": ("````markdown\n```\n", "\n```\n````"),
}
REAL = {
    "nothing": ("", ""),
    "words": ("I will look: ", ""),
    "words behind": ("", " I will report back."),
    "words on both sides": ("Let me look: ", " I will report back."),
    "the middle of a sentence": ("I use ", " for it."),
    "lines on both sides": ("Let me look at that.\n", "\nOne moment, please."),
    "a colon and an explanation": ("So:\n\n", "\n\nThe server takes the name from it."),
    "a list item": ("1. ", ""),
    "a list item with words": ("- First ", ", then I read."),
    "list items": ("1. ", f"\n2. {CALL}"),
    "a label": ("Action: ", "\n"),
    "four spaces": ("I look:\n\n    ", "\n\nand then I read."),
    "a tab": ("\t", "\n"),
    "brackets": ("(", ")"),
    "emphasis": ("**", "**"),
    "emphasis of words": ("**Let me look:** ", ""),
    "a heading": ("# Plan\n\nI look.\n", ""),
    "an apostrophe": ("I'll look, as that's what you're after: ", "\nIt's done, isn't it?"),
    "an inch": ('The 5" one it is: ', '\nIs it "that"?'),
    "a quotation before": ('You said "look": ', ""),
    "a quotation of another line": ('He said "go:\n', ""),
    "a bracket that is left open": ("(Let me look. ", ""),
    "a tag that is left open": ("List<String> is <b>it.\n", ""),
    "a wrapper": ("<response>\n", "\n</response>"),
    "a wrapper in one line": ("<answer>", "</answer>"),
    "a fence without a label": ("Look:\n```\n", "\n```\nI will report back."),
    "a fence of XML": ("```xml\n", "\n```"),
    "a fence of JSON": ("```json\n", "\n```"),
    "a fence with words": ("```\nI look.\n", "\n```"),
    "a fence before": ("```python\nprint('<pre>\"')\n```\n", ' and "that".'),
    "code before": ('The `<pre>` tag and `"`: ', " </pre>"),
    "a word in capitals": ("There is an ERROR at 12:00:01 in a.py:3. ", ""),
    "a number of a step": ("Step 3: ", ""),
}


def flat(text, before):
    """The call in one line, where it is in the middle of one."""
    return text if not before.rpartition("\n")[2].strip() else text.replace("\n", " ")


@table("around", QUOTING)
def test_a_call_that_is_shown_is_text(around):
    before, behind = QUOTING[around]
    text = before + flat(CALL, before) + behind
    for dialect in ("auto", "hermes"):
        events = parse(text, TOOLS, dialect)
        assert not [event for event in events if isinstance(event, InvocationStarted)]
        assert text_of(events) == text
        (note,) = [event for event in events if isinstance(event, Note)]
        assert (note.kind, note.code) == ("alert", "missed_call")
        assert "'<tool_call>'" in note.text or "'bash'" in note.text


@table("around", QUOTING)
def test_behind_a_quotation_a_call_is_one(around):
    before, behind = QUOTING[around]
    text = f"{before}{flat(CALL, before)}{behind}\n\nNow I call.\n{CALL}"
    events = parse(text, TOOLS)
    assert [event.name for event in events if isinstance(event, InvocationStarted)] == ["bash"]
    assert text_of(events).strip() == text.removesuffix(CALL).strip()
    assert not [event for event in events if isinstance(event, Note)]


@table("dialect", ["auto", "hermes"])
@table("around", REAL)
def test_a_call_in_words_is_one(around, dialect):
    before, behind = REAL[around]
    assert calls(before + CALL + behind, dialect)[:1] == ["bash"]


@table("label", ["", "json", "xml", "tool_call"])
def test_the_lines_of_a_fence_around_a_call_are_no_text(label):
    text = f"Look:\n```{label}\n{CALL}\n```\nDone."
    assert text_of(parse(text, TOOLS, "hermes")).split() == ["Look:", "Done."]
    assert text_of(parse(text.removesuffix("\nDone."), TOOLS, "hermes")).split() == ["Look:"]


PIECES = [
    *sorted({part for pair in [*QUOTING.values(), *REAL.values()] for part in pair}),
    CALL,
    OBJECT,
    "\n",
    " ",
    "x",
]
PIECES += ["<think>", "</think>", "```", "`"]


@settings(max_examples=4 * settings.default.max_examples)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(1, 30), max_size=40), st.booleans())
def test_the_words_around_a_call_mean_the_same_however_they_are_cut(pieces, sizes, stopped):
    text, why = "".join(pieces), "stop" if stopped else "length"
    parser, events, at = Parser(TOOLS), [], 0
    for size in sizes:
        events += parser.feed(text[at : at + size])
        at += size
    events += [*parser.feed(text[at:]), *parser.finish(why)]
    assert coalesce(events) == coalesce(parse(text, TOOLS, why=why))
    spans = [event.offsets for event in events if isinstance(event, (TextPiece, InvocationEnded, ReasoningPiece))]
    assert spans == sorted(spans)


# What is held, and what is noted.


@table("before", ["", "I look: ", "So:\n\n    ", "```\n"])
def test_a_call_streams_as_it_arrives(before):
    parser = Parser(TOOLS)
    parser.feed(before + '<tool_call>{"name": "bash", "arguments": {"command": "')
    assert [event.json for event in parser.feed("ls")] == ["ls"]


@table(
    "text",
    [
        "<tool_call>bash ls</tool_call>",
        "The tag `<tool_call>` opens a call.",
        "Never closed: <tool_call>",
        '<tool_call>{"name": ',
        '<tool_call>\n{"command": "ls"}\n</tool_call>',
        "```python\nx = '<tool_call>'\n```",
    ],
)
def test_a_marker_without_a_call_is_noted(text):
    for dialect in ("hermes", "auto"):
        (note,) = [event for event in parse(text, TOOLS, dialect) if isinstance(event, Note)]
        assert (note.kind, note.code) == ("alert", "missed_call")
        assert "'<tool_call>' at character" in note.text


def test_a_marker_beside_a_call_needs_no_note():
    assert not [event for event in parse(f"A `<tool_call>`: {CALL}", TOOLS) if isinstance(event, Note)]


@table(
    "text",
    ['"' * 20_000, "<a>" * 10_000, f'"{flat(CALL, "x")}" ' * 1_000, f"> {CALL}\n" * 1_000, "<tool_call>" * 9_000],
)
def test_texts_of_openers_and_quotations_end(text):
    assert text_of(parse(text, TOOLS)) == text


def test_a_call_in_a_quotation_in_a_call_is_its_argument():
    inner = f'He says "{flat(CALL, "x")}", and:\n> {CALL}\n'
    call = json.dumps({"name": "write_file", "arguments": {"path": "a", "content": inner}})
    (made,) = [
        each for each in parse(f"<tool_call>{call}</tool_call>", TOOLS, "hermes") if isinstance(each, InvocationEnded)
    ]
    assert made.arguments == {"path": "a", "content": inner}


# Objects without markers.

OBJECTS = {
    '{"name": "bash", "arguments": {"command": "ls"}}': 1,
    '{"id": "c1", "tool": "bash", "args": {"command": "ls"}}': 1,
    '{"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}': 1,
    '{"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}': 1,
    '{"arguments": {"command": "ls"}, "name": "bash"}': 1,
    '{"name": "bash", "arguments": {"command": "ls"}, "reason": "to see"}': 1,
    '{"thought": "I look.", "name": "bash", "arguments": {"command": "ls"}}': 1,
    '{"name": "bash", "arguments": {"command": 5}}': 1,
    '{"name": "bash", "arguments": {"command": 5}, "exit": 0}': 0,
    '{"name": "bash", "arguments": "ls", "exit": 0}': 0,
    '{"name": "other", "arguments": {"command": "ls"}, "reason": "to see"}': 0,
    '{"type": "log", "name": "bash", "arguments": {"command": "ls"}}': 0,
    '{"type": "function", "function": {"name": "bash", "description": "", "parameters": {}}}': 0,
    '{"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}': 0,
    '{"name": "bash", "parameters": {"$ref": "#/x"}}': 0,
    '{"name": "bash", "parameters": {"$ref": "main"}}': 1,
    '[{"reason": "a", "name": "bash", "arguments": {}},\n{"name": "bash", "arguments": {}}]': 2,
    '{"past": [\n{"name": "bash", "arguments": {}},\n{"name": "bash", "arguments": {}}\n]}': 0,
}


@table("text", OBJECTS)
def test_an_object_alone_is_a_call_if_it_names_a_tool_and_fits(text):
    for each in (text, f"```json\n{text}\n```\n", f"Look.\n{text}\nDone.", f"Look.\n\n    {text}\n"):
        assert len(calls(each)) == OBJECTS[text]
        if not OBJECTS[text]:
            assert text_of(parse(each, TOOLS)) == each


def test_arguments_of_a_tool_that_takes_a_schema_are_no_description():
    tool = ToolDeclaration("check", "", {"properties": {"type": {"type": "string"}, "properties": {"type": "object"}}})
    text = '{"name": "check", "arguments": {"type": "object", "properties": {}}}'
    assert calls(text, tools=[tool]) == ["check"]


def test_markers_around_an_object_say_enough():
    text = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}, "why": "to see"}</tool_call>'
    assert calls(text) == ["bash"]

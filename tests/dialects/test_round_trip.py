"""What a dialect spells is read as what it was, and it says why of what it cannot spell."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import ArgumentsPiece, InvocationCanister, InvocationEnded, InvocationStarted, ToolDeclaration
from callboard.dialects import AUTO, DIALECTS, NotSpellable, Parser, render_call, render_calls

VECTORS = Path(__file__).parents[1] / "vectors/dialects"
TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}
SPOKEN = sorted({dialect.name for dialect in AUTO.alternatives} - {"react"})


def tool(call, widened=()):
    """The tool whose schema fits the call. The arguments whose keys are `widened` may be null, too."""
    types = {key: TYPES[type(value)] for key, value in call.arguments.items()}
    properties = {key: {"type": [kind, "null"] if key in widened else kind} for key, kind in types.items()}
    return ToolDeclaration(call.name, "", {"type": "object", "properties": properties})


def read(text, tools, dialect, size):
    """The calls, and that there is nothing else."""
    parser = Parser(tools, dialect)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.finish()
    assert all(isinstance(event, (InvocationStarted, ArgumentsPiece, InvocationEnded)) for event in events), events
    return [(event.name, as_text(event.arguments)) for event in events if isinstance(event, InvocationEnded)]


def as_text(arguments):
    """Comparable: 1 is neither True nor 1.0."""
    return json.dumps(arguments, sort_keys=True)


# Calls of any kind.

MARKERS = sorted(
    {
        token
        for path in VECTORS.glob("*.jsonl")
        for line in path.read_text("utf-8").splitlines()
        for token in re.findall(r"</?[^<>\s]{1,40}[^<>\n]{0,40}>|\[[A-Z_]+\]|^\w+:|```\w*", json.loads(line)["text"])
    }
)
"""Of all dialects."""
WORDS = [*MARKERS, '"', "'", "\\", "\n", " ", "{", "}", "(", ")", "[", "]", ",", ":", "=", "&amp;", "\\n", "null"]


def mostly(plain, odd):
    return st.sampled_from([plain] * 5 + [odd]).flatmap(lambda chosen: chosen)


texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=5).map("".join)
names = mostly(st.sampled_from(["f", "get_weather", "my.tool", "a-b", "functions.x", "x:3"]), texts.filter(bool))
keys = mostly(st.sampled_from(["text", "n", "name", "arguments", "\xe9", "a-b", "with space"]), texts)
numbers = st.integers() | st.integers(2**63, 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    texts | numbers | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    InvocationCanister,
    st.text("abcdefghij0123456789", min_size=9, max_size=9),
    names,
    st.dictionaries(keys, texts | values, max_size=3),
)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.sampled_from(sorted(DIALECTS)), st.lists(calls, min_size=1, max_size=2), st.data())
def test_what_is_spelled_is_read_as_what_it_was(name, invocations, data):
    tools = None
    if data.draw(st.booleans(), "declared"):
        tools = list({call.name: tool(call, data.draw(st.sets(keys))) for call in invocations}.values())
    try:
        text = render_calls(DIALECTS[name], invocations, tools)
    except NotSpellable:
        return
    wanted = [(call.name, as_text(call.arguments)) for call in invocations]
    for size in (1, data.draw(st.integers(2, 30)), len(text)):
        assert read(text, tools, name, size) == wanted


# Calls that every dialect has a spelling for.

SAYABLE = {
    "spaces": {"text": "two  words"},
    "lines": {"text": "a\n b\n\nc"},
    "quotes": {"text": 'say "it\'s" \\n'},
    "unicode": {"text": "Z\xfcrich \u6771\u4eac \U0001f600"},
    "tags": {"text": '<p class="x">a & b</p>'},
    "JSON as text": {"text": '{"a": [1, 2]}'},
    "digits as text": {"text": "02134"},
    "spaces around": {"text": " a "},
    "lines around": {"text": "\na\n"},
    "a fence": {"text": "```py\nx\n```"},
    "no characters": {"text": ""},
    "an integer": {"n": 3},
    "a negative one": {"n": -7},
    "a big one": {"n": 12345678901234567890123},
    "a fraction": {"x": 1.5},
    "a small fraction": {"x": 1e-07},
    "true": {"on": True},
    "false": {"on": False},
    "null": {"x": None},
    "nested": {"o": {"a": {"b": [1, 2, {"c": "d e"}]}, "f": 1.5, "t": [True, None]}},
    "nothing in them": {"o": {}, "l": []},
    "no arguments": {},
    "two": {"text": "a", "n": 1},
    "another alphabet": {"\u043a\u043b\u044e\u0447": "x"},
}
COMMANDS = {"spaces", "lines", "quotes", "unicode", "tags", "JSON as text", "digits as text"}
"""What a shell's block can hold."""


@table("dialect", sorted(DIALECTS))
def test_every_dialect_can_say(dialect):
    for what in sorted(COMMANDS) if dialect == "markdown_bash" else SAYABLE:
        call = InvocationCanister("abcdefgh0", "bash" if dialect == "markdown_bash" else "f", SAYABLE[what])
        text = render_call(DIALECTS[dialect], call, [tool(call)])
        assert read(text, [tool(call)], dialect, 1) == [(call.name, as_text(call.arguments))], what


@table("dialect", SPOKEN)
def test_auto_reads_what_it_speaks(dialect):
    for arguments in SAYABLE.values():
        call = InvocationCanister("abcdefgh0", "f", arguments)
        text = render_call(DIALECTS[dialect], call, [tool(call)])
        for size in (1, len(text)):
            assert read(text, [tool(call)], "auto", size) == [("f", as_text(arguments))], text


@table("dialect", sorted(set(DIALECTS) - {"markdown_bash"}))
def test_two_calls_are_said_at_once(dialect):
    invocations = [InvocationCanister(f"{index}bcdefghi", "f", {"text": f"x{index}"}) for index in range(3)]
    tools = [tool(invocations[0])]
    text = render_calls(DIALECTS[dialect], invocations, tools)
    assert read(text, tools, dialect, 1) == [("f", as_text(call.arguments)) for call in invocations]


@table(("dialect", "identifier"), [("kimi_k2", "functions.f:7"), ("cohere_command", "12")])
def test_an_identifier_is_kept(dialect, identifier):
    text = render_call(DIALECTS[dialect], InvocationCanister(identifier, "f", {}))
    started = Parser(None, dialect).feed(text)[0]
    assert started.identifier == identifier


# Calls that one has no spelling for.

UNSAYABLE = [
    ("pythonic", "f", {"a b": "x"}, "the argument 'a b' has no spelling"),
    ("gemma3", "f", {"a-b": "x"}, "the argument 'a-b' has no spelling"),
    ("markdown_bash", "f g", {"n": 1}, "'f g' is not a command's name"),
    ("markdown_bash", "bash", {"command": "```\nls"}, "it would not be read as 1 call and nothing else"),
    ("hermes", "f", {"text": "\ud800"}, "its arguments would not be read as an object"),
    ("glm47", "f", {"text": "\ud800"}, "its argument 'text' would be read as something else"),
    ("hermes", "f", {"x": float("nan")}, "its argument 'x' would be read as something else"),
    ("qwen3_coder", "two words", {}, "it would not be read as 1 call and nothing else"),
    ("qwen3_coder", "f", {"text": "</parameter>\n</function>"}, "it would not be read as 1 call and nothing else"),
    ("glm47", "f", {"text": "</arg_value></tool_call>"}, "it would not be read as 1 call and nothing else"),
    ("harmony", "f g", {}, "its name would be read as 'f'"),
    ("minimax_m2", "f", {"a>b": "x"}, "its argument 'a>b' would be read as something else"),
    ("glm47", "f", {"text": "a", "b</arg_key>": 1}, "it would not be read as 1 call and nothing else"),
    ("functiongemma", "f", {"text": "<escape>"}, "it would not be read as 1 call and nothing else"),
    ("deepseek_v31", "a<b", {}, "it would not be read as 1 call and nothing else"),
]


@table(("dialect", "name", "arguments", "why"), UNSAYABLE)
def test_a_dialect_says_why_it_cannot(dialect, name, arguments, why):
    call = InvocationCanister("abcdefgh0", name, arguments)
    with pytest.raises(NotSpellable) as raised:
        render_call(DIALECTS[dialect], call, [tool(call)])
    assert raised.value.why == why

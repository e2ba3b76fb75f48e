"""Tools that cannot be tools, and tools that are barely ones: what `callboard` says before anything is sent."""

from __future__ import annotations

import json

import pytest

FOREIGN = """
async def act(context, arguments):
    return arguments

ensemble = Ensemble("foreign", [Invoker("act", act, {schema})])
"""


def of_property(schema):
    return FOREIGN.format(schema={"type": "object", "properties": {"text": schema}})


@pytest.mark.parametrize(
    ("source", "line"),
    [
        pytest.param(
            "@tool\ndef greet(name): ...",
            "greet(name): has no annotation; say what it is: `name: str`",
            id="no annotation",
        ),
        pytest.param(
            "@tool\ndef greet(first: str, last): ...",
            "greet(last): has no annotation; say what it is: `last: str`",
            id="one annotation",
        ),
        pytest.param(
            "@tool\ndef greet(name: 'Nobody'): ...",
            "greet(name): the annotation 'Nobody' cannot be resolved: name 'Nobody' is not defined; "
            "import or define it at the top of the module, outside of TYPE_CHECKING",
            id="an annotation of nothing",
        ),
        pytest.param(
            "@tool\ndef greet(*names: str): ...",
            "greet(names): takes any number of positional arguments; take a list instead",
            id="any number of arguments",
        ),
        pytest.param(
            "@tool\ndef act() -> int: return 1\n\n@tool(name='act')\ndef other() -> int: return 2",
            "local: two tools are named 'act'; rename one: @tool(name=...)",
            id="duplicate names",
        ),
        pytest.param(
            "@tool\ndef act() -> int: return 1\n\nensemble = Ensemble('mine', [act, act])",
            "mine: two tools are named 'act'; rename one: @tool(name=...)",
            id="duplicate names in an ensemble",
        ),
        pytest.param(
            FOREIGN.format(schema={"$ref": "https://example.org/schema.json"}),
            "act#/$ref: https://example.org/schema.json is not in this schema; use references such as #/$defs/name",
            id="a remote reference",
        ),
        pytest.param(
            FOREIGN.format(schema={"$ref": "#"}),
            "act#: a circle of references that goes nowhere; go through properties or items",
            id="a reference to itself",
        ),
        pytest.param(
            FOREIGN.format(
                schema={"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
            ),
            "act#/$defs/b: a circle of references that goes nowhere; go through properties or items",
            id="references in a circle",
        ),
        pytest.param(
            FOREIGN.format(schema={"type": 3}),
            "act#/type: not a valid JSON Schema: 3 is not valid",
            id="no schema",
        ),
        pytest.param(
            FOREIGN.format(schema={"type": "string"}),
            "act#: arguments are an object, and this allows none",
            id="a schema of no object",
        ),
        pytest.param("1 / 0", "{path}: cannot be imported: ZeroDivisionError: division by zero", id="raises"),
        pytest.param(
            "from os import nothing",
            "{path}: cannot be imported: ImportError: cannot import name 'nothing'",
            id="import",
        ),
        pytest.param("open('nowhere')", "{path}: cannot be imported: FileNotFoundError: ", id="a file"),
    ],
)
@pytest.mark.parametrize(
    "command", [("tools", "list"), ("run", "--model", "m", "--base-url", "http://127.0.0.1:9", "Hi")]
)
def test_a_mistake_is_one_line_that_says_where(see, write, source, line, command):
    path = write(source)
    seen = see(*command, "--tools", path)
    assert (seen.code, seen.out, seen.path) == (1, "", None)
    assert seen.err.startswith(f"callboard: {line.format(path=path) if '{path}' in line else line}")
    assert len(seen.lines) == 1


def test_a_tool_without_a_docstring_is_shown_without_a_description(see, ask, script, write):
    source = "@tool\ndef act(number: int) -> int:\n    return number + 1\n"
    assert see("tools", "list", "--tools", write(source)).out == "act(number)\n"
    (told,) = json.loads(see("tools", "list", "--json", "--tools", write(source)).out)
    assert (told["name"], told["description"]) == ("act", "")
    seen = ask([script("act", '{"number": 41}'), "42."], "--mode", "native", tools=source)
    assert (seen.code, seen.out, seen.results) == (0, "42.\n", ["42"])
    assert not seen.backend.requests[0].body["tools"][0]["function"].get("description")


def test_tools_of_one_name_in_two_ensembles_are_told_apart(see, write):
    source = "@tool\ndef act() -> int: return 1\n\nensemble = Ensemble('other', [tool(name='act')(act.function)])"
    assert see("tools", "list", "--tools", write(source)).out == "local__act()\nother__act()\n"


@pytest.mark.parametrize("text", ["a" * 50 + "!", "aaa"])
def test_a_pattern_that_would_take_for_ever_is_judged_at_once(see, write, text):
    path = write(of_property({"type": "string", "pattern": "^(a+)+$"}))
    seen = see("tools", "call", "act", json.dumps({"text": text}), "--tools", path)
    if text == "aaa":
        assert (seen.code, seen.out) == (0, '{"text":"aaa"}\n')
    else:
        assert (seen.code, seen.out) == (1, "")
        assert seen.err == "Error: ArgValidationError: text\n  String should match pattern '^(a+)+$'\n"


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(a{1000}){1000}", "("])
def test_a_pattern_that_is_not_enforced_is_told_of(ask, script, pattern):
    source = of_property({"type": "string", "pattern": pattern})
    seen = ask([script("act", '{"text": "?"}'), "Done."], "--verbose", tools=source)
    assert (seen.code, seen.out, seen.results) == (0, "Done.\n", ['{"text":"?"}'])
    (told,) = [line for line in seen.lines if "dropped" in line]
    assert told.startswith("note (dropped): act: ")


def test_a_module_that_prints_does_not_spoil_the_output(see, write):
    seen = see("tools", "list", "--json", "--tools", write("print('loaded')\n@tool\ndef act() -> int: return 1\n"))
    assert [each["name"] for each in json.loads(seen.out)] == ["act"]
    assert seen.err == "loaded\n"

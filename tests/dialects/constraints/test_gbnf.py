"""What a grammar writes is read by its dialect as valid calls of declared tools, and as nothing else."""

import json
from functools import cache

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.constraints.sample_gbnf import Sampler
from tests.tables import table

from callboard.core import ArgumentsPiece, InvocationEnded, InvocationIncomplete, InvocationStarted, ToolDeclaration
from callboard.dialects import DIALECTS, NotSpellable, parse
from callboard.dialects.constraints import write_gbnf, write_structural_tag, write_thought_gbnf

CALL = (InvocationStarted, ArgumentsPiece, InvocationEnded)


def properties(required, **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
TREE = {"$ref": "#/$defs/tree"}
SETS = {
    "no parameters": [ToolDeclaration("now"), ToolDeclaration("ping", "", properties([]))],
    "a tool named none": [ToolDeclaration("none", "", properties(["why"], why=STRING)), ToolDeclaration("nonesuch")],
    "scalars": [
        ToolDeclaration(
            "get_weather",
            "",
            properties(
                ["city", "days"],
                city=STRING,
                days=INTEGER,
                wind={"type": "number"},
                metric={"type": "boolean"},
                no={"type": "null"},
            ),
        )
    ],
    "choices": [
        ToolDeclaration(
            "choose",
            "",
            properties(
                ["unit"],
                unit={"enum": ["c", 'f\n"x"']},
                level={"enum": [1, 2.5, True]},
                fixed={"const": "</parameter>"},
                rank={"type": "integer", "minimum": 1, "maximum": 5},
                maybe={"type": ["string", "null"]},
                either={"anyOf": [{"type": "boolean"}, {"type": "array", "items": INTEGER}]},
            ),
        )
    ],
    "nested": [
        ToolDeclaration(
            "book",
            "",
            properties(
                ["trip"],
                trip=properties(
                    ["to"], to=STRING, stops={"type": "array", "items": properties(["n"], n=INTEGER), "maxItems": 3}
                ),
                tags={"type": "array", "items": STRING, "minItems": 2},
                extra={"type": "object", "additionalProperties": {"type": "number"}},
                free={"type": "object"},
                all={"allOf": [properties(["a"], a=STRING), properties(["b"], b=INTEGER)]},
            ),
        )
    ],
    "recursive": [
        ToolDeclaration(
            "grow",
            "",
            {
                **properties(["root"], root=TREE, either={"oneOf": [TREE, INTEGER]}),
                "$defs": {
                    "tree": properties(
                        ["name"], name={"type": "string", "maxLength": 5}, children={"type": "array", "items": TREE}
                    )
                },
            },
        )
    ],
    "two tools": [
        ToolDeclaration("search", "", {**properties(["q"], q=STRING, n=INTEGER), "additionalProperties": True}),
        ToolDeclaration("search_all", "", properties([], q=STRING)),
    ],
}
SHELL = [ToolDeclaration("bash", "", properties(["command"], command=STRING))]
MANY = [ToolDeclaration(f"tool_{at}", "", properties(["a"], a=STRING, b=INTEGER)) for at in range(200)]
LARGE = {f"argument_{at}": {"enum": [f"value {at} {each}" for each in range(20)]} for at in range(400)}
VALIDATORS = {
    tool.name: jsonschema_rs.validator_for(dict(tool.schema))
    for tools in [*SETS.values(), SHELL, MANY]
    for tool in tools
}
SOME = ["hermes", "json", "kimi_k2", "qwen3_coder", "pythonic", "minimax_m3"]
SPELLED = sorted(set(DIALECTS) - {"markdown_bash"})


def check(text, tools, dialect, *, alone=True):
    events = parse(text, tools, dialect)
    calls = [event for event in events if isinstance(event, InvocationEnded)]
    assert not [event for event in events if isinstance(event, InvocationIncomplete)], text
    if alone:
        assert calls, text
        assert all(isinstance(event, CALL) for event in events), (text, events)
    for call in calls:
        assert call.name in {tool.name for tool in tools}, text
        assert call.arguments is not None, text
        problems = [error.message for error in VALIDATORS[call.name].iter_errors(call.arguments)]
        assert not problems, (text, problems)


@cache
def sampler(dialect, tools, **how):
    return Sampler(write_gbnf(DIALECTS[dialect], SETS[tools], **how).text)


@pytest.mark.parametrize("dialect", SPELLED)
@settings(max_examples=25)
@given(st.sampled_from(sorted(SETS)), st.integers(0, 2**32))
def test_calls_that_the_grammar_writes_are_valid(dialect, tools, seed):
    check(sampler(dialect, tools).text(seed), SETS[tools], dialect)


@pytest.mark.parametrize("dialect", SPELLED)
@settings(max_examples=15)
@given(st.sampled_from(sorted(SETS)), st.integers(0, 2**32))
def test_a_call_that_is_begun_in_free_text_is_valid(dialect, tools, seed):
    check(sampler(dialect, tools, lazily=True).text(seed), SETS[tools], dialect, alone=False)


@pytest.mark.parametrize("dialect", SPELLED)
@settings(max_examples=10)
@given(st.sampled_from(sorted(set(SETS) - {"a tool named none"})), st.integers(0, 2**32))
def test_a_thought_is_followed_by_a_call_of_the_tool_that_it_names(dialect, tools, seed):
    grammar = think(dialect, tools)
    text = grammar.text(seed)
    name, _, rest = text.removeprefix("Function: ").partition("\n")
    if name == "none":
        check(rest, SETS[tools], dialect, alone=False)
        return
    values, _, rest = rest.partition("\n")
    assert values.startswith("Key args: ")
    assert len(values) <= len("Key args: ") + 40
    check(rest, [tool for tool in SETS[tools] if tool.name == name], dialect)


@cache
def think(dialect, tools):
    return Sampler(write_thought_gbnf(DIALECTS[dialect], SETS[tools], characters=40).text)


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_command_that_the_grammar_writes_is_valid(seed):
    grammar = Sampler(write_gbnf(DIALECTS["markdown_bash"], SHELL).text)
    check(grammar.text(seed), SHELL, "markdown_bash")


@pytest.mark.parametrize("dialect", SOME)
def test_as_many_tools_as_there_are(dialect):
    grammar = write_gbnf(DIALECTS[dialect], MANY).text
    writer = Sampler(grammar)
    assert len(grammar) < 1000 * len(MANY)
    for seed in range(5):
        check(writer.text(seed), MANY, dialect)


@pytest.mark.parametrize("dialect", SOME)
def test_free_text_before_many_tools_stays_bounded(dialect):
    few, all_of_them = [len(write_gbnf(DIALECTS[dialect], tools, lazily=True).text) for tools in (MANY[:100], MANY)]
    assert all_of_them < 3 * few


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_coder", "pythonic"])
def test_a_large_schema_is_held_in_part(dialect):
    """Beyond a limit, an argument is of its type, or any."""
    schema = properties(list(LARGE)[:3], **LARGE)
    assert len(json.dumps(schema)) > 100_000
    tools = [ToolDeclaration("large", "", schema), SETS["scalars"][0]]
    grammar = write_gbnf(DIALECTS[dialect], tools).text
    assert len(grammar) < 3 * 256_000
    writer = Sampler(grammar)
    for seed in range(3):
        events = parse(writer.text(seed), tools, dialect)
        assert [event.name for event in events if isinstance(event, InvocationEnded)]
        assert not [event for event in events if isinstance(event, InvocationIncomplete)]


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_coder", "pythonic"])
def test_references_that_lead_to_each_other_end(dialect):
    definitions = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{each}"} for each in range(12)]} for at in range(12)}
    schema = {**properties(["a"], a={"$ref": "#/$defs/d0"}, b={"$ref": "#/$defs/none"}), "$defs": definitions}
    Sampler(write_gbnf(DIALECTS[dialect], [ToolDeclaration("loop", "", schema)]).text).text(0)


def _nest(schema, times, wrap):
    for _ in range(times):
        schema = wrap(schema)
    return schema


ODD = {
    "required is no list": {**properties([], a={**STRING, "required": True}), "required": True},
    "choices are no list": properties([], a={"enum": 1}),
    "members are no object": properties([], a={"properties": 1, "additionalProperties": True}),
    "a count is no number": properties([], a={**STRING, "minLength": True}, b={"items": STRING, "minItems": True}),
    "more at least than at most": properties(["a"], a={**STRING, "minLength": 5, "maxLength": 2}),
    "many alternatives in one another": properties([], a=_nest(STRING, 400, lambda each: {"anyOf": [each]})),
    "an object in itself in place": {
        **properties([], a={"$ref": "#/$defs/a"}),
        "$defs": {"a": {"anyOf": [{"allOf": [{"$ref": "#/$defs/a"}]}]}},
    },
    "required names that are none": {**properties([]), "allOf": [{"required": [{}, "a"]}, {"required": ["a"]}]},
}


@table("odd", ODD)
@table("dialect", ["hermes", "qwen3_coder", "pythonic", "minimax_m3"])
def test_an_odd_schema_has_a_grammar(dialect, odd):
    tools = [ToolDeclaration("f", "", ODD[odd])]
    assert write_structural_tag(DIALECTS[dialect], tools)["type"] == "structural_tag"
    text = Sampler(write_gbnf(DIALECTS[dialect], tools).text).text(0)
    assert {event.name for event in parse(text, tools, dialect) if isinstance(event, InvocationEnded)} == {"f"}


@pytest.mark.parametrize(
    ("dialect", "tools", "why"),
    [
        ("hermes", [], "no tool is declared"),
        (
            "markdown_bash",
            MANY[:1],
            "tool_0 is no tool that runs code, so what its commands are cannot be said by rules",
        ),
        (
            "pythonic",
            [ToolDeclaration("f", "", properties(["a b"], **{"a b": STRING}))],
            "the argument 'a b' has no spelling",
        ),
        (
            "qwen3_coder",
            [ToolDeclaration("f", "", properties(["a<"], **{"a<": STRING}))],
            "the argument 'a<' has no spelling",
        ),
        ("qwen3_coder", [ToolDeclaration("two words")], "it would not be read as 1 call and nothing else"),
    ],
)
def test_why_there_is_no_grammar(dialect, tools, why):
    with pytest.raises(NotSpellable) as raised:
        write_gbnf(DIALECTS[dialect], tools)
    assert raised.value.why == why


def test_other_keys_stand_beside_a_very_long_one():
    tools = [ToolDeclaration("f", "", {**properties([], **{"k" * 3000: STRING}), "additionalProperties": True})]
    events = parse(Sampler(write_gbnf(DIALECTS["hermes"], tools).text).text(0), tools, "hermes")
    assert {event.name for event in events if isinstance(event, InvocationEnded)} == {"f"}


def test_an_argument_that_has_no_spelling_is_left_out_where_it_is_not_required():
    tools = [ToolDeclaration("f", "", properties([], **{"a b": STRING, "c": INTEGER}))]
    grammar = write_gbnf(DIALECTS["pythonic"], tools).text
    assert "a b" not in grammar
    assert '"c="' in grammar

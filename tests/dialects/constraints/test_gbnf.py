"""What a grammar writes is read by its dialect as valid calls of declared tools, and as nothing else."""

from functools import cache

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.constraints.sample_gbnf import Sampler

from callboard.core import ArgumentsPiece, InvocationEnded, InvocationIncomplete, InvocationStarted, ToolDeclaration
from callboard.dialects import DIALECTS, parse
from callboard.dialects.constraints import write_gbnf

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
VALIDATORS = {tool.name: jsonschema_rs.validator_for(dict(tool.schema)) for tools in SETS.values() for tool in tools}
SPELLED = ["hermes", "json"]


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
@pytest.mark.parametrize("tools", SETS)
@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_calls_that_the_grammar_writes_are_valid(dialect, tools, seed):
    check(sampler(dialect, tools).text(seed), SETS[tools], dialect)


@pytest.mark.parametrize("dialect", SPELLED)
@settings(max_examples=50)
@given(st.sampled_from(sorted(SETS)), st.integers(0, 2**32))
def test_a_call_that_is_begun_in_free_text_is_valid(dialect, tools, seed):
    check(sampler(dialect, tools, lazily=True).text(seed), SETS[tools], dialect, alone=False)

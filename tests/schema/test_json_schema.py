from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import SchemaError
from callboard.schema import ArgumentsInvalid, compile_schema
from callboard.schema.json_schema import APPLIED, DEPTH, PATTERNS, SIZE
from callboard.schema.regex import is_accepted, matches


def nested(levels: int) -> dict:
    schema: dict = {"type": "integer"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def defined(count: int, part, last) -> dict:
    return {
        "$ref": "#/$defs/d0",
        "$defs": {**{f"d{i}": part(f"#/$defs/d{i + 1}") for i in range(count)}, f"d{count}": last},
    }


@table(
    ("schema", "place", "words"),
    [
        ([], "#", "not a JSON object"),
        ({"type": "objec"}, "#/type", "not a valid JSON Schema"),
        ({"properties": {"a": {"type": 5}}}, "#/properties/a/type", "not a valid JSON Schema"),
        ({"properties": 5}, "#/properties", "not a valid JSON Schema"),
        ({"$ref": "#/x", "x": {"type": "zz"}}, "#/x/type", "not a valid JSON Schema"),
        ({"$schema": "http://example.com/mine"}, "#", "not a valid JSON Schema"),
        ({"type": "string"}, "#", "allows none"),
        ({"enum": [1]}, "#", "allows none"),
        ({"default": object()}, "#", "not JSON"),
        (
            {"properties": {"a": {"$ref": "http://example.com/a"}}},
            "#/properties/a/$ref",
            "http://example.com/a is not in",
        ),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "#/properties/a/$ref", "is not in this schema"),
        ({"properties": {"a": {"$ref": "other.json#/a"}}}, "#/properties/a/$ref", "is not in this schema"),
        ({"properties": {"a/b": {"$ref": "#/nowhere"}}}, "#/properties/a~1b/$ref", "is not in this schema"),
        ({"$ref": 5}, "#/$ref", "not a string"),
        ({"properties": {"a": {"$dynamicRef": "#a"}}}, "#/properties/a", "$dynamicRef is not supported"),
        ({"$defs": {"a": {"$id": "http://example.com/a"}}}, "#/$defs/a", "$id below the root"),
        ({"$ref": "#"}, "#", "a circle of references"),
        ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, "#/allOf/0/anyOf/0", "a circle of references"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}},
            "#/$defs/b/not",
            "a circle of references",
        ),
        ({"properties": {"p": {"if": {"$ref": "#/properties/p"}}}}, "#/properties/p/if", "a circle of references"),
        (defined(200, lambda to: {"$ref": to}, {}), f"#/$defs/d{DEPTH - 2}", f"a chain of more than {DEPTH}"),
        (defined(30, lambda to: {"allOf": [{"$ref": to}] * 2}, {}), "#/$defs/d21", f"more than {APPLIED} schemas"),
        (nested(DEPTH), "#", f"nested deeper than {DEPTH}"),
        (nested(100_000), "#", f"nested deeper than {DEPTH}"),
        ({"description": "x" * SIZE}, "#", "larger than 256 KB"),
        (
            {"properties": {f"p{i}": {"pattern": f"^{i}"} for i in range(PATTERNS + 1)}},
            "#",
            f"more than {PATTERNS} patterns",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(schema, place, words):
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema, path="io.toml")
    assert caught.value.path == "io.toml" + place
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@table(
    ("schema", "given", "values"),
    [
        ({}, {"a": "1"}, {"a": "1"}),
        ({"properties": {"a": {"type": "integer", "default": 1}}}, {}, {"a": 1}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "5"}, {"a": 5}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 5.0}, {"a": 5}),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, {"a": "soon"}, {"a": "soon"}),
        ({"properties": {"$ref": {"type": "integer"}, "a": {"enum": [{"$ref": "#"}]}}}, {"$ref": "1"}, {"$ref": 1}),
        ({"properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}}, {"a": {"b": "1"}}, {"a": {"b": 1}}),
        (
            {
                "$id": "http://example.com/t",
                "$ref": "#/$defs/a%20b",
                "$defs": {"a b": {"properties": {"c": {"const": 1}}}},
            },
            {"c": "1"},
            {"c": 1},
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"l": {"type": "array", "items": [{"type": "integer"}]}},
                "properties": {"a": {"$ref": "#/definitions/l"}},
            },
            {"a": ["1"]},
            {"a": [1]},
        ),
        (
            MappingProxyType({"properties": MappingProxyType({"a": {"type": "integer"}})}),
            MappingProxyType({"a": "5"}),
            {"a": 5},
        ),
    ],
)
def test_arguments_are_coerced_and_filled(schema, given, values):
    assert compile_schema(schema).validate(given) == values


def test_values_are_not_the_callers():
    arguments = {"items": [1]}
    compile_schema({"type": "object"}).validate(arguments)["items"].append(2)
    assert arguments == {"items": [1]}


@table(
    ("part", "enforced", "said"),
    [
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}, "#/properties/v: pattern is left out"),
        ({"pattern": r"(a)\1", "maxLength": 3}, {"maxLength": 3}, "#/properties/v: pattern is left out"),
        ({"pattern": "("}, {}, "#/properties/v: pattern is left out"),
        ({"pattern": r"\w{100000}"}, {}, "#/properties/v: pattern is left out"),
        ({"patternProperties": {"(?!x)": {}}, "additionalProperties": False}, {"patternProperties": {}},
         "#/properties/v: patternProperties is left out"),
        ({"type": "string", "default": None}, {"type": "string"}, "#/properties/v: default is left out"),
        ({"$ref": "#/$defs/i", "default": "x"}, {"$ref": "#/$defs/i"}, "#/properties/v: default is left out"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_dropped_and_said(part, enforced, said):
    schema = {"type": "object", "properties": {"v": part}, "$defs": {"i": {"type": "integer"}}}
    validator = compile_schema(schema)
    assert validator.schema["properties"]["v"] == enforced
    assert len(validator.dropped) == 1
    assert validator.dropped[0].startswith(said)
    assert schema["properties"]["v"] is part
    assert validator.validate({}) == {}


def test_a_pattern_takes_linear_time():
    validator = compile_schema({"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert validator.dropped == ()
    with pytest.raises(ArgumentsInvalid):
        validator.validate({"a": "a" * 5000 + "!"})


def test_a_value_in_a_recursive_schema_may_be_deep():
    validator = compile_schema({"type": "object", "properties": {"a": {"$ref": "#"}}})
    value: dict = {}
    for _ in range(150):
        value = {"a": value}
    assert validator.validate(value) == value


@table("levels", [400, 900])
def test_a_value_too_deep_is_a_mistake(levels):
    validator = compile_schema({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}})
    value: dict = {"b": "x"}
    for _ in range(levels):
        value = {"a": value}
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate(value)
    assert str(caught.value) == "ArgValidationError: arguments\n  Input is nested too deeply"


KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "anyOf",
        "allOf",
        "$ref",
        "enum",
        "const",
        "default",
        "required",
        "pattern",
        "additionalProperties",
        "patternProperties",
        "minimum",
        "$defs",
        "prefixItems",
        "not",
        "x",
        "$schema",
        "dependencies",
    ]
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["string", "integer", "#", "#/x", "#/enum/0", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(JUNK)
def test_junk_is_a_validator_or_a_schema_error(schema):
    try:
        validator = compile_schema(schema)
    except SchemaError:
        return
    try:
        validator.validate({"x": "1", "type": {"x": [1]}})
    except ArgumentsInvalid as refused:
        assert str(refused).startswith("ArgValidationError: ")  # noqa: PT017 - either outcome is right


@table(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        (r"^\d+$", "12", True),
        (r"^\p{L}+$", "été", True),
        ("(?=a)", "b", True),
    ],
)
def test_a_pattern_is_found_anywhere(pattern, text, found):
    assert matches(pattern, text) is found


@table("pattern", ["(?=a)", r"(a)\1", "(", "(?<!a)b", r"(\w{500}){500}"])
def test_what_is_not_linear_small_or_regular_is_refused(pattern):
    assert not is_accepted(pattern)

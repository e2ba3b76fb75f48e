"""JSON Schemas in Google's subset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.wires.gemini import decode_schema, encode_schema

STRING, INTEGER, ANY = {"type": "STRING"}, {"type": "INTEGER"}, {"type": "STRING"}


def obj(**properties):
    return {"type": "object", "properties": properties}


def lower(schema):
    dropped = []
    return encode_schema(schema, dropped), dropped


@pytest.mark.parametrize(
    ("schema", "lowered", "dropped"),
    [
        (
            {"type": "string", "description": "d", "minLength": 1},
            {"type": "STRING", "description": "d", "minLength": 1},
            [],
        ),
        ({"$schema": "x", "type": "object", "additionalProperties": False, "$defs": {}}, {"type": "OBJECT"}, []),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "OBJECT"},
            ["schema additionalProperties"],
        ),
        (
            obj(x={"const": "a"}) | {"required": ["x", "y"]},
            {"type": "OBJECT", "properties": {"x": {"type": "STRING", "enum": ["a"]}}, "required": ["x"]},
            [],
        ),
        ({"const": 3}, {"type": "INTEGER", "minimum": 3, "maximum": 3}, []),
        ({"enum": [1, 2, 3]}, {"type": "INTEGER", "minimum": 1, "maximum": 3}, []),
        ({"enum": [1, 5]}, {"type": "INTEGER", "minimum": 1, "maximum": 5}, ["schema enum"]),
        ({"const": True}, {"type": "BOOLEAN"}, ["schema enum"]),
        ({"enum": ["a", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}, []),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}, []),
        (
            {"type": ["string", "integer", "null"], "minLength": 1, "description": "d"},
            {
                "description": "d",
                "anyOf": [
                    {"type": "STRING", "minLength": 1, "description": "d"},
                    {"type": "INTEGER", "minLength": 1, "description": "d"},
                ],
                "nullable": True,
            },
            [],
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "STRING", "nullable": True}, []),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}], "title": "t"},
            {"anyOf": [STRING, INTEGER], "title": "t"},
            [],
        ),
        (
            {"allOf": [obj(x={"type": "string"}), obj(y={"type": "integer"})], "required": ["y"]},
            {"type": "OBJECT", "properties": {"x": STRING, "y": INTEGER}, "required": ["y"]},
            [],
        ),
        (
            obj(x={"$ref": "#/$defs/a", "description": "d"}) | {"$defs": {"a": {"type": "integer"}}},
            {"type": "OBJECT", "properties": {"x": {"type": "INTEGER", "description": "d"}}},
            [],
        ),
        (
            {"$defs": {"a": obj(x={"type": "string"})}, "allOf": [{"$ref": "#/$defs/a"}, obj(y={"type": "integer"})]},
            {"type": "OBJECT", "properties": {"x": STRING, "y": INTEGER}},
            [],
        ),
        (
            obj(child={"$ref": "#"}),
            {
                "type": "OBJECT",
                "properties": {"child": {"type": "OBJECT", "properties": {"child": {"type": "OBJECT"}}}},
            },
            ["schema recursion"],
        ),
        ({"$ref": "#/nowhere"}, {"type": "OBJECT"}, ["schema $ref"]),
        ({"$ref": "https://x/y"}, {"type": "OBJECT"}, ["schema $ref"]),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            {"type": "ARRAY", "items": STRING, "maxItems": 2},
            [],
        ),
        ({"type": "array"}, {"type": "ARRAY", "items": ANY}, ["schema any type"]),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "ARRAY", "items": {"anyOf": [STRING, INTEGER]}},
            ["schema prefixItems"],
        ),
        ({}, ANY, ["schema any type"]),
        (obj(x=True), {"type": "OBJECT", "properties": {"x": ANY}}, ["schema any type"]),
        ({"type": "string", "format": "uri"}, STRING, ["schema format"]),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}, []),
        (
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9},
            {"type": "INTEGER", "minimum": 1, "maximum": 8},
            [],
        ),
        (
            {"type": "number", "exclusiveMinimum": 0, "multipleOf": 2},
            {"type": "NUMBER", "minimum": 0},
            ["schema exclusiveMinimum", "schema multipleOf"],
        ),
    ],
)
def test_lowering(schema, lowered, dropped):
    assert lower(schema) == (lowered, dropped)


SIMPLE = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": ["integer", "null"]}, {"type": "string", "enum": ["a"], "description": "d"}]
    ),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda p: {"type": "object", "properties": p, "required": list(p)},
            st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3),
        )
        | st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=6,
)


@given(SIMPLE)
def test_what_the_subset_says_comes_back(schema):
    lowered, dropped = lower(schema)
    assert decode_schema(lowered) == schema
    assert dropped == []


def test_google_s_own_spelling():
    given_schema = {
        "type": "TYPE_UNSPECIFIED",
        "any_of": [{"type": "Integer", "min_items": "1"}],
        "nullable": True,
        "example": 1,
        "format": "enum",
        "property_ordering": ["x"],
        "default": None,
    }
    options = [{"type": "integer", "minItems": 1}, {"type": "null"}]
    assert decode_schema(given_schema) == {"anyOf": options, "examples": [1]}


WORDS = [
    "type",
    "properties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "enum",
    "const",
    "required",
    "$defs",
    "format",
    "nullable",
    "prefixItems",
    "minimum",
    "exclusiveMinimum",
]
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["object", "array", "#", "#/$defs/x", "#/items", "#/anyOf/0", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "x"]), inner, max_size=4),
    max_leaves=16,
)


@given(st.dictionaries(st.sampled_from(WORDS), ANYTHING, max_size=4))
def test_anything_is_lowered_and_raised(schema):
    lower(schema)
    decode_schema(schema)


def test_a_hostile_schema_ends():
    """Thirty definitions that name the next one twice would be a thousand million places; nesting has a bottom."""
    doubled = {f"d{n}": obj(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"}) for n in range(30)}
    assert lower({"$ref": "#/$defs/d0", "$defs": {**doubled, "d30": {"type": "string"}}})[1] == ["schema too large"]
    deep = {}
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    assert "schema too large" in lower(deep)[1]
    decode_schema(deep)

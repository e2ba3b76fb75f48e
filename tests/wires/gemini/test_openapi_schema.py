"""Schemas in Google's subset of OpenAPI, which clients send."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.wires.gemini import decode_schema


@table(
    ("schema", "decoded"),
    [
        ({"type": "STRING", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "ARRAY", "items": {"type": "INTEGER"}}, {"type": "array", "items": {"type": "integer"}}),
        (
            {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}, "required": ["x"]},
            {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
        ),
        ({"anyOf": [{"type": "STRING"}]}, {"anyOf": [{"type": "string"}]}),
    ],
)
def test_decoding(schema, decoded):
    assert decode_schema(schema) == decoded


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
def test_anything_is_decoded(schema):
    decode_schema(schema)


def test_a_hostile_schema_ends():
    deep = {}
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    decode_schema(deep)

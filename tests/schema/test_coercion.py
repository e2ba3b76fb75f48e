from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.schema import compile_coercion

INTEGER = {"type": "integer"}


@table(
    ("schema", "given", "value"),
    [
        (INTEGER, "5", 5),
        (INTEGER, "-0", 0),
        (INTEGER, "1e2", 100),
        (INTEGER, 5.0, 5),
        (INTEGER, "5.5", "5.5"),
        (INTEGER, 5.5, 5.5),
        (INTEGER, "02134", "02134"),
        (INTEGER, "5 ", "5 "),
        (INTEGER, " 5", " 5"),
        (INTEGER, "+5", "+5"),
        (INTEGER, "", ""),
        (INTEGER, "true", "true"),
        (INTEGER, "\ud800", "\ud800"),
        (INTEGER, "1\ud800", "1\ud800"),
        (INTEGER, "9" * 5000, "9" * 5000),
        ({"type": "number"}, "5", 5),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "number"}, 5.0, 5.0),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "Infinity", "Infinity"),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", "True"),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "boolean"}, 1, 1),
        ({"type": "null"}, "null", None),
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, 5, 5),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({}, "5", "5"),
        (True, "5", "5"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": [1, "a"]}, "1", "1"),
        ({"const": True}, "true", True),
        ({"type": ["string", "integer"], "enum": [1]}, "1", 1),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "5", 5),
        ({"anyOf": [INTEGER, {"type": "string"}]}, "5", "5"),
        ({"anyOf": [INTEGER, {}]}, "5", "5"),
        ({"oneOf": [INTEGER, {"type": "boolean"}]}, "false", False),
        ({"allOf": [{"type": ["integer", "string"]}, INTEGER]}, "5", 5),
        ({"$ref": "#/$defs/i"}, "5", 5),
        ({"type": "array", "items": INTEGER}, '["1", 2]', [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, ["1"], ["1"]),
        ({"type": "array", "prefixItems": [INTEGER], "items": {"type": "boolean"}}, ["1", "true"], [1, True]),
        ({"type": "array", "items": [INTEGER], "additionalItems": {"type": "boolean"}}, ["1", "true"], [1, True]),
        ({"type": "object", "properties": {"a": INTEGER}}, '{"a": "1", "b": "2"}', {"a": 1, "b": "2"}),
        ({"type": "object"}, "[1]", "[1]"),
        ({"type": "array"}, "[" * 5000, "[" * 5000),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": INTEGER},
         {"a": "1", "b": "2"}, {"a": "1", "b": 2}),
        ({"properties": {"a": INTEGER}}, {"a": "1"}, {"a": 1}),
        ({"anyOf": [{"type": "object", "properties": {"a": INTEGER}}, {"type": "null"}]}, {"a": "1"}, {"a": 1}),
        ({"anyOf": [{"properties": {"a": INTEGER}}, {"type": "object"}]}, {"a": "1"}, {"a": "1"}),
        ({"allOf": [{"properties": {"a": INTEGER}}, {"properties": {"a": {}, "b": INTEGER}}]},
         {"a": "1", "b": "2"}, {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_one_value(schema, given, value):
    root = {"type": "object", "properties": {"v": schema}, "$defs": {"i": INTEGER}}
    coerced = compile_coercion(root)({"v": given})["v"]
    assert coerced == value
    assert type(coerced) is type(value)


FILLING = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "default": 10},
        "options": {
            "type": "object",
            "properties": {"deep": {"type": "boolean", "default": False}, "tags": {"default": []}},
        },
        "self": {"$ref": "#", "default": {}},
    },
    "allOf": [{"properties": {"mode": {"default": "fast"}}}],
}


@table(
    ("given", "filled"),
    [
        ({}, {"limit": 10, "self": {}, "mode": "fast"}),
        ({"limit": None, "self": 1, "mode": 2}, {"limit": 10, "self": 1, "mode": 2}),
        (
            {"limit": 1, "self": 1, "mode": 1, "options": {"deep": "true"}},
            {"limit": 1, "self": 1, "mode": 1, "options": {"deep": True, "tags": []}},
        ),
        (
            {"limit": 1, "mode": 1, "self": {"self": 2}},
            {"limit": 1, "mode": 1, "self": {"self": 2, "limit": 10, "mode": "fast"}},
        ),
    ],
)
def test_defaults_are_filled_where_their_object_is(given, filled):
    assert compile_coercion(FILLING)(given) == filled


ABSENT = {
    "type": "object",
    "properties": {
        "i": INTEGER,
        "n": {"type": ["integer", "null"]},
        "r": INTEGER,
        "e": {"enum": ["a"]},
        "any": {},
        "list": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["r"],
}
ONE = {"type": "object", "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER}, "required": ["c"]}
OTHER = {"type": "object", "properties": {"b": {"type": ["integer", "null"]}, "c": INTEGER, "d": INTEGER}}


@table(
    ("schema", "given", "kept"),
    [
        (ABSENT, {"i": None, "n": None, "r": None, "e": None, "any": None, "x": None},
         {"n": None, "r": None, "any": None, "x": None}),
        (ABSENT, {"list": [{"i": None, "r": 1}, {"r": 2}]}, {"list": [{"r": 1}, {"r": 2}]}),
        ({"allOf": [{"properties": {"i": INTEGER}}]}, {"i": None}, {}),
        ({"type": "object", "additionalProperties": INTEGER}, {"i": None}, {"i": None}),
        ({"anyOf": [ONE, OTHER]}, {"a": None, "b": None, "c": None, "d": None}, {"b": None, "c": None}),
        ({"anyOf": [{"$ref": "#/$defs/one"}, OTHER, {"type": "null"}], "$defs": {"one": ONE}},
         {"a": None, "c": None, "d": None}, {"c": None}),
        ({"anyOf": [ONE, {"type": "object"}]}, {"a": None}, {"a": None}),
    ],
)  # fmt: skip
def test_a_null_counts_as_absent_where_a_member_may_be_left_out_and_not_be_null(schema, given, kept):
    before = copy.deepcopy(given)
    assert compile_coercion(schema)(given) == kept
    assert given == before


def test_a_filled_default_is_a_copy():
    coerce = compile_coercion(FILLING)
    coerce({"options": {}})["options"]["tags"].append(1)
    assert coerce({"options": {}})["options"]["tags"] == []


def test_defaults_can_be_left_alone():
    given = {"options": {}}
    assert compile_coercion(FILLING, fill=False)(given) is given


def test_a_long_chain_of_references_is_no_deep_recursion():
    links = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(5000)}
    coerce = compile_coercion({"$ref": "#/$defs/d0", "$defs": {**links, "d5000": INTEGER}})
    assert coerce({"a": {"a": "1"}}) == {"a": {"a": "1"}}


SCHEMA = {
    "type": "object",
    "properties": {
        "i": INTEGER,
        "s": {"type": "string"},
        "n": {"type": ["number", "null"]},
        "l": {"type": "array", "items": {"$ref": "#"}},
        "o": {"$ref": "#"},
    },
    "additionalProperties": {"type": "boolean"},
}
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["1", "true", "[]", "{}"])
)
VALUES = st.recursive(
    LEAVES | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("isnlox"), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("isnlox"), VALUES, max_size=5))
def test_the_input_stays_and_twice_is_once(arguments):
    coerce = compile_coercion(SCHEMA)
    before = copy.deepcopy(arguments)
    coerced = coerce(arguments)
    assert arguments == before
    assert coerce(coerced) is coerced
    if coerced == arguments and repr(coerced) == repr(arguments):
        assert coerced is arguments

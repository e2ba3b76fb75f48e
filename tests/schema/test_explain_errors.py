from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import SchemaError
from callboard.schema import ArgumentsInvalid, compile_schema
from callboard.schema.explain_errors import explain

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
SHAPES = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "square"}, "side": {"type": "number"}, "at": POINT},
            "required": ["kind", "side", "at"],
        },
    ]
}


@table(
    ("schema", "value", "mistakes"),
    [
        ({"type": "string"}, 1, ["v: Input should be a valid string"]),
        ({"type": ["integer", "null"]}, "x", ["v: Input should be a valid integer"]),
        ({"type": ["integer", "boolean", "null"]}, "x", ["v: Input should be a valid integer or a valid boolean"]),
        ({"type": "null"}, "x", ["v: Input should be null"]),
        ({"enum": ["a", "b", "c"]}, "d", ["v: Input should be 'a', 'b' or 'c'"]),
        ({"enum": []}, "d", ["v: Input is not allowed, whatever it is"]),
        ({"enum": [1, None]}, True, ["v: Input should be 1 or null"]),
        ({"enum": list(range(30))}, -1, ["v: Input should be " + ", ".join(map(str, range(20))) + " or 10 others"]),
        ({"const": {"a": 1}}, 1, ['v: Input should be {"a":1}']),
        ({"minimum": 1}, 0, ["v: Input should be greater than or equal to 1"]),
        ({"maximum": 1}, 2, ["v: Input should be less than or equal to 1"]),
        ({"exclusiveMinimum": 1}, 1, ["v: Input should be greater than 1"]),
        ({"exclusiveMaximum": 1}, 1, ["v: Input should be less than 1"]),
        ({"multipleOf": 2}, 3, ["v: Input should be a multiple of 2"]),
        ({"minLength": 2}, "a", ["v: String should have at least 2 characters"]),
        ({"maxLength": 1}, "ab", ["v: String should have at most 1 character"]),
        (
            {"minLength": 2, "pattern": "^b"},
            "a",
            ["v: String should have at least 2 characters", "v: String should match pattern '^b'"],
        ),
        ({"minItems": 2}, [1], ["v: List should have at least 2 items, not 1"]),
        ({"maxItems": 1}, [1, 2], ["v: List should have at most 1 item, not 2"]),
        ({"minProperties": 1}, {}, ["v: Object should have at least 1 member, not 0"]),
        ({"uniqueItems": True}, [1, 1], ["v: List should have no repeated items"]),
        ({"contains": {"const": 1}}, [2], ["v: List should have an item of the required form"]),
        (
            {"prefixItems": [{"type": "integer"}], "items": False},
            ["x", 2],
            ["v.0: Input should be a valid integer", "v.1: Input is not permitted"],
        ),
        ({"items": POINT}, [{"x": 1}, {"y": 1}], ["v.1.x: Field required", "v.1.y: Extra inputs are not permitted"]),
        ({"not": {"type": "integer"}}, 1, ["v: Input is not permitted"]),
        (False, 1, ["v: Input is not permitted"]),
        (
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}},
            {"a": 1},
            ["v.b: Field required"],
        ),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, ["v.b: Field required"]),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, ["v.b: Field required"]),
        (
            {"propertyNames": {"maxLength": 1}},
            {"ab": 1},
            ["v.ab: Name is not permitted: String should have at most 1 character"],
        ),
        (
            {"patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False},
            {"n": "x", "m": 1},
            ["v.n: Input should be a valid integer", "v.m: Extra inputs are not permitted"],
        ),
        (
            {"allOf": [{"properties": {"alpha": {}}}], "unevaluatedProperties": False},
            {"alpha": 1, "alpah": 1},
            ["v.alpah: Extra inputs are not permitted; did you mean 'alpha'?"],
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            1,
            ["v: Input should match only one of the allowed forms"],
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", ["v: Input should be a valid integer"]),
        (
            {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["a"]}]},
            [],
            ["v: Input should be a valid integer or 'a'"],
        ),
        ({"anyOf": [POINT, {"type": "null"}]}, {"x": "x"}, ["v.x: Input should be a valid integer"]),
        (
            SHAPES,
            {"kind": "square", "at": {"x": "x"}},
            ["v.side: Field required", "v.at.x: Input should be a valid integer"],
        ),
        (SHAPES, {"kind": "circle", "r": "x"}, ["v.r: Input should be a valid number"]),
        (SHAPES, 5, ["v: Input should be an object"]),
    ],
)
def test_each_kind_of_mistake(schema, value, mistakes):
    validator = compile_schema({"type": "object", "properties": {"v": schema}})
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate({"v": value})
    assert [f"{one.path}: {one.message}" for one in caught.value.mistakes] == mistakes


def test_what_is_not_explained_is_still_refused():
    validator = compile_schema({"type": "object", "unevaluatedProperties": {"type": "integer"}})
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate({"a": "x"})
    assert str(caught.value) == "ArgValidationError: arguments\n  Input does not match the schema"


def recursive_union():
    operands = {"left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}}
    operations = [
        {"type": "object", "properties": {"op": {"const": op}, **operands}, "required": ["op", "left", "right"]}
        for op in ("add", "sub", "mul")
    ]
    return {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [{"type": "integer"}, *operations]}}}


def test_a_leaf_far_down_in_a_recursive_union_is_found():
    value: object = "x"
    for _ in range(18):
        value = {"op": "mul", "left": value, "right": 1}
    assert explain(recursive_union(), value) == [(("left",) * 18, "Input should be a valid integer or an object")]


def test_a_hostile_schema_ends_the_search():
    twice = {"properties": {"a": {"$ref": "#"}}, "required": ["z"]}
    schema = {"anyOf": [{"properties": {"a": {"$ref": "#"}}}] * 3, "allOf": [twice]}
    value: dict[str, object] = {}
    for _ in range(100):
        value = {"a": value, "z": 1}
    assert isinstance(explain(schema, value), list)


NAMES = st.sampled_from("abx")


def _schemas(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "object", "array", "null", "number", ["integer", "null"]]),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, unique=True, max_size=2),
            "additionalProperties": inner | st.just(False),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "enum": st.lists(st.integers(0, 3) | NAMES | st.booleans(), min_size=1, max_size=3),
            "minimum": st.integers(-3, 3),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "pattern": st.sampled_from(["a", "^x$"]),
            "$ref": st.sampled_from(["#/$defs/x", "#/properties/a"]),
        },
    )


SCHEMAS = st.recursive(st.just({}) | st.just({"type": "integer"}) | st.just({"type": "string"}), _schemas, max_leaves=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "properties": st.dictionaries(NAMES, SCHEMAS, min_size=1),
            "$defs": st.just({}) | st.dictionaries(st.just("x"), SCHEMAS),
        }
    ),
    st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=5),
)
def test_mistakes_are_found_exactly_where_the_validator_refuses(schema, several):
    try:
        validator = compile_schema(schema)
    except SchemaError:
        return
    for arguments in several:
        try:
            accepted = validator.validate(arguments)
        except ArgumentsInvalid as refused:
            assert "does not match" not in str(refused)  # noqa: PT017 - either outcome is right
        else:
            assert explain(validator.schema, accepted) == []

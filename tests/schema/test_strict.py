"""Any schema becomes one that strict mode takes, or says why not; what was optional comes back as it was."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field
from tests.tables import table

from callboard.schema.strict import ANTHROPIC, OPENAI, NotStrict, strict, strict_arguments, without_nulls
from callboard.tools import tool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Edit:
    line: int
    text: str = ""


class Node(BaseModel):
    value: int
    children: "list[Node]" = []


@tool
def everything(  # noqa: PLR0917  # one parameter a kind
    query: str,
    colour: Colour = Colour.RED,
    mode: Literal["a", "b"] | None = None,
    count: Annotated[int, Field(ge=1, le=10)] = 3,
    edits: list[Edit] | None = None,
    first: Edit | None = None,
    second: Edit | None = None,
    tree: Node | None = None,
    ratio: float | str = 0.5,
) -> str:
    """Has everything.

    :param query: What is looked for.
    """
    return str((query, colour, mode, count, edits, first, second, tree, ratio))


@table(
    ("schema", "expected"),
    [
        ({"type": "string", "format": "date", "pattern": "^a", "minLength": 2, "default": "x"}, {"type": "string"}),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True},
         {"type": "array", "items": {"type": "integer"}}),
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1], "type": ["integer", "string"]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string", "description": "d"}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}),
        ({"$ref": "#/$defs/A", "description": "d"}, {"anyOf": [{"$ref": "#/$defs/A"}], "description": "d"}),
        ({"type": "object", "properties": {}},
         {"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
    ],
)  # fmt: skip
def test_what_a_schema_becomes(schema, expected):
    assert strict(schema) == expected


@table(
    ("optional", "expected"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]},
         {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"$ref": "#/$defs/A"}, {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
    ],
)  # fmt: skip
def test_what_is_optional_may_be_null(optional, expected):
    made = strict({"type": "object", "properties": {"x": optional, "y": {"type": "string"}}, "required": ["y"]})
    assert made["properties"]["x"] == expected
    assert made["properties"]["y"] == {"type": "string"}
    assert made["required"] == ["x", "y"]


@table(
    ("schema", "why"),
    [
        ({}, "it may be anything"),
        ({"type": "object", "properties": {"x": True}}, "x may be anything"),
        ({"type": "object", "properties": {"x": {"description": "d"}}}, "x may be anything"),
        ({"type": "object"}, "it is an open object"),
        ({"type": "object", "properties": {"x": {"type": "object", "additionalProperties": {"type": "string"}}}},
         "x is an open object"),
        ({"type": "object", "properties": {}, "additionalProperties": True}, "it is an open object"),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, r"x\[\] may be anything"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "it has prefixItems"),
        ({"type": "object", "properties": {"x": {"$ref": "#"}}}, "x refers to #"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "it has allOf"),
        ({"type": "object", "properties": [], "additionalProperties": False}, "it is not a schema"),
        ({"anyOf": 3}, "it is not a schema"),
        ({"$ref": 3}, "it is not a schema"),
        ({"allOf": {"a": 1}}, "it is not a schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_strict_says_why(schema, why):
    with pytest.raises(NotStrict, match=f"^{why}$"):
        strict(schema)


def closed(required, **properties):
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


STRING = {"type": "string"}
NULLABLE = {"type": ["string", "null"]}


@table("subset", [OPENAI, ANTHROPIC])
@table(
    "schema",
    [
        closed(""),
        {"type": "object", "additionalProperties": False},
        {**closed("x", x={**STRING, "format": "date", "title": "X"}), "title": "T", "description": "d"},
        closed("xy", y=NULLABLE, x={"type": "array", "items": {"anyOf": [STRING, closed("a", a=STRING)]}}),
        {**closed("x", x={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "integer", "enum": [1, 2]}}},
    ],
)
def test_what_is_in_the_subset_is_left_as_it_is(schema, subset):
    assert strict_arguments(schema, subset) is schema


@table(
    ("schema", "openai", "anthropic"),
    [
        (closed("", x=STRING), closed("x", x=NULLABLE), ...),
        (closed("x", x={**STRING, "default": "d"}), closed("x", x=STRING), ...),
        (closed("x", x={"enum": ["a"]}), closed("x", x={"enum": ["a"], "type": "string"}), ...),
        (closed("x", x={"type": "integer", "minimum": 1}), ..., closed("x", x={"type": "integer"})),
        (closed("x", x={**STRING, "format": "uri"}), closed("x", x=STRING), ...),
        (closed("x", x={**STRING, "format": "path", "minLength": 1}), *[closed("x", x=STRING)] * 2),
        (
            {"type": "object", "properties": {"x": STRING, "y": STRING}, "required": ["y"]},
            closed("xy", x=NULLABLE, y=STRING),
            closed("y", x=STRING, y=STRING),
        ),
        (
            closed("xz", x={"$ref": "#/$defs/A", "description": "d"}),
            closed("x", x={"anyOf": [{"$ref": "#/$defs/A"}], "description": "d"}),
            closed("x", x={"anyOf": [{"$ref": "#/$defs/A"}], "description": "d"}),
        ),
    ],
)
def test_the_two_subsets(schema, openai, anthropic):
    assert strict_arguments(schema, OPENAI) == (schema if openai is ... else openai)
    assert strict_arguments(schema, ANTHROPIC) == (schema if anthropic is ... else anthropic)


@table("subset", [OPENAI, ANTHROPIC])
@table(
    "schema",
    [
        STRING,
        {"type": ["object", "null"], "properties": {}, "additionalProperties": False},
        {"type": "object", "properties": {}, "additionalProperties": False, "anyOf": [closed("x", x=STRING)]},
        {"type": "object", "properties": [], "additionalProperties": False},
        {"type": "object", "required": 3, "additionalProperties": False, "properties": {"x": STRING}},
        closed("x", x=True),
        closed("x", x={"type": "array"}),
    ],
)
def test_what_is_no_plain_object_is_not_strict(schema, subset):
    with pytest.raises(NotStrict):
        strict_arguments(schema, subset)


def test_what_is_too_deep_is_not_strict():
    deep = STRING
    for _ in range(10_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(NotStrict):
        strict_arguments(closed("x", x=deep), OPENAI)


@table("subset", [OPENAI, ANTHROPIC])
def test_what_was_made_strict_is_strict(subset):
    made = strict_arguments(everything.schema, subset)
    assert strict_arguments(made, subset) is made
    assert (made["required"] == ["query"]) is subset.optional


def test_nulls_of_strict_mode_are_no_mistake():
    written = {"query": "q", "colour": None, "count": None, "edits": [{"line": 1, "text": None}], "ratio": None}
    assert everything.validate(written)["edits"] == [Edit(1)]
    assert everything.validate(written) == everything.validate({"query": "q", "edits": [{"line": 1}]})


def every(schema):
    yield schema
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        yield from every(part)


def test_a_signature_with_everything_is_strict():
    made = strict(everything.schema)
    for part in every(made):
        assert part.keys() <= {
            "type", "enum", "$ref", "description", "properties", "required", "additionalProperties", "items", "anyOf",
            "$defs",
        }  # fmt: skip
        if "$ref" in part:
            assert part.keys() == {"$ref"}
        if part.get("type") == "object":
            assert part["required"] == [*part["properties"]]
            assert part["additionalProperties"] is False
    assert made["properties"]["query"] == {"type": "string", "description": "What is looked for."}


def test_what_a_strict_model_writes_gives_the_defaults():
    written = {
        "query": "q",
        "colour": None,
        "mode": None,
        "count": None,
        "edits": [{"line": 1, "text": None}],
        "first": {"line": 2, "text": None},
        "second": None,
        "tree": {"value": 1, "children": [{"value": 2, "children": None}]},
        "ratio": None,
    }
    assert jsonschema_rs.is_valid(strict(everything.schema), written)
    assert everything.validate(without_nulls(written, everything.schema)) == {
        "query": "q",
        "colour": Colour.RED,
        "mode": None,
        "count": 3,
        "edits": [Edit(1)],
        "first": Edit(2),
        "second": None,
        "tree": Node(value=1, children=[Node(value=2)]),
        "ratio": 0.5,
    }


def test_a_null_that_is_required_or_unknown_stays():
    schema = {
        "type": "object",
        "properties": {"x": {"type": ["string", "null"]}, "y": {"type": "string"}},
        "required": ["x"],
    }
    assert without_nulls({"x": None, "y": None, "z": None}, schema) == {"x": None, "z": None}

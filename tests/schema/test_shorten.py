import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.schema.shorten import cut_at_sentence, shorten_schema
from callboard.schema.subschemas import inside

KEYWORDS = [
    "$ref",
    "$defs",
    "allOf",
    "anyOf",
    "oneOf",
    "items",
    "prefixItems",
    "properties",
    "required",
    "type",
    "enum",
]
KEYWORDS += ["const", "default", "description", "title", "additionalProperties", "pattern", "minimum", "a"]
REFERENCES = [
    "#",
    "#/$defs/a",
    "#/properties/a",
    "#/allOf/0",
    "#/nowhere",
    "elsewhere",
    "#/%ff",
    "string",
    "null",
    "object",
]
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(REFERENCES) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=12,
)


def size(schema):
    return len(json.dumps(schema, ensure_ascii=False))


def refers(schema):
    return isinstance(schema, dict) and ("$ref" in schema or any(refers(part) for _, part in inside(schema)))


def objects(**properties):
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "short"),
    [
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "additionalProperties": False}
            | objects(a={"title": "A", "type": "integer", "x-order": 1, "minimum": 1}),
            objects(a={"type": "integer", "minimum": 1}),
        ),
        (
            {**objects(a={"$ref": "#/$defs/A", "description": "mine"}), "$defs": {"A": {"type": "string"}}},
            objects(a={"type": "string", "description": "mine"}),
        ),
        (  # the null of what may be left out
            objects(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "d"}),
            objects(a={"type": "string", "description": "d"}),
        ),
        (
            {**objects(a={"anyOf": [{"type": "string"}, {"type": "null"}]}), "required": ["a"]},
            {**objects(a={"type": ["string", "null"]}), "required": ["a"]},
        ),
        (objects(a={"type": ["integer", "null"]}), objects(a={"type": "integer"})),
        (
            {**objects(a={"allOf": [{"type": "object", "properties": {"b": {}}, "required": ["b"]}], "title": "x"})},
            objects(a={"type": "object", "properties": {"b": {}}, "required": ["b"]}),
        ),
        (  # one that holds itself
            {**objects(a={"$ref": "#/$defs/N"}), "$defs": {"N": objects(next={"$ref": "#/$defs/N"})}},
            objects(a=objects(next={"type": "object"})),
        ),
        (objects(title={"type": "string"}, description={"type": "string"}), None),
        ({"type": "object"}, None),
        ({"type": "object", "properties": {}}, None),
        (True, {}),
        (None, {}),
    ],
)
def test_what_a_model_reads(schema, short):
    assert shorten_schema(schema) == (schema if short is None else short)


@given(junk)
def test_any_schema_is_shortened_once_and_for_all(schema):
    short = shorten_schema(schema, 2000)
    assert size(short) <= 2000
    assert not refers(short)
    assert shorten_schema(short, 2000) == short


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), st.sampled_from(["string", "integer", "boolean"])))
def test_each_property_keeps_its_type(types):
    schema = objects(**{name: {"type": kind, "title": name.title()} for name, kind in types.items()})
    short = shorten_schema(schema)
    assert {name: each["type"] for name, each in short["properties"].items()} == types


def test_a_schema_of_100_kb_is_bounded():
    long = "All of this is said. " * 500
    deep = objects(**{f"b{each}": {"type": "string", "description": long} for each in range(9)})
    schema = {**objects(a={"type": "integer", "description": long}, deep=deep), "required": ["a"]}
    assert size(schema) > 100_000
    short = shorten_schema(schema, 4000)
    assert size(short) <= 4000
    assert short["properties"]["a"]["description"].endswith("All of this is said.")
    assert len(short["properties"]["deep"]["properties"]) == 9


def test_of_too_many_properties_the_required_ones_stay():
    schema = {**objects(**{f"p{each}": {"type": "string"} for each in range(3000)}), "required": ["p2999"]}
    short = shorten_schema(schema, 1000)
    assert size(short) <= 1000
    assert short["required"] == ["p2999"]
    assert len(short["properties"]) > 20


def test_references_that_double_each_other_cost_no_more():
    """Each definition refers twice to the next: written out it would be a billion parts."""
    levels = {
        f"d{each}": objects(a={"$ref": f"#/$defs/d{each + 1}"}, b={"$ref": f"#/$defs/d{each + 1}"})
        for each in range(30)
    }
    assert size(shorten_schema({**objects(a={"$ref": "#/$defs/d0"}), "$defs": levels})) <= 16_000
    both = {f"d{each}": {"allOf": [{"$ref": f"#/$defs/d{each + 1}"}] * 2} for each in range(30)}
    assert size(shorten_schema({**objects(a={"$ref": "#/$defs/d0"}), "$defs": both})) <= 16_000


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf", "prefixItems"])
def test_a_schema_may_be_nested_without_end(keyword):
    schema = {"type": "string"}
    for _ in range(5000):
        schema = {keyword: [schema]}
    assert size(shorten_schema(objects(a=schema))) < 1000


def test_a_definition_costs_as_little_as_what_is_shown_of_it():
    """It is long, and many refer to it: written out or measured each time it would be 200 MB."""
    long = {"type": "string", "default": "x" * 100_000, "examples": [["y" * 9] * 9999], "const": {"z" * 9999: 1}}
    uses = {f"p{each}": {"$ref": "#/$defs/A"} for each in range(2000)}
    short = shorten_schema({**objects(**uses), "$defs": {"A": long}})
    assert short["properties"]["p0"] == {"type": "string"}


def test_choices_that_are_left_out_are_counted():
    short = shorten_schema(objects(a={"enum": [*range(250)]}))
    assert len(short["properties"]["a"]["enum"]) == 200
    assert short["properties"]["a"]["description"] == "Other values are allowed: 50."


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("One. Two. Three.", 99, "One. Two. Three."),
        ("One. Two. Three.", 10, "One. Two."),
        ("One. Two. Three.", 4, "One."),
        ("Version 1.5 is the one that", 20, "Version 1.5 is..."),
        ("First\n\nSecond", 9, "First"),
        ("一。二。三。", 4, "一。二。"),
        ("  white  ", 5, "white"),
        ("Immeasurable", 5, "Im..."),
        ("E.g. this and that are what it takes", 20, "E.g. this and..."),
        ("Immeasurable", 0, ""),
    ],
)
def test_a_description_ends_with_a_sentence(text, most, cut):
    assert cut_at_sentence(text, most) == cut

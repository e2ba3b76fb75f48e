from __future__ import annotations

import pytest
from tests.tables import table

from callboard.schema.subschemas import inside, pointer, pointer_steps, rebuild, resolve

DOCUMENT = {"a": {"b/c": [{"~": 1}], "d e": 2, "%": 3, "": 4}}


@table(
    ("reference", "value"),
    [
        ("#", DOCUMENT),
        ("#/a/b~1c/0/~0", 1),
        ("#/a/d%20e", 2),
        ("#/a/%25", 3),
        ("#/a/", 4),
    ],
)
def test_a_reference_names_a_place(reference, value):
    assert resolve(DOCUMENT, reference) == value


@table("reference", ["", "a", "#a", "#/x", "#/a/b~1c/1", "#/a/b~1c/x", "#/a/d%20e/0", "/a"])
def test_a_reference_to_nothing(reference):
    with pytest.raises(LookupError):
        resolve(DOCUMENT, reference)


@table("steps", [(), ("properties", "a/b~c"), ("allOf", 0)])
def test_a_pointer_points_back(steps):
    assert pointer_steps(pointer(steps)) == [str(step) for step in steps]


SCHEMA = {
    "properties": {"properties": {"const": 1}, "title": True},
    "allOf": [{"const": 2}],
    "items": {"const": 3},
    "enum": [{"items": {}}],
    "default": {"items": {}},
}


def test_schemas_are_told_from_names_and_data():
    assert list(inside(SCHEMA)) == [
        (("properties", "properties"), {"const": 1}),
        (("properties", "title"), True),
        (("allOf", 0), {"const": 2}),
        (("items",), {"const": 3}),
    ]


def test_schemas_inside_can_be_changed():
    assert rebuild(SCHEMA, lambda _: 0) == {
        **SCHEMA,
        "properties": {"properties": 0, "title": 0},
        "allOf": [0],
        "items": 0,
    }

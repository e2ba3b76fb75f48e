from __future__ import annotations

from tests.tables import table

from callboard.schema.signature import simplify

CLOSED = {"additionalProperties": False}


@table(
    ("schema", "small"),
    [
        (
            {"title": "T", "properties": {"title": {"title": "Title", "type": "string"}}, "type": "object"},
            {"type": "object", "properties": {"title": {"type": "string"}}, **CLOSED},
        ),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}},
                "$defs": {"A": {"title": "A", "description": "its", "enum": [1]}, "Unused": {}},
            },
            {"properties": {"a": {"description": "mine", "enum": [1]}}, **CLOSED},
        ),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {
                    "A": {"properties": {"b": {"$ref": "#/$defs/B"}}},
                    "B": {"properties": {"a": {"$ref": "#/$defs/A"}}},
                },
            },
            {
                "properties": {"a": {"$ref": "#/$defs/A"}},
                **CLOSED,
                "$defs": {"A": {"properties": {"b": {"properties": {"a": {"$ref": "#/$defs/A"}}, **CLOSED}}, **CLOSED}},
            },
        ),
        (
            {"properties": {"a": {"properties": {}, "additionalProperties": True}, "b": {"properties": {}}}},
            {"properties": {"a": {"properties": {}, "additionalProperties": True}, "b": {"properties": {}}}},
        ),
        (
            {"properties": {"a": {"default": {"title": "data"}, "oneOf": [], "discriminator": {"propertyName": "k"}}}},
            {"properties": {"a": {"default": {"title": "data"}, "oneOf": []}}, **CLOSED},
        ),
    ],
)
def test_what_is_left(schema, small):
    assert simplify(schema) == small

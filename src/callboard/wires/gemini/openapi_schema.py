"""Google's `Schema`, a subset of OpenAPI, as JSON Schema: clients send it in `parameters` and `responseSchema`.

Law: a schema nested deeper than DEEPEST is cut there.
Source: `Schema` of Google's Generative Language API, v1beta.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEEPEST = 48
"""Maximum depth of a schema."""


def decode_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Google's schema as a JSON Schema; keys may be in snake case, types in capitals, and counts strings."""
    return _decode(schema, 0)


_CAMEL: Mapping[str, str] = {
    "any_of": "anyOf", "min_items": "minItems", "max_items": "maxItems", "min_length": "minLength",
    "max_length": "maxLength", "min_properties": "minProperties", "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering", "additional_properties": "additionalProperties",
}  # fmt: skip
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})


def _decode(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > DEEPEST:
        return {}
    decoded: dict[str, Any] = {}
    nullable = schema.get("nullable") is True
    for spelled, value in schema.items():
        key = _CAMEL.get(spelled, spelled)
        match key, value:
            case ("type", str() as name):
                if name.upper() != "TYPE_UNSPECIFIED":
                    decoded["type"] = [name.lower(), "null"] if nullable else name.lower()
            case ("properties", Mapping() as properties):
                decoded["properties"] = {
                    n: _decode(p, depth + 1) for n, p in properties.items() if isinstance(p, Mapping)
                }
            case ("items", Mapping() as items):
                decoded["items"] = _decode(items, depth + 1)
            case ("anyOf", list() as options):
                decoded["anyOf"] = [_decode(option, depth + 1) for option in options if isinstance(option, Mapping)]
                if nullable:
                    decoded["anyOf"].append({"type": "null"})
            case ("enum", list() as values):
                decoded["enum"] = [*values, None] if nullable else values
            case ("example", example):
                decoded["examples"] = [example]
            case ("format", "enum") | ("propertyOrdering" | "nullable", _) | (_, None):
                pass
            case (_, str() as count) if key in _COUNTS and count.isascii() and count.isdigit() and len(count) < 20:
                decoded[key] = int(count)
            case _:
                decoded[key] = value
    return decoded

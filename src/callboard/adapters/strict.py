"""A schema as OpenAI's strict mode takes it.

Owns that subset of JSON Schema: closed objects, every property required, few keywords. Knows nothing of calls.
What a schema asks beyond it is left out here and checked when the arguments come.
Source: OpenAI's guide to structured outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from callboard.schema.places import resolve

Schema: TypeAlias = Mapping[str, Any]

_KEPT: Final = ("type", "enum", "$ref", "description")
_NOT_SAID: Final = ("patternProperties", "prefixItems", "allOf")
"""Keywords without which the schema would be another shape."""
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_NULL: Final = {"type": "null"}
_DEFINED: Final = "#/$defs/"


class NotStrict(ValueError):
    """The schema takes what strict mode cannot say."""


def strict(schema: Schema, path: str = "") -> dict[str, Any]:
    """The schema in that subset: every property required, what was optional may be null.

    Raises NotStrict, naming the place, for an open object, a value that may be anything, and other shapes.
    """
    if not isinstance(schema, Mapping):
        raise NotStrict(f"{path or 'it'} may be anything")
    schema = _plain(schema)
    for keyword in _NOT_SAID:
        if schema.get(keyword):
            raise NotStrict(f"{path or 'it'} has {keyword}")
    made = {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
    kinds = made.get("type", ())
    if "object" in kinds:
        made |= _closed(schema, path)
    if "array" in kinds:
        made["items"] = strict(schema.get("items", True), f"{path}[]")
    if "anyOf" in schema:
        made["anyOf"] = [strict(part, path) for part in schema["anyOf"]]
    if "$defs" in schema:
        made["$defs"] = {name: strict(part, name) for name, part in schema["$defs"].items()}
    if "$ref" in made:
        if not made["$ref"].startswith(_DEFINED):
            raise NotStrict(f"{path or 'it'} refers to {made['$ref']}")
        if len(made) > 1:  # nothing may stand beside a reference
            made = {"anyOf": [{"$ref": made.pop("$ref")}], **made}
    if not made.keys() & {"type", "anyOf", "$ref"}:
        raise NotStrict(f"{path or 'it'} may be anything")
    return made


def without_nulls(arguments: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The arguments without the nulls that strict mode puts where an optional member is left out."""
    try:
        trimmed: dict[str, Any] = _trimmed(dict(arguments), [schema], schema)
    except RecursionError:  # the tool says so too
        return dict(arguments)
    return trimmed


def _plain(schema: Schema) -> Schema:
    """The same in fewer words: `allOf` of one, `oneOf`, `const`, and a type that goes without saying."""
    if len(schema.get("allOf", ())) == 1 and isinstance(schema["allOf"][0], Mapping):
        schema = {**schema["allOf"][0], **{key: held for key, held in schema.items() if key != "allOf"}}
    schema = dict(schema)
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema["oneOf"]
    if "const" in schema:
        schema["enum"] = [schema["const"]]
    if "type" not in schema:
        kinds = {_TYPES.get(type(value), "") for value in schema.get("enum", ())}
        if kinds and "" not in kinds:
            schema["type"] = kinds.pop() if len(kinds) == 1 else sorted(kinds)
        elif "properties" in schema:
            schema["type"] = "object"
    return schema


def _closed(schema: Schema, path: str) -> dict[str, Any]:
    others = schema.get("additionalProperties", "properties" not in schema)
    if others is not False:
        raise NotStrict(f"{path or 'it'} is an open object")
    required = schema.get("required", ())
    properties: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        said = strict(part, f"{path}.{name}" if path else name)
        properties[name] = said if name in required else _nullable(said)
    return {"properties": properties, "required": [*properties], "additionalProperties": False}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema and "type" not in schema:
        return schema if _NULL in schema["anyOf"] else {**schema, "anyOf": [*schema["anyOf"], _NULL]}
    if "$ref" in schema or "anyOf" in schema:
        return {"anyOf": [schema, _NULL]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "null" in kinds:
        return schema
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*kinds, "null"], **choices}


def _trimmed(value: Any, schemas: list[Schema], root: Schema) -> Any:
    if not isinstance(value, dict | list):
        return value
    here = [each for schema in schemas for each in _in_place(schema, root)]
    if isinstance(value, list):
        items = [each["items"] for each in here if "items" in each]
        return [_trimmed(item, items, root) for item in value]
    kept: dict[str, Any] = {}
    for name, held in value.items():
        parts = [each["properties"][name] for each in here if name in each.get("properties", ())]
        if held is None and parts and not any(name in each.get("required", ()) for each in here):
            continue
        kept[name] = _trimmed(held, parts, root)
    return kept


def _in_place(schema: Any, root: Schema) -> Iterator[Schema]:
    """The schemas that speak of the same value; those of a tool have no circle among them."""
    if isinstance(schema, Mapping):
        yield schema
        if "$ref" in schema:
            yield from _in_place(resolve(root, schema["$ref"]), root)
        for keyword in ("anyOf", "oneOf", "allOf"):
            for part in schema.get(keyword, ()):
                yield from _in_place(part, root)

"""Rewrite a schema into the subset that a provider's strict mode accepts.

The subsets have closed objects and few keywords; OpenAI requires every property. Constraints beyond the subset are
removed here and checked when the arguments arrive.

Law: a schema that is in the subset stays the same object.

Source: OpenAI's and Anthropic's guides to structured outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from callboard.schema.subschemas import Schema, inside, resolve

_KEPT: Final = ("type", "enum", "$ref", "description")
_NOT_SAID: Final = ("patternProperties", "prefixItems", "allOf")
"""Keywords that cannot be removed without changing the shape of the schema."""
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_REWRITTEN: Final = frozenset({"allOf", "const", "oneOf"})
_NULL: Final = {"type": "null"}
_DEFINED: Final = "#/$defs/"
_ADDITIONAL: Final = ("additionalProperties",)
_HOLDING: Final = frozenset({"$defs", "allOf", "anyOf", "definitions", "items", "properties"})
"""Keywords that contain schemas."""
_MALFORMED: Final = (AttributeError, LookupError, TypeError, RecursionError)
"""Errors while reading a schema that is invalid or too deep."""


class Subset(NamedTuple):
    """A provider's subset: its keywords, the `leading` keywords that every schema needs one of, the values of `format`,
    and whether a property may be left out.
    """

    keywords: frozenset[str]
    leading: frozenset[str]
    formats: frozenset[str]
    optional: bool


_LEADING: Final = frozenset({"$ref", "anyOf", "type"})
_COMMON: Final = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "format", "items",
        "pattern", "properties", "required", "title", "type",
    }
)  # fmt: skip
_BOUNDS: Final = frozenset(
    {
        "contains", "dependentRequired", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength",
        "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "pattern",
        "propertyNames", "uniqueItems",
    }
)  # fmt: skip
"""Keywords that limit a value without giving it a shape."""
_FORMATS: Final = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
OPENAI: Final = Subset(
    _COMMON | {"exclusiveMaximum", "exclusiveMinimum", "maxItems", "maximum", "minItems", "minimum", "multipleOf"},
    leading=_LEADING,
    formats=_FORMATS,
    optional=False,
)
ANTHROPIC: Final = Subset(
    _COMMON | {"allOf", "default"},
    leading=_LEADING | {"allOf", "const", "enum"},
    formats=_FORMATS | {"uri"},
    optional=True,
)


PLAIN: Final = Subset(frozenset(), frozenset(), frozenset(), optional=False)
"""The subset for an unknown provider: closed objects, no bounds, every property required."""


class NotStrict(ValueError):
    """Strict mode cannot express the schema."""


def strict_arguments(schema: Schema, subset: Subset) -> Schema:
    """Return the schema of an arguments object in the subset, or the same object if it is already in the subset.

    Raises NotStrict like `strict`, and if the schema is not a plain object.
    """
    if _fits(schema, subset):
        return schema
    made = strict(schema, subset)
    if made.get("type") != "object" or "anyOf" in made:
        raise NotStrict("it is more than an object")
    return made


def strict(schema: Schema, subset: Subset = PLAIN) -> dict[str, Any]:
    """Return the schema in the subset. Optional properties become required and nullable if the subset requires it.

    Bounds and patterns are removed, except those in the subset.

    Raises NotStrict with the place, if there is an open object, an unrestricted value, or another unsupported shape.
    """
    try:
        return _strict(schema, "", subset)
    except _MALFORMED:
        raise NotStrict("it is not a schema") from None


def _strict(schema: Schema, path: str, subset: Subset) -> dict[str, Any]:
    if type(schema) is not dict and not isinstance(schema, Mapping):
        raise NotStrict(f"{path or 'it'} may be anything")
    schema = _plain(schema)
    for keyword in _NOT_SAID:
        if schema.get(keyword):
            raise NotStrict(f"{path or 'it'} has {keyword}")
    made = {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
    made |= {keyword: schema[keyword] for keyword in _bounds(schema, subset)}
    kinds = made.get("type", ())
    if "object" in kinds:
        made |= _close(schema, path, subset)
    if "array" in kinds:
        made["items"] = _strict(schema.get("items", True), f"{path}[]", subset)
    if "anyOf" in schema:
        made["anyOf"] = [_strict(part, path, subset) for part in schema["anyOf"]]
    if "$defs" in schema:
        made["$defs"] = {name: _strict(part, name, subset) for name, part in schema["$defs"].items()}
    if "$ref" in made:
        if not made["$ref"].startswith(_DEFINED):
            raise NotStrict(f"{path or 'it'} refers to {made['$ref']}")
        if len(made) > 1:  # a reference must be alone
            made = {"anyOf": [{"$ref": made.pop("$ref")}], **made}
    if not made.keys() & {"type", "anyOf", "$ref"}:
        raise NotStrict(f"{path or 'it'} may be anything")
    return made


def _bounds(schema: Schema, subset: Subset) -> list[str]:
    """Return the keywords for bounds that the subset accepts. No subset accepts patterns with look-around."""
    return [
        keyword
        for keyword in _BOUNDS & subset.keywords & schema.keys()
        if (keyword != "format" or schema[keyword] in subset.formats)
        and (keyword != "pattern" or "(?" not in str(schema[keyword]))
    ]


def lost_bounds(schema: Schema, made: Schema) -> list[str]:
    """Return the keywords for bounds that occur in `schema` but nowhere in `made`."""
    try:
        return sorted(_bounding(schema) - _bounding(made))
    except _MALFORMED:
        return []


def _bounding(schema: Any) -> frozenset[str]:
    if not isinstance(schema, Mapping):
        return frozenset()
    return frozenset(schema.keys() & _BOUNDS).union(*[_bounding(part) for _, part in inside(schema)])


def without_nulls(arguments: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return the arguments without the nulls that strict mode adds for optional members."""
    try:
        trimmed: dict[str, Any] = _trim(dict(arguments), [schema], schema)
    except RecursionError:  # the tool reports it too
        return dict(arguments)
    return trimmed


def _fits(schema: Schema, subset: Subset) -> bool:
    try:
        return schema.get("type") == "object" and "anyOf" not in schema and _is_within(schema, subset)
    except _MALFORMED:
        return False


def _is_within(schema: Any, subset: Subset) -> bool:
    if type(schema) is not dict and not isinstance(schema, Mapping):
        return False
    keywords = schema.keys()
    if not keywords <= subset.keywords or keywords.isdisjoint(subset.leading):
        return False
    if "$ref" in schema and len(schema) > 1:
        return False
    if "format" in schema and schema["format"] not in subset.formats:
        return False
    kinds = schema.get("type", ())
    if "object" in kinds:
        named, required = schema.get("properties", {}).keys(), set(schema.get("required", ()))
        complete = required <= named if subset.optional else required == named
        if not complete or schema.get("additionalProperties") is not False:
            return False
    if "array" in kinds and "items" not in schema:
        return False
    if keywords.isdisjoint(_HOLDING):
        return True
    return all(_is_within(part, subset) for steps, part in inside(schema) if steps != _ADDITIONAL)


def _plain(schema: Schema) -> Schema:
    """Simplify the schema: `allOf` of one, `oneOf`, `const`, and an implied type."""
    if "type" in schema and _REWRITTEN.isdisjoint(schema):
        return schema
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


def _close(schema: Schema, path: str, subset: Subset) -> dict[str, Any]:
    others = schema.get("additionalProperties", "properties" not in schema)
    if others is not False:
        raise NotStrict(f"{path or 'it'} is an open object")
    required = schema.get("required", ())
    properties: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        member = _strict(part, f"{path}.{name}" if path else name, subset)
        properties[name] = member if subset.optional or name in required else _nullable(member)
    named = [name for name in properties if name in required] if subset.optional else [*properties]
    return {"properties": properties, "required": named, "additionalProperties": False}


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


def _trim(value: Any, schemas: list[Schema], root: Schema) -> Any:
    if not isinstance(value, dict | list):
        return value
    here = [each for schema in schemas for each in _in_place(schema, root)]
    if isinstance(value, list):
        items = [each["items"] for each in here if "items" in each]
        return [_trim(item, items, root) for item in value]
    trimmed: dict[str, Any] = {}
    for name, held in value.items():
        parts = [each["properties"][name] for each in here if name in each.get("properties", ())]
        if held is None and parts and not any(name in each.get("required", ()) for each in here):
            continue
        trimmed[name] = _trim(held, parts, root)
    return trimmed


def _in_place(schema: Any, root: Schema) -> Iterator[Schema]:
    """Yield the schemas for the same value. The schemas of a tool have no circle there."""
    if isinstance(schema, Mapping):
        yield schema
        if "$ref" in schema:
            yield from _in_place(resolve(root, schema["$ref"]), root)
        for keyword in ("anyOf", "oneOf", "allOf"):
            for part in schema.get(keyword, ()):
                yield from _in_place(part, root)

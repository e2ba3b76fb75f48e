"""JSON Schema to Google's `Schema`, and back.

`parameters` and `responseSchema` take a subset of OpenAPI: no references, unions of types, constants or conditions.
Law: both ways end, whatever the schema: a reference is written out where it is finite, and a schema has at most
LARGEST places and is DEEPEST deep.
Source: `Schema` of Google's Generative Language API, v1beta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

LARGEST = 4096
DEEPEST = 48

_KEPT = frozenset({
    "title", "description", "default", "pattern", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "maxProperties", "minimum", "maximum",
})  # fmt: skip
_FORMATS = {"STRING": ("date-time", "enum"), "NUMBER": ("float", "double"), "INTEGER": ("int32", "int64")}
_READ = frozenset(
    {
        "type", "enum", "const", "properties", "required", "items",
        "prefixItems", "anyOf", "oneOf", "allOf", "$ref", "format",
        "nullable", "exclusiveMinimum", "exclusiveMaximum",
    }
)  # fmt: skip
_MEANINGLESS = frozenset(
    {
        "$schema", "$id", "$defs", "definitions", "$comment", "$anchor",
        "examples", "example", "readOnly", "writeOnly", "deprecated", "propertyOrdering",
        "additionalProperties", "unevaluatedProperties", "contentEncoding", "contentMediaType", "strict",
    }
)  # fmt: skip
"""Keywords that are dropped silently: without them the schema accepts nothing more that a model would write. A schema
in additionalProperties is reported."""
_KNOWN = _READ | _MEANINGLESS
_COMPOSED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "enum", "const", "nullable"})
"""Keywords without which a schema of one type is what its other keywords say."""
_TYPES: Mapping[type, str] = {
    str: "STRING",
    bool: "BOOLEAN",
    int: "INTEGER",
    float: "NUMBER",
    dict: "OBJECT",
    list: "ARRAY",
}
_FLAT = _KEPT | {"type"}
_SIMPLE = {name.lower(): name for name in _TYPES.values()}
_ANYTHING: Mapping[str, Any] = {"type": "STRING"}


def encode_schema(schema: Mapping[str, Any], dropped: list[str]) -> dict[str, Any]:
    """The schema in Google's subset; `dropped` gets what it cannot say."""
    encoder = _SchemaEncoder(schema)
    encoded = encoder.encode(schema, ())
    dropped += [f"schema {name}" for name in sorted(encoder.unsupported)]
    return encoded


class _SchemaEncoder:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._places = 0
        self.unsupported: set[str] = set()

    def encode(self, schema: Any, within: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        """`within` are the references that are being written out."""
        self._places += 1
        if not _is_object(schema):
            return self._anything()
        if self._places > LARGEST or depth > DEEPEST:
            self.unsupported.add("too large")
            return {"type": "OBJECT"}
        encoded: dict[str, Any] = {}
        if type(only := schema.get("type")) is str and only in _SIMPLE:  # the usual schemas, quickly
            if only != "array" and _FLAT.issuperset(schema) and None not in schema.values():
                return {**schema, "type": _SIMPLE[only]}
            if _COMPOSED.isdisjoint(schema):
                encoded["type"] = _SIMPLE[only]
                self._keywords(schema, encoded, within, depth)
                return encoded
        schema, within = self._expand(schema, within)
        if schema is None:
            return {"type": "OBJECT"}
        types, nullable = self._types(schema)
        values = [value for value in self._values(schema) if value is not None]
        branches = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
        options = [option for option in branches if not _is_null(option)]
        nullable = nullable or len(options) < len(branches) or None in self._values(schema)
        if values:
            self._enumerate(values, types, encoded)
        elif len(types) > 1:
            options = [
                *options,
                *({**schema, "type": type_, "anyOf": None, "oneOf": None, "nullable": None} for type_ in types),
            ]
            encoded = {key: schema[key] for key in ("title", "description", "default") if key in schema}
        elif len(options) == 1 and not types:
            encoded = self.encode(options[0], within, depth + 1)
        elif types:
            encoded["type"] = types[0]
        if len(options) > 1 or (options and types):
            encoded["anyOf"] = [self.encode(option, within, depth + 1) for option in options]
        if len(types) < 2:
            self._keywords(schema, encoded, within, depth)
        if "type" not in encoded and "anyOf" not in encoded:
            encoded = {**self._anything(), **encoded}
        if nullable:
            encoded["nullable"] = True
        return encoded

    def _expand(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """The schema without $ref and allOf; None where the reference leads to itself or nowhere."""
        for _ in range(DEEPEST):
            reference = schema.get("$ref")
            if isinstance(reference, str):
                if reference in within:
                    self.unsupported.add("recursion")
                    return None, within
                target = _resolve(self._root, reference)
                if target is None:
                    self.unsupported.add("$ref")
                    return None, within
                within = (*within, reference)
                schema = _merge([target, {key: value for key, value in schema.items() if key != "$ref"}])
                continue
            members = [member for member in _list(schema.get("allOf")) if isinstance(member, Mapping)]
            if not members:
                return schema, within
            rest = {key: value for key, value in schema.items() if key != "allOf"}
            # A member's reference is written out in the next turn; two of them cannot be one schema.
            schema = _merge([*members, rest])
            if sum("$ref" in member for member in members) > 1:
                self.unsupported.add("allOf")
        self.unsupported.add("too large")
        return None, within

    @staticmethod
    def _types(schema: Mapping[str, Any]) -> tuple[list[str], bool]:
        value = schema.get("type")
        names = [name.upper() for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)]
        types = [name for name in dict.fromkeys(names) if name != "NULL"]
        if not names:
            if isinstance(schema.get("properties"), Mapping):
                types = ["OBJECT"]
            elif isinstance(schema.get("items"), Mapping) or isinstance(schema.get("prefixItems"), list):
                types = ["ARRAY"]
        return types, "NULL" in names or schema.get("nullable") is True

    @staticmethod
    def _values(schema: Mapping[str, Any]) -> list[Any]:
        return [schema["const"]] if "const" in schema else _list(schema.get("enum"))

    def _enumerate(self, values: list[Any], types: list[str], encoded: dict[str, Any]) -> None:
        """Only strings can be enumerated; of others the type is left, and the bounds of whole numbers."""
        kinds = {_TYPES.get(type(value), "STRING") for value in values}
        encoded["type"] = types[0] if len(types) == 1 else kinds.pop() if len(kinds) == 1 else "STRING"
        if all(isinstance(value, str) for value in values):
            encoded["enum"] = [value for value in values if value]
            if len(encoded["enum"]) < len(values):  # an empty one is refused
                self.unsupported.add("enum")
                del encoded["enum"]
            return
        if all(type(value) is int for value in values):
            encoded |= {"minimum": min(values), "maximum": max(values)}
            if len(set(values)) == max(values) - min(values) + 1:
                return
        if set(map(type, values)) != {bool} or len(set(values)) == 1:
            self.unsupported.add("enum")

    def _keywords(
        self, schema: Mapping[str, Any], encoded: dict[str, Any], within: tuple[str, ...], depth: int
    ) -> None:
        for key, value in schema.items():
            if key in _KEPT:
                if value is not None:
                    encoded[key] = value
            elif key not in _KNOWN:
                self.unsupported.add(key)
        if (more := schema.get("additionalProperties")) and _is_object(more):
            self.unsupported.add("additionalProperties")
        type_ = encoded.get("type", "")
        if type_ == "OBJECT" and _is_object(properties := schema.get("properties")):
            encoded["properties"] = {name: self.encode(each, within, depth + 1) for name, each in properties.items()}
            required = [name for name in _list(schema.get("required")) if isinstance(name, str) and name in properties]
            if required:
                encoded["required"] = required
        elif type_ == "ARRAY":
            encoded["items"] = self._items(schema, within, depth)
        if (format_ := schema.get("format")) is not None:
            if format_ in _FORMATS.get(type_, ()):
                encoded["format"] = format_
            else:
                self.unsupported.add("format")
        for key, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            if key in schema and isinstance(limit := schema[key], int | float) and not isinstance(limit, bool):
                encoded[bound] = limit + step if type_ == "INTEGER" else limit
                if type_ != "INTEGER":
                    self.unsupported.add(key)

    def _items(self, schema: Mapping[str, Any], within: tuple[str, ...], depth: int) -> dict[str, Any]:
        places = schema.get("prefixItems") or schema.get("items")
        if not isinstance(places, list):
            return self.encode(places, within, depth + 1)
        self.unsupported.add("prefixItems")
        return self.encode({"anyOf": places}, within, depth + 1)

    def _anything(self) -> dict[str, Any]:
        self.unsupported.add("any type")
        return dict(_ANYTHING)


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


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return type(value) is dict or isinstance(value, Mapping)  # the first is three times as fast


def _is_null(option: Any) -> bool:
    return isinstance(option, Mapping) and option.get("type") in ("null", ["null"])


def _resolve(root: Mapping[str, Any], reference: str) -> Mapping[str, Any] | None:
    """What a reference into the same document leads to (RFC 6901)."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    place: Any = root
    for step in reference.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(key)
        elif isinstance(place, Sequence) and not isinstance(place, str) and key.isdigit() and len(key) < 6:
            place = place[int(key)] if int(key) < len(place) else None
        else:
            return None
    return place if isinstance(place, Mapping) else None


def _merge(members: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One schema for all of them: properties and requirements of each, of other keywords the last."""
    merged: dict[str, Any] = {}
    for member in members:
        for key, value in member.items():
            known = merged.get(key)
            if key == "properties" and isinstance(known, Mapping) and isinstance(value, Mapping):
                merged[key] = {**known, **value}
            elif key in {"required", "allOf"} and isinstance(known, list) and isinstance(value, list):
                merged[key] = [*known, *value]
            else:
                merged[key] = value
    return merged

"""Types of arguments from a tool's schema, for grammars without types.

Law: a text that may be a string is a string. A text that does not fit its schema stays a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from callboard.schema.subschemas import required_names

TEXT = frozenset({"string"})
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DEPTH = 8
_decode = msgspec.json.Decoder().decode
_TYPE_OF = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}


_ALIASES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "none": "null",
    "nonetype": "null",
}
"""Names of types that JSON Schema does not have: some hand-written declarations use Python's (BFCL does)."""


def types_of(schema: Mapping[str, Any], key: str) -> frozenset[str]:
    """Return the JSON types that an argument may have; the default is string."""
    return types_at(member_of(schema, key, schema), schema)


def types_at(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types of a schema that is part of the root schema; the default is string."""
    return frozenset(_types(schema, root, _DEPTH)) or TEXT


def member_of(schema: Any, key: str, root: Mapping[str, Any]) -> Any:
    """Return the schema of an object's member, or None."""
    others = None
    for each in _alternatives(schema, root, _DEPTH):
        properties = each.get("properties")
        value = properties.get(key) if isinstance(properties, Mapping) else None
        if isinstance(value, Mapping):
            return value
        others = others or each.get("additionalProperties")
    return others


def item_of(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema of a list's items, or None."""
    return next((each["items"] for each in _alternatives(schema, root, _DEPTH) if "items" in each), None)


def only_string(schema: Mapping[str, Any]) -> str:
    """Return the only argument of a tool if it is a string, otherwise ""."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    keys = required_names(schema) or list(properties)
    return keys[0] if len(keys) == 1 and "string" in types_of(schema, keys[0]) else ""


def accepts(schema: Mapping[str, Any], arguments: Mapping[str, Any] | None) -> bool:
    """Whether a tool with that schema accepts exactly these arguments, judging by their keys."""
    if arguments is None:
        return False
    keys = keys_of(schema)
    return set(arguments) <= set(keys) and set(required_names(schema)) <= set(arguments)


def keys_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the arguments in their positional order: required ones first."""
    properties = schema.get("properties")
    declared = list(properties) if isinstance(properties, Mapping) else []
    required = required_names(schema)
    return [*required, *(key for key in declared if key not in required)]


def coerce(text: str, types: frozenset[str]) -> str | None:
    """Return the JSON of a text with one of these types, which are not string; None if it has none of them."""
    stripped = text.strip()
    for name, read in _LADDER.items():
        if name in types and (value := read(stripped)) is not None:
            return value
    return None


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or not depth:
        return
    kind = schema.get("type")
    if isinstance(kind, str):
        yield type_named(kind)
    elif isinstance(kind, (list, tuple)):
        yield from (type_named(each) for each in kind if isinstance(each, str))
    else:
        if "const" in schema:
            yield _TYPE_OF.get(type(schema["const"]), "string")
        if isinstance(schema.get("enum"), (list, tuple)):
            yield from (_TYPE_OF.get(type(each), "string") for each in schema["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            variants = schema.get(keyword)
            if isinstance(variants, (list, tuple)):
                for variant in variants:
                    yield from _types(variant, root, depth - 1)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            yield from _types(_at(root, reference), root, depth - 1)
        if "properties" in schema:
            yield "object"
        if "items" in schema:
            yield "array"


def type_named(name: str) -> str:
    """Return the JSON type with that name, which may be Python's; the default is string."""
    lower = name.lower()
    return _ALIASES.get(lower, lower if lower in _LADDER else "string")


def _alternatives(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the schema and the schemas that it combines."""
    if not isinstance(schema, Mapping) or not depth:
        return
    yield schema
    for keyword in ("anyOf", "oneOf", "allOf"):
        variants = schema.get(keyword)
        if isinstance(variants, (list, tuple)):
            for variant in variants:
                yield from _alternatives(variant, root, depth - 1)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        yield from _alternatives(_at(root, reference), root, depth - 1)


def _at(root: Mapping[str, Any], reference: str) -> Any:
    value: Any = root
    for step in reference[2:].split("/"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(step.replace("~1", "/").replace("~0", "~"))
    return value


def _integer(text: str) -> str | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    return f"-{digits}" if text.startswith("-") and digits != "0" else digits


def _number(text: str) -> str | None:
    if _NUMBER.fullmatch(text):
        return text
    if len(text) > 400:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return repr(value) if value - value == 0 else None


def _of(kind: type, bracket: str) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        from callboard.dialects.grammars.python_literals import json_of  # noqa: PLC0415  # it reads arguments of these types

        try:
            return text if isinstance(_decode(text), kind) else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            if '\\"' in text and (escaped := _unescape(text)) is not None:
                return read(escaped)
            value = json_of(text)
            return value if value is not None and value[0] == bracket else None

    return read


def _unescape(text: str) -> str | None:
    """Return the meaning of a text with JSON's escapes but without quotes."""
    try:
        value = _decode(f'"{text}"')
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, str) and value != text else None


_LADDER: Mapping[str, Callable[[str], str | None]] = {
    "null": lambda text: "null" if text in {"null", "None"} else None,
    "integer": _integer,
    "number": _number,
    "boolean": lambda text: text.lower() if text.lower() in {"true", "false"} else None,
    "object": _of(dict, "{"),
    "array": _of(list, "["),
}

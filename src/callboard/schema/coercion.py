"""Coerce a value before its validation, by one policy for every source.

1. A default of the schema is filled in if its object is present.
2. A string that exactly spells a number, boolean, null, object or array becomes one if the schema allows only that. If
   the schema allows a string, it stays a string.
3. A float without a fraction becomes an integer if only integers are allowed.
4. A null for an optional member that may not be null counts as absent: models with strict schemas write it so.

Mistakes are not reported here: a value that cannot be coerced stays unchanged.

Law: the input never changes, and a value that needs no change is returned as the same object.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from callboard.schema.errors import NO_JSON, NO_OBJECT, TOO_DEEP, ArgumentsInvalid
from callboard.schema.subschemas import Schema, resolve

_TYPES: dict[str, frozenset[str]] = {
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "number"}),
    "boolean": frozenset({"boolean"}),
    "null": frozenset({"null"}),
    "object": frozenset({"object"}),
    "array": frozenset({"array"}),
}
_ANY = frozenset(_TYPES)
_NONE: frozenset[str] = frozenset()
_PYTHON: dict[str, type] = {
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}


def compile_coercion(schema: Schema, *, fill: bool = True) -> Coercion:
    """Return the coercions of `schema` as a function of a JSON value. `fill` adds the defaults of absent members.

    The schema must not have circular references. Under `anyOf` and `oneOf`, the inside of an object or array is coerced
    only if exactly one branch, besides nulls, allows an object or array. `patternProperties` and conditional parts are
    not coerced. Linear in the size of the value, times the schemas for one value.
    """
    return _Compiler(schema, fill=fill).compile()


class Coercion:
    """The coercion for one place in a schema: a function of the value.

    `types` are the JSON types that the schema allows there. `number` means numbers with a fraction.
    """

    __slots__ = (
        "absent_as_null", "additional", "arrays", "declared", "defaults", "items", "objects", "prefix", "properties",
        "readable", "types", "whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self.types = _ANY
        self.readable: frozenset[type] = frozenset()
        self.whole = False
        self.objects: list[Coercion] = []
        self.arrays: list[Coercion] = []
        self.properties: list[tuple[str, Coercion]] = []
        self.declared: frozenset[str] = frozenset()
        self.defaults: dict[str, Any] = {}
        self.absent_as_null: frozenset[str] = frozenset()
        self.additional: Coercion | None = None
        self.prefix: list[Coercion] = []
        self.items: Coercion | None = None

    def __call__(self, value: Any, /) -> Any:
        kind = type(value)
        if kind is str and self.readable:
            value = _read(value, self.readable)
            kind = type(value)
        if kind is dict:
            # This comes last and is never looked into: a default that contains its own schema would be filled forever.
            return self._fill(self._members(value))
        if kind is list:
            return self._elements(value)
        if kind is float and self.whole and value.is_integer():
            return int(value)
        return value

    def busy(self) -> bool:
        """Return whether the coercion can change any value."""
        return bool(
            self.readable or self.whole or self.properties or self.defaults or self.absent_as_null or self.additional
        ) or bool(self.prefix or self.items or self.objects or self.arrays)

    def prune(self) -> None:
        """Remove the inner places without any coercion."""
        self.objects = [place for place in self.objects if place.busy()]
        self.arrays = [place for place in self.arrays if place.busy()]
        self.properties = [(name, place) for name, place in self.properties if place.busy()]
        if self.additional is not None and not self.additional.busy():
            self.additional = None
        if self.items is not None and not self.items.busy():
            self.items = None
        if self.items is None and not any(place.busy() for place in self.prefix):
            self.prefix = []

    def _members(self, value: dict[str, Any]) -> dict[str, Any]:
        if self.absent_as_null and None in value.values():
            present = {
                name: held for name, held in value.items() if held is not None or name not in self.absent_as_null
            }
            value = present if len(present) < len(value) else value
        changed: dict[str, Any] = {}
        for name, place in self.properties:
            if name in value:
                member = value[name]
                coerced = place(member)
                if coerced is not member:
                    changed[name] = coerced
        if self.additional is not None:
            for name, member in value.items():
                if name not in self.declared:
                    coerced = self.additional(member)
                    if coerced is not member:
                        changed[name] = coerced
        if changed:
            value = {**value, **changed}
        for place in self.objects:
            value = place._members(value)  # noqa: SLF001 - of this class
        return value

    def _fill(self, value: dict[str, Any]) -> dict[str, Any]:
        absent = {name: copy.deepcopy(default) for name, default in self.defaults.items() if name not in value}
        if absent:
            value = {**value, **absent}
        for place in self.objects:
            value = place._fill(value)  # noqa: SLF001 - of this class
        return value

    def _elements(self, value: list[Any]) -> list[Any]:
        if self.prefix or self.items is not None:
            coerced = [place(item) for place, item in zip(self.prefix, value, strict=False)]
            rest = value[len(coerced) :]
            coerced += rest if self.items is None else map(self.items, rest)
            value = value if all(map(operator.is_, coerced, value)) else coerced
        for place in self.arrays:
            value = place._elements(value)  # noqa: SLF001 - of this class
        return value


class _Compiler:
    """Places are created once per schema and filled one after another, so that chains of references may be long."""

    def __init__(self, root: Schema, *, fill: bool) -> None:
        self._root = root
        self._fill = fill
        self._types: dict[int, frozenset[str]] = {}
        self._places: dict[int, Coercion] = {}
        self._todo: list[tuple[Any, Coercion]] = []

    def compile(self) -> Coercion:
        root = self._place(self._root)
        made: list[Coercion] = []
        while self._todo:
            schema, place = self._todo.pop()
            self._fill_in(schema, place)
            made.append(place)
        for place in reversed(made):
            place.prune()
        return root

    def _place(self, schema: Any) -> Coercion:
        known = self._places.get(id(schema))
        if known is None:
            known = self._places[id(schema)] = Coercion()
            self._todo.append((schema, known))
        return known

    def _fill_in(self, schema: Any, place: Coercion) -> None:
        types = place.types = self._allowed_values(schema)
        if "string" not in types:
            place.readable = frozenset(_PYTHON[name] for name in types)
        place.whole = "integer" in types and "number" not in types
        if isinstance(schema, Mapping):
            place.objects = list(self._also(schema, "object"))
            place.arrays = list(self._also(schema, "array"))
            place.absent_as_null = self._absent_as_null([schema]).union(
                *map(self._absent_as_null, self._unions(schema))
            )
            self._members(place, schema)
            self._elements(place, schema)

    def _allowed_values(self, schema: Any) -> frozenset[str]:
        if not isinstance(schema, Mapping):
            return _NONE if schema is False else _ANY
        if id(schema) not in self._types:
            self._types[id(schema)] = _ANY
            self._types[id(schema)] = _ANY.intersection(*self._limits(schema))
        return self._types[id(schema)]

    def _limits(self, schema: Schema) -> Iterator[frozenset[str]]:
        if "type" in schema:
            named = schema["type"]
            yield _union(_TYPES[name] for name in (named if isinstance(named, list) else [named]))
        if "enum" in schema:
            yield _union(map(_type_of, schema["enum"]))
        if "const" in schema:
            yield _type_of(schema["const"])
        if "$ref" in schema:
            yield self._allowed_values(resolve(self._root, schema["$ref"]))
        for part in schema.get("allOf", ()):
            yield self._allowed_values(part)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield _union(map(self._allowed_values, schema[keyword]))

    def _also(self, schema: Schema, kind: str) -> Iterator[Coercion]:
        """Yield the other places for the same object or array."""
        if "$ref" in schema:
            yield self._place(resolve(self._root, schema["$ref"]))
        for part in schema.get("allOf", ()):
            yield self._place(part)
        for keyword in ("anyOf", "oneOf"):
            branches = [part for part in schema.get(keyword, ()) if kind in self._allowed_values(part)]
            if len(branches) == 1:
                yield self._place(branches[0])

    def _members(self, place: Coercion, schema: Schema) -> None:
        for name, part in schema.get("properties", {}).items():
            place.properties.append((name, self._place(part)))
            if self._fill and isinstance(part, Mapping) and "default" in part:
                place.defaults[name] = part["default"]
        place.declared = frozenset(name for name, _ in place.properties)
        if not place.objects and "patternProperties" not in schema and "additionalProperties" in schema:
            place.additional = self._place(schema["additionalProperties"])

    def _absent_as_null(self, branches: Iterable[Schema]) -> frozenset[str]:
        """Return the members that are optional and not nullable in each of the branches that have them."""
        absent: set[str] = set()
        others: set[str] = set()
        for branch in branches:
            required = branch.get("required", ())
            for name, part in branch.get("properties", {}).items():
                (others if name in required or "null" in self._allowed_values(part) else absent).add(name)
        return frozenset(absent - others)

    def _unions(self, schema: Schema) -> Iterator[list[Schema]]:
        """Yield alternatives of objects if more than one is possible and each declares its members."""
        for keyword in ("anyOf", "oneOf"):
            branches = [part for part in schema.get(keyword, ()) if "object" in self._allowed_values(part)]
            for at, branch in enumerate(branches):
                while isinstance(branch, Mapping) and "$ref" in branch:
                    branch = branches[at] = resolve(self._root, branch["$ref"])  # noqa: PLW2901  # its target
            if len(branches) > 1 and all(isinstance(branch, Mapping) and "properties" in branch for branch in branches):
                yield branches

    def _elements(self, place: Coercion, schema: Schema) -> None:
        prefix, items = schema.get("prefixItems", []), schema.get("items")
        if isinstance(items, list):  # before 2020-12
            prefix, items = items, schema.get("additionalItems")
        place.prefix = [self._place(part) for part in prefix]
        place.items = None if items is None else self._place(items)


def _read(text: str, readable: frozenset[type]) -> Any:
    if not text or text[0] not in '-0123456789tfn{["' or text[-1].isspace():
        return text
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    kind = type(value)
    if kind in readable or (kind is int and float in readable):
        return value
    if kind is float and int in readable and value.is_integer():
        return int(value)
    return text


def _type_of(value: Any) -> frozenset[str]:
    if isinstance(value, float):
        return frozenset({"integer"}) if value.is_integer() else frozenset({"number"})
    for name, python in _PYTHON.items():
        if type(value) is python:
            return frozenset({name})
    return frozenset({"string"})


def _union(several: Iterable[frozenset[str]]) -> frozenset[str]:
    return _NONE.union(*several)


def as_object(arguments: Any) -> dict[str, Any]:
    """Return the arguments as a dict. Raises ArgumentsInvalid if they are not a mapping."""
    if type(arguments) is dict:
        return arguments
    if isinstance(arguments, Mapping):
        return dict(arguments)
    raise ArgumentsInvalid([((), NO_OBJECT)])


def coerce_arguments(coerce: Callable[[Any], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the coerced arguments. Raises ArgumentsInvalid if they are nested too deeply."""
    try:
        changed: dict[str, Any] = coerce(arguments)
    except RecursionError:
        raise ArgumentsInvalid([((), TOO_DEEP)]) from None
    return changed


def encode(arguments: dict[str, Any]) -> bytes:
    """Return the arguments as JSON. Raises ArgumentsInvalid if they are not JSON."""
    try:
        return _encoder.encode(arguments)
    except RecursionError:
        raise ArgumentsInvalid([((), TOO_DEEP)]) from None
    except (TypeError, ValueError):  # a lone surrogate is a ValueError
        raise ArgumentsInvalid([((), NO_JSON)]) from None


def as_plain_json(value: Any) -> Any:
    """Return a JSON value for a value that msgspec does not know: any mapping is an object."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=as_plain_json)

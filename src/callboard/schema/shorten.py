"""Shorten a tool's schema for the prompt of a model; arguments are validated by the schema as it is.

What goes: `$schema`, titles and other keywords that tell a model nothing, `additionalProperties: false`, the null of a
value that may be left out, references (what they refer to stands in their place), and what a description says after
its first sentences. A schema that is still too long loses more, step by step: descriptions, choices, levels, and
properties at last, those that are required last of all.

Laws: no reference is left; the result, as JSON, has at most as many characters as asked for; whatever the schema is,
nothing is raised; a shortened schema stays as it is; the cost is linear, because so many parts and no more are looked
at, however often one part refers to others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from callboard.schema.subschemas import Schema, resolve

CHARACTERS: Final = 16_000
"""Of one schema as JSON, unless it is said otherwise: some 4,000 tokens."""
_MOST_PARTS: Final = 4000
"""Schemas within one schema that are looked at; what comes later may be anything."""
_MOST_LINKS: Final = 16
"""References that lead to references."""
_DEPTH: Final = 60
"""Of schemas in schemas, whatever keyword holds them."""
_COST: Final = 8
"""Keywords, names and the like that cost as much as a schema."""
_MOST_VALUE: Final = 300
"""Characters of a default, a constant, an example or a pattern."""
_COMBINING: Final = ("anyOf", "oneOf")
_BOUNDS: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "minProperties", "maxProperties", "uniqueItems", "format", "pattern", "examples",
)  # fmt: skip
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s)|\n\s*\n|[。！？]")  # noqa: RUF001  # they end sentences, too
_NULL: Final = "null"


class _Room(msgspec.Struct, frozen=True):
    """How much is said: characters of a description, values of an enum, levels of objects and lists."""

    description: int
    choices: int
    levels: int


_ROOMS: Final = (_Room(1000, 200, 8), _Room(300, 60, 5), _Room(100, 20, 3), _Room(0, 8, 1))


def shorten_schema(schema: Any, characters: int = CHARACTERS) -> dict[str, Any]:
    """The schema in at most so many characters of JSON."""
    short: dict[str, Any] = {}
    for room in _ROOMS:
        short = _Shortener(schema, room).shorten()
        if _count(short) <= characters:
            return short
    return _drop_properties(short, characters)


def cut_at_sentence(text: str, most: int) -> str:
    """The text's first sentences, as many as fit; where they say too little (`E.g.`), its beginning with `...`."""
    text = text.strip()
    if len(text) <= most:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, most + 1) if most // 3 <= match.end() <= most]
    if ends:
        return text[: ends[-1]].rstrip()
    head = text[: max(0, most - 3)].rsplit(None, 1)[0] if most > len("...") else ""
    return f"{head}..." if head else ""


class _Shortener:
    def __init__(self, root: Any, room: _Room) -> None:
        self._root: Schema = root if isinstance(root, Mapping) else {}
        self._room = room
        self._parts = _MOST_PARTS
        self._depth = 0

    def shorten(self) -> dict[str, Any]:
        short = self._part(self._root, self._room.levels, frozenset())
        return {"type": "object", **short} if "properties" in short else short

    def _part(self, part: Any, levels: int, above: frozenset[str], *, optional: bool = False) -> dict[str, Any]:
        """One schema. `above` are the references that it stands in, `optional` says that it may be left out."""
        if not isinstance(part, Mapping) or not self._enter(part):
            return {}
        part, above = self._merge(part, above)
        if optional and part.get("default", 0) is None:
            part = {keyword: value for keyword, value in part.items() if keyword != "default"}
        short = self._describe(part)
        short |= self._combine(part, levels, above, optional=optional)
        if levels > 0:
            short |= self._hold(part, levels - 1, above)
        self._depth -= 1
        return short

    def _enter(self, part: Schema) -> bool:
        """Whether one more schema may be looked into; it is to be left again."""
        required = part.get("required")
        self._parts -= 1 + (len(part) + (len(required) if isinstance(required, list) else 0)) // _COST
        if self._parts < 0 or self._depth > _DEPTH:
            return False
        self._depth += 1
        return True

    def _merge(self, part: Schema, above: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """The schema with what it refers to, and all that `allOf` says, as one."""
        for _ in range(_MOST_LINKS):
            reference = part.get("$ref")
            if not isinstance(reference, str):
                break
            beside = {keyword: value for keyword, value in part.items() if keyword != "$ref"}
            target = self._resolve(reference)
            if reference in above:  # it stands in itself: its type is all that is said
                target = {keyword: target[keyword] for keyword in ("type", "description") if keyword in target}
            above |= {reference}
            self._parts -= len(target) // _COST
            part = {**target, **beside}
        parts = part.get("allOf")
        if not isinstance(parts, list) or not parts:
            return part, above
        merged: dict[str, Any] = {}
        for each in [*parts, {keyword: value for keyword, value in part.items() if keyword != "allOf"}]:
            if isinstance(each, Mapping) and self._enter(each):
                other, above = self._merge(each, above)
                _add(merged, other)
                self._depth -= 1
        return merged, above

    def _resolve(self, reference: str) -> Schema:
        try:
            target = resolve(self._root, reference)
        except (LookupError, ValueError):
            return {}
        return target if isinstance(target, Mapping) else {}

    def _describe(self, part: Schema) -> dict[str, Any]:
        """What the schema says of its value itself."""
        short: dict[str, Any] = {}
        types = part.get("type")
        if isinstance(types, str) or (
            isinstance(types, list) and types and all(isinstance(each, str) for each in types)
        ):
            short["type"] = types
        description = part.get("description")
        words = cut_at_sentence(description, self._room.description) if isinstance(description, str) else ""
        choices = part.get("enum")
        if isinstance(choices, list) and choices:
            short["enum"] = [each for each in choices[: self._room.choices] if _is_short(each)]
            if len(short["enum"]) < len(choices):
                more = f"Other values are allowed: {len(choices) - len(short['enum'])}."
                words = " ".join([each for each in (words, more) if each])
            if not short["enum"]:
                del short["enum"]
        if words:
            short["description"] = words
        if "const" in part and _is_short(part["const"]):
            short["const"] = part["const"]
        if "default" in part and _is_short(part["default"]):
            short["default"] = part["default"]
        return short | {keyword: part[keyword] for keyword in _BOUNDS if keyword in part and _is_short(part[keyword])}

    def _combine(self, part: Schema, levels: int, above: frozenset[str], *, optional: bool) -> dict[str, Any]:
        """What the value is one of; the null of a value that may be left out goes, since leaving it out says the same."""
        for keyword in _COMBINING:
            variants = part.get(keyword)
            if not isinstance(variants, list) or not variants:
                continue
            short = [self._part(each, levels, above) for each in variants[: self._room.choices]]
            values = [each for each in short if each.get("type") != _NULL]
            if len(values) != 1 or len(short) == 1:
                return {keyword: values if optional and values else short}
            nullable = {} if optional else _allow_null(values[0])
            if optional or nullable:
                return {**values[0], **nullable, **_without_type(self._describe(part))}
            return {keyword: short}
        return {"type": _without_null(types)} if optional and isinstance(types := part.get("type"), list) else {}

    def _hold(self, part: Schema, levels: int, above: frozenset[str]) -> dict[str, Any]:
        """What the value holds, if it is an object or a list."""
        short: dict[str, Any] = {}
        properties, required = part.get("properties"), part.get("required")
        names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        if isinstance(properties, Mapping):
            short["properties"] = {
                name: self._part(each, levels, above, optional=name not in names)
                for name, each in properties.items()
                if isinstance(name, str)
            }
            if held := [name for name in short["properties"] if name in names]:
                short["required"] = held
        for keyword in ("items", "additionalProperties"):
            if isinstance(part.get(keyword), Mapping):
                short[keyword] = self._part(part[keyword], levels, above)
        if isinstance(part.get("prefixItems"), list):
            short["prefixItems"] = [self._part(each, levels, above) for each in part["prefixItems"]]
        return short


def _add(merged: dict[str, Any], other: Schema) -> None:
    """Adds another schema that holds as well. What `merged` holds is its own, so that many parts cost no copies."""
    for keyword, value in other.items():
        if keyword == "properties" and isinstance(value, Mapping):
            merged[keyword] = merged[keyword] if isinstance(merged.get(keyword), dict) else {}
            merged[keyword].update(value)
        elif keyword == "required" and isinstance(value, list):
            merged[keyword] = merged[keyword] if isinstance(merged.get(keyword), list) else []
            merged[keyword].extend(value)
        else:
            merged[keyword] = value


def _allow_null(schema: Schema) -> dict[str, Any]:
    """The type of a value that may be null as well; nothing where the schema does not say one."""
    types = schema.get("type")
    if types is None or "enum" in schema or "const" in schema:
        return {}
    return {"type": [*([types] if isinstance(types, str) else types), _NULL]}


def _without_null(types: list[Any]) -> Any:
    others = [each for each in types if each != _NULL]
    return others[0] if len(others) == 1 else others or types


def _without_type(schema: dict[str, Any]) -> dict[str, Any]:
    return {keyword: value for keyword, value in schema.items() if keyword != "type"}


def _is_short(value: Any) -> bool:
    """Whether the value's JSON has few characters; a long one is not read to its end."""
    room, todo = _MOST_VALUE, [value]
    while todo and room >= 0:
        each = todo.pop()
        if isinstance(each, Mapping):
            room -= 2 + 4 * len(each)
            todo += [] if room < 0 else [part for item in each.items() for part in item]
        elif isinstance(each, (list, tuple)):
            room -= 2 + 2 * len(each)
            todo += [] if room < 0 else each
        elif not isinstance(each, str):
            room -= len(repr(each))
        elif (room := room - len(each)) >= 0:
            room -= _count(each) - len(each)
    return room >= 0


def _count(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=repr))


def _drop_properties(schema: dict[str, Any], characters: int) -> dict[str, Any]:
    """The schema with as many of its properties as fit, the required ones first, in their own order."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    rank: Callable[[str], bool] = frozenset(required).__contains__
    room = characters - len('{"type": "object", "properties": {}, "required": []}')
    fitting: set[str] = set()
    for name in sorted(properties, key=rank, reverse=True):
        cost = _count({name: properties[name]}) + (_count(name) + 2 if rank(name) else 0)
        if cost > room:
            break
        fitting.add(name)
        room -= cost
    short: dict[str, Any] = {
        "type": "object",
        "properties": {name: properties[name] for name in properties if name in fitting},
    }
    if names := [name for name in required if name in fitting]:
        short["required"] = names
    return short

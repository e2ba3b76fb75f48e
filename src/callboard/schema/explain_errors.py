"""Explain why a value does not fit a schema, after a validator has refused it.

jsonschema_rs's own list of errors is not used: below nested `anyOf` it grows exponentially (18 s for one wrong leaf ten
levels down in a recursive union of four). For a union, only the branch that is most similar to the value is explained.
Formats are annotations.

Law: the work is limited, whatever the schema and the value are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from callboard.schema import errors as words
from callboard.schema.errors import Path
from callboard.schema.regex import matches
from callboard.schema.subschemas import Schema, resolve

STEPS: Final = 50_000
"""Maximum comparisons of a schema with a value; each takes a few hundred nanoseconds."""

Found: TypeAlias = Iterator[tuple[Path, str]]

_ALL_LEVELS: Final = 1 << 20
_GLANCE: Final = 2
"""Levels to compare branches: the value and its members, but not their contents."""


def explain(schema: Schema, value: Any, *, at: Schema | None = None) -> list[tuple[Path, str]]:
    """Return the mistakes of a JSON value under this schema, in the order of the declared properties.

    `at` is the part of the schema for the value, by default all of it. Unexplained keywords give no mistakes.
    """
    search = _Search(schema)
    mistakes: dict[tuple[Path, str], None] = {}
    try:
        for mistake in search.walk(schema if at is None else at, value, (), _ALL_LEVELS):
            mistakes[mistake] = None
    except _Enough:
        pass
    except RecursionError:
        mistakes[(), words.TOO_DEEP] = None
    return list(mistakes)


class _Enough(Exception):
    """The maximum number of steps is reached."""


class _Search:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = STEPS
        self._hints = words.LISTED

    def walk(self, schema: Any, value: Any, path: Path, levels: int) -> Found:
        """Return the mistakes at this place and so many levels below it."""
        self._steps -= 1
        if self._steps < 0:
            raise _Enough
        if not isinstance(schema, Mapping):
            if schema is False:
                yield path, words.FORBIDDEN
            return
        if "$ref" in schema:
            yield from self.walk(resolve(self._root, schema["$ref"]), value, path, levels)
        if (wrong := _wrong_here(schema, value)) is not None:
            yield path, wrong
            return
        yield from _beyond_limits(schema, value, path)
        yield from self._search_combined(schema, value, path, levels)
        if isinstance(value, dict):
            yield from self._members(schema, value, path, levels - 1)
        elif isinstance(value, list):
            yield from self._elements(schema, value, path, levels - 1)

    def _search_combined(self, schema: Schema, value: Any, path: Path, levels: int) -> Found:
        for part in schema.get("allOf", ()):
            yield from self.walk(part, value, path, levels)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield from self._union(schema[keyword], value, path, levels, only=keyword == "oneOf")
        if "if" in schema:
            then = schema.get("then" if self._fits(schema["if"], value) else "else", True)
            yield from self.walk(then, value, path, levels)
        if "not" in schema and self._fits(schema["not"], value):
            yield path, words.FORBIDDEN

    def _union(self, parts: list[Any], value: Any, path: Path, levels: int, *, only: bool) -> Found:
        first = [list(islice(self.walk(part, value, path, min(levels, _GLANCE)), words.LISTED)) for part in parts]
        likely = [part for part, wrong in zip(parts, first, strict=True) if not wrong]
        if likely:
            if levels > _GLANCE:
                tried = [list(self.walk(part, value, path, levels)) for part in likely]
                right = sum(not wrong for wrong in tried)
                if not right:
                    yield from min(tried, key=len)
                elif only and right > 1:
                    yield path, words.AMBIGUOUS
            return
        entered = [
            (part, wrong) for part, wrong in zip(parts, first, strict=True) if any(at != path for at, _ in wrong)
        ]
        if entered:
            part, _ = min(entered, key=lambda pair: (self._contradictions(pair[0], value), len(pair[1])))
            yield from self.walk(part, value, path, levels)
        else:
            yield path, words.join_alternatives(message for wrong in first for _, message in wrong)

    def _contradictions(self, part: Any, value: Any) -> int:
        """Return how many members show that the value belongs to another branch."""
        seen = 0
        while isinstance(part, Mapping) and "$ref" in part and (seen := seen + 1) < 64:
            part = resolve(self._root, part["$ref"])
        if not isinstance(part, Mapping) or not isinstance(value, dict):
            return 0
        declared = part.get("properties", {})
        return sum(
            isinstance(under, Mapping)
            and ("const" in under or "enum" in under)
            and _wrong_here(under, value[name]) is not None
            for name, under in declared.items()
            if name in value
        )

    def _members(self, schema: Schema, value: dict[str, Any], path: Path, levels: int) -> Found:
        declared = schema.get("properties", {})
        required = dict.fromkeys(schema.get("required", ()))
        for name in {**declared, **required}:
            if name not in value:
                if name in required:
                    yield (*path, name), words.MISSING
            elif levels and name in declared:
                yield from self.walk(declared[name], value[name], (*path, name), levels)
        for name, needed in schema.get("dependentRequired", {}).items():
            if name in value:
                yield from (((*path, other), words.MISSING) for other in needed if other not in value)
        for name, under in schema.get("dependentSchemas", {}).items():
            if name in value:
                yield from self.walk(under, value, path, levels + 1)
        if not schema.keys().isdisjoint(_UNDECLARED):
            yield from self._search_undeclared(schema, value, path, levels)

    def _search_undeclared(self, schema: Schema, value: dict[str, Any], path: Path, levels: int) -> Found:
        declared = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        additional = schema.get("additionalProperties", True)
        spoken = self._spoken_of(schema) if schema.get("unevaluatedProperties") is False else None
        for name, member in value.items():
            if "propertyNames" in schema:
                wrong = islice(self.walk(schema["propertyNames"], name, (), levels + 1), 1)
                yield from (((*path, name), f"Name is not permitted: {message}") for _, message in wrong)
            matching = [under for pattern, under in patterns.items() if matches(pattern, name)]
            for under in matching if levels else ():
                yield from self.walk(under, member, (*path, name), levels)
            if name in declared or matching:
                continue
            if additional is False or (spoken is not None and name not in spoken):
                self._hints -= 1
                hinted = words.unexpected_member(name, spoken or declared) if self._hints >= 0 else words.EXTRA
                yield (*path, name), hinted
            elif levels:
                yield from self.walk(additional, member, (*path, name), levels)

    def _elements(self, schema: Schema, value: list[Any], path: Path, levels: int) -> Found:
        prefix, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):  # before 2020-12
            prefix, rest = rest, schema.get("additionalItems", True)
        if schema.get("uniqueItems") is True and len(set(map(msgspec.json.encode, value))) < len(value):
            yield path, words.REPEATED
        if "contains" in schema and not any(self._fits(schema["contains"], item) for item in value):
            yield path, words.NOT_CONTAINED
        if levels and (prefix or rest is not True):
            for index, item in enumerate(value):
                under = prefix[index] if index < len(prefix) else rest
                yield from self.walk(under, item, (*path, index), levels)

    def _fits(self, schema: Any, value: Any) -> bool:
        return next(self.walk(schema, value, (), _ALL_LEVELS), None) is None

    def _spoken_of(self, schema: Any) -> set[str]:
        """Return the properties that the schema and its parts for the same value declare."""
        if not isinstance(schema, Mapping):
            return set()
        parts = [part for keyword in ("allOf", "anyOf", "oneOf") for part in schema.get(keyword, ())]
        parts += [schema[keyword] for keyword in ("if", "then", "else") if keyword in schema]
        parts += [resolve(self._root, schema["$ref"])] if "$ref" in schema else []
        return set(schema.get("properties", ())).union(*map(self._spoken_of, parts))


_UNDECLARED: Final = {"additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties"}


def _wrong_here(schema: Schema, value: Any) -> str | None:
    """Return what is wrong with the value as a whole; then its parts do not matter."""
    if "const" in schema and not _equal(schema["const"], value):
        return words.wrong_value([schema["const"]])
    if "enum" in schema and not any(_equal(allowed, value) for allowed in schema["enum"]):
        return words.wrong_value(schema["enum"])
    if "type" in schema:
        named = schema["type"]
        names = named if isinstance(named, list) else [named]
        if not any(_is(name, value) for name in names):
            return words.wrong_type(names)
    return None


def _beyond_limits(schema: Schema, value: Any, path: Path) -> Found:
    for keyword, limit in schema.items():
        if keyword in words.LIMITS:
            kinds, keeps, message = words.LIMITS[keyword]
            if type(value) in kinds and not isinstance(limit, bool) and not keeps(value, limit):
                yield path, message(value, limit)
    if "pattern" in schema and isinstance(value, str) and not matches(schema["pattern"], value):
        yield path, f"String should match pattern '{words.shorten(schema['pattern'])}'"


def _is(name: str, value: Any) -> bool:
    kind = type(value)
    if name == "integer":
        return kind is int or (kind is float and value.is_integer())
    return kind in _KINDS[name]


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) and (type(one) is bool) == (type(other) is bool)

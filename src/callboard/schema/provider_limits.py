"""Rewrite a tool's schema so that a provider accepts it, where nobody asked for strict mode.

One row a provider says what it refuses and what is sent instead: combinations at the root as one object, members that
must not be left out, bounds and references as draft 2020-12 has them, other names of members, which are mapped back in
the arguments. What is lost in the schema is checked when the arguments come.

Laws: a schema that a provider accepts stays the very same object, and a rewritten one needs no rewriting; linear in the
schema's size; what is no schema stays as it is.

Source: what providers answer to tools of MCP servers, as reported at openai-agents#449, bnbchain-mcp#68, langchain#39271,
notion-mcp-server#341, twilio-labs/mcp#49, livekit/agents#2689.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from callboard.schema.subschemas import IN_PLACE, Schema, inside, pointer, pointer_steps, rebuild, resolve

_COMBINING: Final = ("allOf", "anyOf", "oneOf")
_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_CLOSING: Final = ("additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties")
"""Keywords that are mostly booleans, which each provider takes there."""
_ROOT: Final = "root"
_LONGEST: Final = 64
_KEY: Final = re.compile(rf"[a-zA-Z0-9_.-]{{1,{_LONGEST}}}")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_.-]")
_BY_NAME: Final = ("properties", "dependentSchemas", "dependentRequired", "dependencies")
"""Keywords that speak of members by their names, as `required` does."""
_SAID: Final = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "allOf", "anyOf", "definitions", "description", "oneOf", "properties",
        "required", "title", "type",
    }
)  # fmt: skip
"""Keywords of a part that the whole says too, or that no call has to follow."""
_MALFORMED: Final = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


class Rules(NamedTuple):
    """What a provider refuses: keywords at the `root`, an object without `properties`, an array without `items` or `true`
    for a schema (`complete`), members whose names are not `_KEY` (`keys`).
    """

    root: frozenset[str] = frozenset()
    complete: bool = False
    keys: bool = False


_OPENAI: Final = Rules(root=frozenset({*_COMBINING, "const", "enum", "not", "$ref"}), complete=True)
RULES: Final[Mapping[str, Rules]] = {
    "chat": _OPENAI,
    "responses": _OPENAI,
    "messages": Rules(root=frozenset({*_COMBINING, "$ref"}), keys=True),
    "gemini": Rules(),
    "gemini parameters": Rules(root=_OPENAI.root),
}
"""By wire. For all of them the root is an object, and what earlier drafts say otherwise is said as 2020-12 does."""


class Fitted(NamedTuple):
    """`schema` is sent in the place of the given one. `names` are the members' names where they differ, each by what
    is sent for it; `lost` the keywords of which something is lost.
    """

    schema: Schema
    names: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()


def fit_schema(schema: Schema, rules: Rules) -> Fitted:
    """The schema of an arguments object as the provider with these rules takes it."""
    try:
        made: Any = _newer(schema)
        if made is not schema and made != schema and "$schema" in made:
            made = {name: held for name, held in made.items() if name != "$schema"}  # a part is of another draft now
        dropped: tuple[str, ...] = ()
        if not rules.root.isdisjoint(made):
            made, dropped = _Folding(made, rules.root).fold()
        if made.get("type") != "object":
            made = {**made, "type": "object"}
        if rules.complete:
            made = _complete(made)
        names = _names(made) if rules.keys else {}
        if names:
            made = _respell(made, {name: safe for safe, name in names.items()})
    except _MALFORMED:
        return Fitted(schema)
    return Fitted(schema if made == schema else made, names, dropped)


def restore_names(arguments: Mapping[str, Any], form: Fitted) -> dict[str, Any]:
    """The arguments of a call with the names that the given schema has."""
    try:
        named: dict[str, Any] = _name_properties(dict(arguments), [form.schema], form)
    except _MALFORMED:  # the tool says so too
        return dict(arguments)
    return named


# what earlier drafts say


def newer(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as draft 2020-12 spells it; the same object where it is no schema, or needs no change."""
    try:
        made: dict[str, Any] = _newer(schema)
    except _MALFORMED:
        return schema
    return schema if made == schema else made


def _newer(schema: Any) -> Any:
    """Draft 4's exclusive bounds, and lists of items before 2020-12; the same object where there are none."""
    if not isinstance(schema, Mapping):
        return schema
    made = rebuild(schema, _newer)
    for keyword, bound in _BOUNDS.items():
        if isinstance(exclusive := made.get(keyword), bool):
            del made[keyword]
            if exclusive and isinstance(limit := made.pop(bound, None), int | float) and not isinstance(limit, bool):
                made[keyword] = limit
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        if not isinstance(others := made.pop("additionalItems", True), list):
            made |= {} if others is True else {"items": others}
    if made.keys() != schema.keys():
        made.pop("$schema", None)  # it is of another draft now
    return made


def _complete(schema: Any) -> Any:
    """With the keywords that objects and arrays have to have, and an object for each schema: llama.cpp takes no `true`."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, Mapping):
        return schema
    made = rebuild(schema, _complete)
    made |= {keyword: schema[keyword] for keyword in _CLOSING if isinstance(schema.get(keyword), bool)}
    kinds = made.get("type", ())
    for kind, keyword in (("object", "properties"), ("array", "items")):
        if kind in kinds and not isinstance(made.get(keyword), Mapping):
            made[keyword] = {}
    return made


# the root


class _Shape:
    """What an object may be: the schemas of its members, what it must have, whether it may have others."""

    def __init__(self) -> None:
        self.members: dict[str, dict[bytes, Any]] = {}
        self.required: dict[str, None] = {}
        self.is_closed = False

    def add(self, name: str, parts: Mapping[bytes, Any]) -> None:
        self.members.setdefault(name, {}).update(parts)


class _Folding:
    """One object in the place of a root that combines several; each definition is looked into once."""

    def __init__(self, root: Schema, refused: frozenset[str]) -> None:
        self._root = root
        self._refused = refused
        self._seen: set[str] = set()
        self._dropped: dict[str, None] = {}

    def fold(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        shape = self._shape(self._root)
        made: dict[str, Any] = {key: held for key, held in self._root.items() if key not in self._refused}
        made["type"] = "object"
        if shape.members:
            made["properties"] = {name: _one_of(parts) for name, parts in shape.members.items()}
        if shape.required:
            made["required"] = [*shape.required]
        if shape.is_closed:
            made["additionalProperties"] = False
        self._dropped |= dict.fromkeys(self._root.keys() & self._refused & {"const", "enum", "not"})
        return self._with_what_is_meant(made), tuple(self._dropped)

    def _shape(self, schema: Any) -> _Shape:
        """Of the schema with all that it combines."""
        shape = _Shape()
        if not isinstance(schema, Mapping):
            return shape
        for name, part in schema.get("properties", {}).items():
            shape.add(name, {_key(part): part})
        shape.required = dict.fromkeys(schema.get("required", ()))
        shape.is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in self._seen:
            self._seen.add(reference)
            target = resolve(self._root, reference)
            self._and(shape, self._shape(target), [target], "$ref")
        for part in schema.get("allOf", ()):
            self._and(shape, self._shape(part), [part], "allOf")
        for keyword in ("anyOf", "oneOf"):
            branches = [part for part in schema.get(keyword, ()) if _may_be_object(part)]
            if len(branches) > 1:
                self._dropped[keyword] = None
            if branches:
                self._and(shape, _either([self._shape(branch) for branch in branches]), branches, keyword)
        return shape

    def _and(self, shape: _Shape, other: _Shape, parts: list[Any], keyword: str) -> None:
        """Both hold: what one of them closes, the other does not open. `parts` are the schemas of the other."""
        twice = any(other.members[name] != shape.members[name] for name in other.members.keys() & shape.members.keys())
        if twice or any(part.keys() - _SAID for part in parts if isinstance(part, Mapping)):
            self._dropped[keyword] = None
        if other.is_closed:
            shape.members = {name: member for name, member in shape.members.items() if name in other.members}
        for name, member in other.members.items():
            if not shape.is_closed or name in shape.members:
                shape.add(name, member)
        shape.required |= other.required
        shape.is_closed = shape.is_closed or other.is_closed

    def _with_what_is_meant(self, made: dict[str, Any]) -> dict[str, Any]:
        """References into what is gone find it among the definitions."""
        gone = tuple(f"#/{keyword}/" for keyword in _COMBINING if keyword in self._root and keyword not in made)
        if not gone or not any(reference.startswith(gone) for reference in _references(made)):
            return made
        name = _ROOT
        while name in made.get("$defs", {}):
            name += "_"
        combined = {keyword: self._root[keyword] for keyword in _COMBINING if keyword in self._root}
        moved = {**made, "$defs": {**made.get("$defs", {}), name: combined}}
        referring: dict[str, Any] = _referring(
            moved, lambda reference: f"#/$defs/{name}{reference[1:]}" if reference.startswith(gone) else reference
        )
        return referring


def _either(shapes: list[_Shape]) -> _Shape:
    """One of them holds: what all want is required."""
    either = _Shape()
    for shape in shapes:
        for name, parts in shape.members.items():
            either.add(name, parts)
    either.required = {name: None for name in shapes[0].required if all(name in each.required for each in shapes)}
    either.is_closed = all(shape.is_closed for shape in shapes)
    return either


def _one_of(parts: Mapping[bytes, Any]) -> Any:
    """What a member may be that several speak of; which of them hold together is not said."""
    return next(iter(parts.values())) if len(parts) == 1 else {"anyOf": [*parts.values()]}


def _may_be_object(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return schema is True
    return "object" in schema.get("type", "object")


def _key(schema: Any) -> bytes:
    return msgspec.json.encode(schema, order="deterministic")


# names


def _names(schema: Schema) -> dict[str, str]:
    """The names of members that are refused, each by one that is not, and that no other member has."""
    every = dict.fromkeys(name for part in _every(schema) for name in part.get("properties", {}))
    names: dict[str, str] = {}
    for name in every:
        if not _KEY.fullmatch(name):
            safe = _UNSAFE.sub("_", name)
            if safe in every or safe in names or not 0 < len(safe) <= _LONGEST:
                digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
                safe = f"{safe[: _LONGEST - 17]}_{digest}"
            names[safe] = name
    return names


def _respell(schema: Any, safe: Mapping[str, str]) -> Any:
    def respell(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        made = rebuild(part, respell)
        for keyword in _BY_NAME:
            if isinstance(held := made.get(keyword), Mapping):
                made[keyword] = {safe.get(name, name): _names_in(inner, safe) for name, inner in held.items()}
        if "required" in made:
            made["required"] = _names_in(made["required"], safe)
        return made

    return _referring(respell(schema), lambda reference: _pointed_anew(reference, safe))


def _names_in(held: Any, safe: Mapping[str, str]) -> Any:
    return (
        [safe.get(name, name) if isinstance(name, str) else name for name in held] if isinstance(held, list) else held
    )


def _pointed_anew(reference: str, safe: Mapping[str, str]) -> str:
    if not reference.startswith("#/"):
        return reference
    steps = pointer_steps(reference)
    anew = [
        safe.get(step, step) if before in _BY_NAME else step for before, step in zip(["", *steps], steps, strict=False)
    ]
    return reference if anew == steps else pointer(tuple(anew))


def _name_properties(value: Any, schemas: list[Any], form: Fitted) -> Any:
    if isinstance(value, list):
        return [
            _name_properties(item, [*_of_item(schemas, place, form)], form) if isinstance(item, (dict, list)) else item
            for place, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    here = [*_in_place(schemas, form.schema)]
    named: dict[str, Any] = {}
    for name, held in value.items():
        parts = [each["properties"][name] for each in here if name in each.get("properties", ())]
        own = form.names.get(name, name) if parts else name
        others = [each["additionalProperties"] for each in here if "additionalProperties" in each]
        patterned = [part for each in here for part in each.get("patternProperties", {}).values()]
        named[own] = _name_properties(held, parts or [*patterned, *others], form)
    return named


def _of_item(schemas: list[Any], place: int, form: Fitted) -> Iterator[Any]:
    for schema in _in_place(schemas, form.schema):
        prefix = schema.get("prefixItems", ())
        if place < len(prefix):
            yield prefix[place]
        elif "items" in schema:
            yield schema["items"]


def _in_place(schemas: Iterable[Any], root: Schema) -> Iterator[Schema]:
    """All schemas that speak of the same value, each once."""
    seen: set[int] = set()
    todo = [*schemas]
    while todo:
        schema = todo.pop()
        if isinstance(schema, Mapping) and id(schema) not in seen:
            seen.add(id(schema))
            yield schema
            todo += [part for steps, part in inside(schema) if steps[0] in IN_PLACE]
            if "$ref" in schema:
                todo.append(resolve(root, schema["$ref"]))


# schemas inside schemas


def _every(schema: Any) -> Iterator[Schema]:
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            yield part
            todo += [inner for _, inner in inside(part)]


def _references(schema: Any) -> Iterator[str]:
    return (part["$ref"] for part in _every(schema) if isinstance(part.get("$ref"), str))


def _referring(schema: Any, change: Any) -> Any:
    def refer(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        made = rebuild(part, refer)
        return {**made, "$ref": change(made["$ref"])} if isinstance(made.get("$ref"), str) else made

    return refer(schema)

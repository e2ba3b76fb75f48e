"""Rewrite a tool's schema so that a provider accepts it, outside of strict mode.

One row per provider lists what it refuses. A combination at the root becomes one object with the members of all its
branches, one level deep. Lost constraints are checked when the arguments arrive.

Laws: a schema that a provider accepts stays the same object, and a rewritten schema needs no rewriting. Linear in the
size of the schema. A value that is not a schema does not change.

Source: providers' answers to tools of MCP servers, as reported at openai-agents#449, bnbchain-mcp#68, langchain#39271,
notion-mcp-server#341, twilio-labs/mcp#49, livekit/agents#2689.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from callboard.schema.subschemas import Schema, change_references, every, pointer, pointer_steps, rebuild, resolve

_COMBINING: Final = ("allOf", "anyOf", "oneOf")
_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_CLOSING: Final = ("additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties")
"""Keywords that are usually booleans; every provider accepts booleans there."""
_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_BY_NAME: Final = ("properties", "dependentSchemas", "dependentRequired", "dependencies")
"""Keywords that list members by name, like `required`."""
_MERGED: Final = frozenset(
    {"$defs", "additionalProperties", "definitions", "description", "properties", "required", "title", "type"}
)
"""Keywords of a branch that the whole schema repeats, or that calls do not have to follow."""
_BRANCH: Final = re.compile(r"#/(?:allOf|anyOf|oneOf)/\d+(?=/|\Z)")
_MALFORMED: Final = (AttributeError, LookupError, TypeError, ValueError, RecursionError)


class Rules(NamedTuple):
    """Things that a provider refuses: keywords at the `root`; with `complete`, an object without `properties`, an array
    without `items` and `true` for a schema; with `keys`, members whose names do not match `_KEY`.
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
}
"""Rules by wire. For all wires the root is an object, and keywords of earlier drafts are written as in 2020-12."""


class Fitted(NamedTuple):
    """`schema` is sent instead. `names` maps sent names of renamed members to their own names. `dropped` are the
    keywords that lost something.
    """

    schema: Schema
    names: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()


def fit_schema(schema: Schema, rules: Rules) -> Fitted:
    """Return the schema of an arguments object in the form that a provider with these rules accepts."""
    try:
        fitted: Any = _newer(schema)
        dropped: tuple[str, ...] = ()
        if not rules.root.isdisjoint(fitted):
            fitted, dropped = _fold(fitted, rules.root)
        if fitted.get("type") != "object":
            fitted = {**fitted, "type": "object"}
        if rules.complete:
            fitted = _complete(fitted)
        names = _safe_names(fitted) if rules.keys else {}
        if names:
            fitted = _rename(fitted, names)
    except _MALFORMED:
        return Fitted(schema)
    fitted = schema if fitted == schema else fitted
    return Fitted(fitted, {safe: name for name, safe in names.items()}, dropped)


def restore_names(arguments: Mapping[str, Any], form: Fitted) -> dict[str, Any]:
    """Return the arguments of a call with the names of the declared schema."""

    def restore(value: Any) -> Any:
        if isinstance(value, dict):
            return {form.names.get(name, name): restore(held) for name, held in value.items()}
        return [restore(each) for each in value] if isinstance(value, list) else value

    try:
        restored: dict[str, Any] = restore(dict(arguments))
    except _MALFORMED:
        return dict(arguments)
    return restored


# Earlier drafts.


def newer(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema in draft 2020-12, or the same object if it is not a schema or needs no change."""
    try:
        rewritten: dict[str, Any] = _newer(schema)
    except _MALFORMED:
        return schema
    return schema if rewritten == schema else rewritten


def _newer(schema: Any, *, is_root: bool = True) -> Any:
    """Rewrite draft 4's exclusive bounds, and lists of items from before 2020-12."""
    if not isinstance(schema, Mapping):
        return schema
    rewritten = rebuild(schema, lambda part: _newer(part, is_root=False))
    for keyword, bound in _BOUNDS.items():
        if isinstance(exclusive := rewritten.get(keyword), bool):
            del rewritten[keyword]
            limit = rewritten.get(bound)
            if exclusive and isinstance(limit, int | float) and not isinstance(limit, bool):
                rewritten[keyword] = rewritten.pop(bound)
    if isinstance(rewritten.get("items"), list):
        rewritten["prefixItems"] = rewritten.pop("items")
        if not isinstance(others := rewritten.pop("additionalItems", True), list):
            rewritten |= {} if others is True else {"items": others}
    if rewritten.keys() != schema.keys() or (is_root and rewritten != schema):
        rewritten.pop("$schema", None)  # it names another draft
    return rewritten


def _complete(schema: Any) -> Any:
    """Add the keywords that objects and arrays need, and replace `true` by an object, because llama.cpp rejects it."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, Mapping):
        return schema
    completed = rebuild(schema, _complete)
    completed |= {keyword: schema[keyword] for keyword in _CLOSING if isinstance(schema.get(keyword), bool)}
    kinds = completed.get("type", ())
    for kind, keyword in (("object", "properties"), ("array", "items")):
        if kind in kinds and not isinstance(completed.get(keyword), Mapping):
            completed[keyword] = {}
    return completed


# The root.


def _fold(root: Schema, refused: frozenset[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return one object with the members of all branches of the root, and the keywords that lost something."""
    members: dict[str, dict[bytes, Any]] = {}
    dropped: dict[str, None] = {key: None for key in ("const", "enum", "not") if key in root and key in refused}
    required = dict.fromkeys(root.get("required", ()))
    parts = [("", root)] if root.get("properties") else []
    for keyword in ("$ref", *_COMBINING):
        branches = [root[keyword]] if keyword == "$ref" and keyword in root else root.get(keyword, ())
        branches = [{"$ref": each} if isinstance(each, str) else each for each in branches]
        branches = [
            resolve(root, each["$ref"]) if "$ref" in each else each
            for each in branches
            if isinstance(each, Mapping) and "object" in each.get("type", "object")
        ]
        branches = [each for each in branches if isinstance(each, Mapping)]
        demands = [dict.fromkeys(each.get("required", ())) for each in branches]
        if keyword in ("anyOf", "oneOf") and len(branches) > 1:
            dropped[keyword] = None
            demands = [{name: None for name in demands[0] if all(name in each for each in demands)}]
        for each in demands:
            required |= each
        parts += [(keyword, each) for each in branches]
    for keyword, part in parts:
        if keyword and not part.keys() <= _MERGED:
            dropped[keyword] = None
        for name, member in part.get("properties", {}).items():
            ways = members.setdefault(name, {})
            ways[msgspec.json.encode(member, order="deterministic")] = member
            if keyword and len(ways) > 1:
                dropped[keyword] = None
    if root.get("additionalProperties") is False and "patternProperties" not in root:
        members = {name: ways for name, ways in members.items() if name in root.get("properties", {})}
    branches_closed = [part.get("additionalProperties") is False for _, part in parts if "properties" in part]
    folded: dict[str, Any] = {key: value for key, value in root.items() if key not in refused}
    folded["type"] = "object"
    if members:
        ways_of = {name: [*ways.values()] for name, ways in members.items()}
        folded["properties"] = {name: ways[0] if len(ways) == 1 else {"anyOf": ways} for name, ways in ways_of.items()}
    if required:
        folded["required"] = [*required]
    if branches_closed and all(branches_closed):
        folded["additionalProperties"] = False
    return change_references(folded, lambda reference: _BRANCH.sub("#", reference, count=1)), tuple(dropped)


# Names.


def _safe_names(schema: Schema) -> dict[str, str]:
    """Return a safe name for each refused name of a member. No argument has such a name."""
    names = dict.fromkeys(name for part in every(schema) for name in part.get("properties", {}))
    refused = [name for name in names if not _KEY.fullmatch(name)]
    digests = {name: hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8] for name in refused}
    return {name: f"{re.sub(r'[^a-zA-Z0-9_.-]', '_', name)[:48]}_{digests[name]}" for name in refused}


def _rename(schema: Schema, names: Mapping[str, str]) -> Any:
    def rename(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        renamed = rebuild(part, rename)
        for keyword in _BY_NAME:
            if isinstance(members := renamed.get(keyword), Mapping):
                renamed[keyword] = {names.get(name, name): rename_list(held) for name, held in members.items()}
        if "required" in renamed:
            renamed["required"] = rename_list(renamed["required"])
        return renamed

    def rename_list(held: Any) -> Any:
        return [names.get(each, each) for each in held] if isinstance(held, list) else held

    def point(reference: str) -> str:
        if not reference.startswith("#/"):
            return reference
        steps = pointer_steps(reference)
        renamed = [names.get(step, step) if before in _BY_NAME else step for before, step in zip(["", *steps], steps)]  # noqa: B905
        return reference if renamed == steps else pointer(tuple(renamed))

    return change_references(rename(schema), point)

"""Find the schemas inside a schema, and resolve references inside one document.

Law: a name under `properties` is a name, never a keyword. The contents of `enum`, `const` and `default` are data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
Steps: TypeAlias = tuple[str | int, ...]

IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose schemas apply to the same value; all others apply to a part of it."""

_ESCAPED = re.compile("(?:%[0-9a-fA-F]{2})+")
"""Percent-encoded bytes of a fragment. `urllib`, which decodes them too, is not for this room."""
_ONE_OR_LIST = frozenset(
    {
        "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items",
        "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
_READ = _ONE_OR_LIST | _NAMED | {"const", "default", "enum", "examples"}
"""Keywords whose contents are schemas or data. Others may contain schemas that only references lead to."""


def inside(schema: Schema) -> Iterator[tuple[Steps, Any]]:
    """Yield the schemas directly inside this one, each with the steps to it; the first step is a keyword."""
    for keyword, held in schema.items():
        if keyword in _ONE_OR_LIST:
            if isinstance(held, list):
                for index, part in enumerate(held):
                    yield (keyword, index), part
            else:
                yield (keyword,), held
        elif keyword in _NAMED and isinstance(held, Mapping):
            for name, part in held.items():
                yield (keyword, name), part


def every(schema: Any) -> Iterator[Schema]:
    """Yield the schema and all schemas inside it."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            yield part
            todo += [inner for _, inner in inside(part)]


def change_references(schema: Any, change: Callable[[str], str]) -> Any:
    """Return the schema with each reference changed, also in parts that only references lead to."""
    if not isinstance(schema, Mapping):
        return [change_references(part, change) for part in schema] if isinstance(schema, list) else schema
    rebuilt = rebuild(schema, lambda part: change_references(part, change))
    rebuilt |= {key: change_references(held, change) for key, held in schema.items() if key not in _READ}
    return {**rebuilt, "$ref": change(rebuilt["$ref"])} if isinstance(rebuilt.get("$ref"), str) else rebuilt


def rebuild(schema: Schema, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the schema with each schema directly inside it changed."""
    return {keyword: _change(keyword, held, change) for keyword, held in schema.items()}


def _change(keyword: str, held: Any, change: Callable[[Any], Any]) -> Any:
    if keyword in _NAMED and isinstance(held, Mapping):
        return {name: change(part) for name, part in held.items()}
    if keyword in _ONE_OR_LIST:
        return [change(part) for part in held] if isinstance(held, list) else change(held)
    return held


def required_names(schema: Schema) -> list[str]:
    """Return the members that the schema requires, or nothing if `required` is not a list, as in old drafts."""
    required = schema.get("required")
    return [each for each in required if isinstance(each, str)] if isinstance(required, (list, tuple)) else []


def resolve(root: Schema, reference: str) -> Any:
    """Return the part of the document that `#` or `#/a/b` names (RFC 6901). Raises LookupError if there is none."""
    place: Any = root
    for step in pointer_steps(reference):
        if not isinstance(place, Mapping) and not (isinstance(place, list) and step.isdecimal()):
            raise LookupError(step)
        place = place[step] if isinstance(place, Mapping) else place[int(step)]
    return place


def pointer_steps(reference: str) -> list[str]:
    """Return the steps of a reference. Raises LookupError if its form is not `#` or `#/a/b`."""
    if reference == "#":
        return []
    if not reference.startswith("#/"):
        raise LookupError(reference)
    fragment = _ESCAPED.sub(
        lambda escapes: bytes.fromhex(escapes[0].replace("%", "")).decode(errors="replace"), reference[2:]
    )
    return [step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")]


def pointer(steps: Steps) -> str:
    """Return the JSON pointer of these steps as a fragment: `#/properties/a`."""
    return "/".join(["#", *(str(step).replace("~", "~0").replace("/", "~1") for step in steps)])

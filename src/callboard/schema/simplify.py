"""Remove from pydantic's schemas what no model needs.

Out go titles, the OpenAPI discriminator and `uniqueItems` (a set forgives what is repeated); definitions that are used
once move to where they are used; `additionalProperties: false` comes in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from callboard.schema.subschemas import Schema, inside, rebuild

_TAKEN_OUT: Final = {"title", "discriminator", "uniqueItems", "$defs"}
_ORDER: Final = ("type", "properties", "required", "additionalProperties")
_DEFINED: Final = "#/$defs/"


def simplify(schema: Schema) -> dict[str, Any]:
    """The same schema, small, definitions left only where they are recursive or used more than once.

    Objects with declared members take no others, unless `is_open`.
    """
    definitions = schema.get("$defs", {})
    uses = Counter(part["$ref"].removeprefix(_DEFINED) for part in _every(schema) if "$ref" in part)
    closing = {} if is_open(schema) else {"additionalProperties": False}

    def smaller(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        name = part.get("$ref", "").removeprefix(_DEFINED)
        if uses[name] == 1:  # what refers to itself is used twice
            beside = {keyword: held for keyword, held in part.items() if keyword != "$ref"}
            part = {**definitions[name], **beside}
            return smaller(part)
        part = {key: held for key, held in part.items() if key not in _TAKEN_OUT}
        return rebuild({**part, **closing} if "properties" in part else part, smaller)

    small: dict[str, Any] = smaller(schema)
    ordered = {key: small[key] for key in _ORDER if key in small} | small
    shared = {name: smaller(definition) for name, definition in definitions.items() if uses[name] > 1}
    return {**ordered, "$defs": shared} if shared else ordered


def is_open(schema: Schema) -> bool:
    """Whether some object with declared members says that it takes others, as a pydantic model can."""
    return any("properties" in part and part.get("additionalProperties", False) is not False for part in _every(schema))


def has_numeric_choice(schema: Schema) -> bool:
    """Whether some value is to be one of several, or the only one, of which one is a number or boolean."""
    choices = (choice for part in _every(schema) for choice in (*part.get("enum", ()), part.get("const")))
    return any(isinstance(choice, int | float) for choice in choices)


def _every(schema: Any) -> Iterator[Schema]:
    if isinstance(schema, Mapping):
        yield schema
        for _, part in inside(schema):
            yield from _every(part)

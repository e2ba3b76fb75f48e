"""The JSON schema of a reply that is a call, an answer or a thought.

The choice is inside an object, because providers refuse a schema with another root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import Constraint, NamedTool, ToolChoice, ToolDeclaration

_ANSWER = {"answer": {"type": "string"}}
_SCRATCHPAD = {"scratchpad": {"type": "string"}}


def action_constraint(
    tools: tuple[ToolDeclaration, ...], choice: ToolChoice, answer: Mapping[str, Any] | None = None
) -> Constraint:
    """One of: a call of a declared tool, an answer, a thought; narrowed by the choice of tools.

    `answer` is the schema of an answer, by default a string's.
    """
    definitions: dict[str, Any] = {}
    answer_properties = _ANSWER if answer is None else {"answer": _embed(answer, "answer", definitions)}
    allowed = [tool for tool in tools if not isinstance(choice, NamedTool) or tool.name == choice.name]
    calls = [] if choice == "none" else [_call(tool, definitions) for tool in allowed]
    words = [_object(answer_properties), _object(_SCRATCHPAD)] if choice == "auto" else []
    variants = [*calls, *words] or [_object(answer_properties)]
    schema = _object({"action": {"anyOf": variants}})
    if definitions:
        schema["$defs"] = definitions
    return Constraint("agent_response", schema, strict=False)


def _call(tool: ToolDeclaration, definitions: dict[str, Any]) -> dict[str, Any]:
    arguments = _embed(tool.schema, tool.name, definitions)
    return _object({"tool": {"type": "string", "enum": [tool.name]}, "arguments": arguments})


def _embed(schema: Mapping[str, Any], owner: str, definitions: dict[str, Any]) -> Any:
    """The schema as it is where it refers to nothing; else a reference to where it stands whole, so that its own hold."""
    place = f"#/$defs/{owner}"
    moved = _move(schema, place)
    if moved == schema:
        return moved
    definitions[owner] = moved
    return {"$ref": place}


def _move(schema: Any, place: str) -> Any:
    """The schema with its references beginning at its new place."""
    if isinstance(schema, Mapping):
        return {
            key: place + value.removeprefix("#")
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _move(value, place)
            for key, value in schema.items()
        }
    if isinstance(schema, (list, tuple)):
        return [_move(each, place) for each in schema]
    return schema


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}

"""The schema of a reply that is a call or an answer.

Owns the shape (seed 001, inside an object, since providers refuse another root). Knows nothing of wires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import Constraint, NamedTool, ToolChoice, ToolDeclaration

_ANSWER = {"answer": {"type": "string"}}
_SCRATCHPAD = {"scratchpad": {"type": "string"}}


def action_constraint(tools: tuple[ToolDeclaration, ...], choice: ToolChoice) -> Constraint:
    """One of: a call of a declared tool, an answer, a thought; narrowed by the choice of tools."""
    definitions: dict[str, Any] = {}
    allowed = [tool for tool in tools if not isinstance(choice, NamedTool) or tool.name == choice.name]
    calls = [] if choice == "none" else [_call(tool, definitions) for tool in allowed]
    words = [_object(_ANSWER), _object(_SCRATCHPAD)] if choice == "auto" else []
    variants = [*calls, *words] or [_object(_ANSWER)]
    schema = _object({"action": {"anyOf": variants}})
    if definitions:
        schema["$defs"] = definitions
    return Constraint("agent_response", schema, strict=False)


def _call(tool: ToolDeclaration, definitions: dict[str, Any]) -> dict[str, Any]:
    own = tool.schema.get("$defs", {})
    definitions.update({f"{tool.name}.{name}": _moved(schema, tool.name) for name, schema in own.items()})
    arguments = {key: value for key, value in tool.schema.items() if key != "$defs"}
    return _object({"tool": {"type": "string", "enum": [tool.name]}, "arguments": _moved(arguments, tool.name)})


def _moved(schema: Any, tool: str) -> Any:
    """The schema with its references pointing to where its definitions now stand."""
    if isinstance(schema, Mapping):
        return {
            key: f"#/$defs/{tool}.{value.removeprefix('#/$defs/')}"
            if key == "$ref" and isinstance(value, str) and value.startswith("#/$defs/")
            else _moved(value, tool)
            for key, value in schema.items()
        }
    if isinstance(schema, (list, tuple)):
        return [_moved(each, tool) for each in schema]
    return schema


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}

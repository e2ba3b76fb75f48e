"""Tools, calls and results as a model reads them in text.

Owns the way back from values to a dialect's spelling. Knows nothing of modes or wires.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import InvocationCanister, ResultCanister, ToolDeclaration
from callboard.dialects.dialect import Dialect

_PLACES = re.compile("NAME|ARGUMENTS")


def render_tools(dialect: Dialect, tools: Iterable[ToolDeclaration]) -> str:
    """The tools and how to call them, for a system prompt. The same tools give the same text."""
    lines = [_json({"name": tool.name, "description": tool.description, "parameters": tool.schema}) for tool in tools]
    return "\n".join(["You can call these tools:", *lines, "", dialect.manner])


def render_call(dialect: Dialect, invocation: InvocationCanister) -> str:
    """The call as the dialect spells it; arguments that are no object are written as the model wrote them."""
    arguments = invocation.raw if invocation.arguments is None else _json(invocation.arguments)
    before, between, after = _PLACES.split(dialect.call)
    return f"{before}{_json(invocation.name)}{between}{arguments}{after}"


def render_thought(dialect: Dialect, text: str) -> str:
    """The thought as the dialect spells it; nothing where it has no place for one."""
    return dialect.thought.replace("THOUGHT", _json(text), 1)


def render_result(result: ResultCanister) -> str:
    """What came of a call, as the seed's adapters tell it (seed 001)."""
    return f"Observation: {result.text}"


def render_in_prose(invocation: InvocationCanister, result: ResultCanister | None) -> str:
    """A call and its result in plain words."""
    arguments: Mapping[str, Any] = invocation.arguments or {}
    call = f"{invocation.name}({', '.join(f'{key}={_json(value)}' for key, value in arguments.items())})"
    if result is None:
        return f"{call} was not run."
    if result.error is not None:
        return f"{call} failed: {result.text}"
    text = result.text
    return f"{call} returned:\n{text}" if "\n" in text else f"{call} returned {text}."


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""Tools as they are declared to a provider.

Owns, for the tools of one request, whether the provider is asked to hold their calls to the schema, and which schema
it is told: the strict form, or what `schema.fitted` makes of it. Knows of a wire no more than its rows.
Law: the same schema has the same form; those of small schemas are kept, for a conversation brings its tools with every
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from callboard.core import ToolDeclaration

if TYPE_CHECKING:
    from callboard.schema.provider_limits import Fitted

_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_STRICT = {"chat": "OPENAI", "responses": "OPENAI", "messages": "ANTHROPIC"}
"""Whose strict mode a wire has."""
_MOST = 8 * 1024
"""Bytes of a schema whose forms are kept."""
_KEPT = 512
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Strictness:
    """The tools of one request as they are declared on a wire, a row of `schema.fitted.RULES`.

    `dropped` says what tools lose, `nullable` and `respelled` are as of Lowered.
    """

    def __init__(self, wire: str) -> None:
        self.dropped: list[str] = []
        self.nullable: dict[str, Mapping[str, Any]] = {}
        self.respelled: dict[str, Fitted] = {}
        self._wire = wire

    def held(self, tool: ToolDeclaration) -> ToolDeclaration:
        """The tool with the schema that the provider takes: strict, if it asks for that and there is such a form."""
        if tool.kind == "custom":  # CUSTOM_SCHEMA is strict, and fits
            return tool
        if tool.strict and self._wire in _STRICT:
            tool = self._strict(tool)
        form = _kept(_fitted, tool.schema or _NO_SCHEMA, self._wire)
        if form is None:
            return tool
        self.dropped += [f"{keyword} at the root of the parameters of {tool.name}" for keyword in form.lost]
        if form.names:
            self.respelled[tool.name] = form
        return replace(tool, schema=form.schema)

    def _strict(self, tool: ToolDeclaration) -> ToolDeclaration:
        given = tool.schema or _NO_SCHEMA
        form = _kept(_strict_form, given, self._wire)
        if form is None:
            self.dropped.append(f"strict of the tool {tool.name}")
            return replace(tool, strict=False)
        if form == given:
            return tool
        self.dropped += [
            f"{keyword} in the strict parameters of {tool.name}" for keyword in _kept(_lost, given, self._wire)
        ]
        if _STRICT[self._wire] == "OPENAI":
            self.nullable[tool.name] = given
        return replace(tool, schema=form)


def _kept(make: Any, schema: Mapping[str, Any], wire: str) -> Any:
    """What is made of the schema for the wire."""
    try:
        json = _encode(schema)
        if len(json) <= _MOST:
            return _remembered(make, json, wire)
    except (TypeError, ValueError, RecursionError):  # the body cannot be written either
        pass
    return make(schema, wire)


@lru_cache(_KEPT)
def _remembered(make: Any, json: bytes, wire: str) -> Any:
    return make(_decode(json), wire)


def _strict_form(schema: Mapping[str, Any], wire: str) -> Mapping[str, Any] | None:
    """The strict form; None where there is none."""
    from callboard.schema import strict  # noqa: PLC0415 - few ask for it

    try:
        return strict.strict_arguments(schema, getattr(strict, _STRICT[wire]))
    except strict.NotStrict:
        return None


def _lost(schema: Mapping[str, Any], wire: str) -> list[str]:
    """What the strict form does not say; the arguments are checked for it when they come."""
    from callboard.schema.strict import lost_bounds  # noqa: PLC0415 - few ask for it

    return lost_bounds(schema, _strict_form(schema, wire) or {})


def _fitted(schema: Mapping[str, Any], wire: str) -> Fitted | None:
    """The form that the wire's providers take; None where that is the schema itself."""
    from callboard.schema.provider_limits import RULES, fitted  # noqa: PLC0415 - not before tools are declared

    form = fitted(schema, RULES[wire])
    return None if form.schema is schema else form

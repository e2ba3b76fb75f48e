"""Whether a provider is asked to hold a tool's calls to its schema, and to which.

Owns that decision for the tools of one request. Knows no wire: whose strict mode it is is given.
Law: the same schema has the same strict form; those of small schemas are kept, for a conversation brings its tools
with every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import ToolDeclaration

Provider: TypeAlias = Literal["anthropic", "openai"]

_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_MOST = 8 * 1024
"""Bytes of a schema whose strict form is kept."""
_KEPT = 128
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Strictness:
    """The tools of one request as they are declared to the provider.

    `dropped` are those that ask to be strict in vain, `nullable` the given schemas of those whose calls may have a null
    where an optional member is left out.
    """

    def __init__(self, provider: Provider) -> None:
        self.dropped: list[str] = []
        self.nullable: dict[str, Mapping[str, Any]] = {}
        self._provider = provider

    def held(self, tool: ToolDeclaration) -> ToolDeclaration:
        """The tool with the strict form of its schema, if it asks to be strict; not strict where there is none."""
        if not tool.strict or tool.kind == "custom":  # CUSTOM_SCHEMA is strict
            return tool
        given = tool.schema or _NO_SCHEMA
        form = _form(given, self._provider)
        if form is None:
            self.dropped.append(f"strict of the tool {tool.name}")
            return replace(tool, strict=False)
        if form == given:
            return tool
        if self._provider == "openai":
            self.nullable[tool.name] = given
        return replace(tool, schema=form)


def _form(schema: Mapping[str, Any], provider: Provider) -> Mapping[str, Any] | None:
    """The strict form; None where there is none."""
    try:
        json = _encode(schema)
        if len(json) <= _MOST:
            return _remembered(json, provider)
    except (TypeError, ValueError, RecursionError):  # the body cannot be written either
        pass
    return _made(schema, provider)


@lru_cache(_KEPT)
def _remembered(json: bytes, provider: Provider) -> Mapping[str, Any] | None:
    return _made(_decode(json), provider)


def _made(schema: Mapping[str, Any], provider: Provider) -> Mapping[str, Any] | None:
    from callboard.schema.strict import ANTHROPIC, OPENAI, NotStrict, strict_arguments  # noqa: PLC0415 - few ask for it

    try:
        return strict_arguments(schema, OPENAI if provider == "openai" else ANTHROPIC)
    except NotStrict:
        return None

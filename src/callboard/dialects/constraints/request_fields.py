"""The fields of a request's body that hold its reply to a dialect's calls.

A server that takes the fields and ignores them loses nothing: what comes is parsed and validated as without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from callboard.core import ToolDeclaration
from callboard.dialects.constraints.gbnf import write_gbnf, write_thought_gbnf
from callboard.dialects.constraints.structural_tag import write_structural_tag
from callboard.dialects.dialect import Dialect
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.thought_form import CHARACTERS_PER_TOKEN

_CACHE_SIZE = 16
"""Grammars that are kept: an agent declares the same tools in each request."""


def constraint_fields(
    dialect: Dialect, tools: Sequence[ToolDeclaration], form: str, *, lazily: bool = True, thought_tokens: int = 0
) -> Mapping[str, Any]:
    """The fields, for a request that has no `tools` of its own.

    Args:
        dialect: Spells the calls.
        tools: Those that may be called.
        form: What the endpoint takes (`Profile.grammar_format`): `gbnf` or `structural_tag`.
        lazily: Text is free until a call has begun. Without it, the reply is calls from its first character.
        thought_tokens: The reply begins with a thought of so many tokens, which decides whether a call follows (GBNF
            only). 0 is for replies without one.

    Returns:
        Nothing where the endpoint takes no grammar, or where the dialect cannot spell the calls.
    """
    if not form:
        return {}
    return _fields(dialect, msgspec.json.encode(tools), form, lazily=lazily, thought_tokens=thought_tokens)


@lru_cache(maxsize=_CACHE_SIZE)
def _fields(dialect: Dialect, tools: bytes, form: str, *, lazily: bool, thought_tokens: int) -> Mapping[str, Any]:
    declared = msgspec.json.decode(tools, type=list[ToolDeclaration])
    try:
        if form == "structural_tag":
            return {"response_format": write_structural_tag(dialect, declared, lazily=lazily)}
        if thought_tokens:
            characters = thought_tokens * CHARACTERS_PER_TOKEN
            return {"grammar": write_thought_gbnf(dialect, declared, characters=characters).text}
        return {"grammar": write_gbnf(dialect, declared, lazily=lazily).text}
    except NotSpellable:
        return {}

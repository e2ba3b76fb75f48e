"""What a model is asked, in no provider's words.

Owns the neutral request. Knows nothing of wires; modes rewrite it, wire encoders lower it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.core.canisters import Canister


class ToolDeclaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as a model sees it; `schema` is the JSON Schema of its arguments object."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = {}


class NamedTool(msgspec.Struct, frozen=True):
    """The choice of one tool."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


class Constraint(msgspec.Struct, frozen=True):
    """A JSON Schema that the reply's text has to follow."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = True


class Controls(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to sample; None leaves it to the provider. `max_tokens` bounds the reply, `stop` ends it."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """One reply that is asked of a model.

    `parallel` None leaves more than one call a reply to the provider. `extra` is added to the body as it is.
    """

    model: str
    canisters: Sequence[Canister]
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel: bool | None = None
    constraint: Constraint | None = None
    controls: Controls = Controls()
    stream: bool = True
    extra: Mapping[str, Any] = {}

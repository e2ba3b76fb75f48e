"""The protocol of an adapter, and the names of modes and validations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from callboard.tools import Tool

AnyTool: TypeAlias = Tool[..., Any]
Message: TypeAlias = Mapping[str, Any]
Payload: TypeAlias = dict[str, Any]
"""A call `{"tool", "arguments"}`, an answer `{"answer"}` or a thought `{"scratchpad"}`; the first two may hold a thought.

A call whose arguments are no JSON object has `"arguments": None`, and in `raw` what the model wrote.
"""


class ToolCallingMode(Enum):
    """How calls are asked for."""

    AUTO = "auto"
    NATIVE = "native"
    STRUCTURED = "structured"
    VALIDATED = "validated"
    PARSED = "parsed"


@dataclass(frozen=True)
class ToolCallValidation:
    """`arguments` are normalised: coerced, defaults filled in; None where the call is invalid.

    `error_message` is for the model to read.
    """

    is_valid: bool
    error_message: str | None = None
    arguments: dict[str, Any] | None = None


@runtime_checkable
class ToolCallingAdapter(Protocol):
    """Anything with these methods is an adapter; ours have more (see `Adapter`)."""

    def format_request(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> dict[str, Any]:
        """Keywords to add to a chat completion request."""
        ...

    def extract_tool_call(self, response: Any) -> Payload | None:
        """What the model asks for or answers, None where it is nothing of the kind."""
        ...

    def validate_tool_call(self, payload: Payload | None, tools_by_name: Mapping[str, AnyTool]) -> ToolCallValidation:
        """Whether the call can be made, and with which arguments; what is no call is invalid."""
        ...

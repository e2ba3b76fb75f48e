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
"""A call `{"tool", "arguments"}`, an answer `{"answer"}` or a thought `{"scratchpad"}`; the first two may have a thought.

If the arguments of a call are not a JSON object, `"arguments"` is None and `raw` has the model's text.
"""


class ToolCallingMode(Enum):
    """How a model is asked for calls."""

    AUTO = "auto"
    NATIVE = "native"
    STRUCTURED = "structured"
    VALIDATED = "validated"
    PARSED = "parsed"


@dataclass(frozen=True)
class ToolCallValidation:
    """Whether a call is valid (`is_valid`). `arguments` are coerced and have defaults; None if the call is invalid.

    `error_message` is written for the model.
    """

    is_valid: bool
    error_message: str | None = None
    arguments: dict[str, Any] | None = None


@runtime_checkable
class ToolCallingAdapter(Protocol):
    """Anything with these methods is an adapter. Our adapters have more methods (see `Adapter`)."""

    def format_request(self, tools: Sequence[AnyTool], messages: Sequence[Message]) -> dict[str, Any]:
        """Return keywords that add `tools` and `messages` to a chat completion request."""
        ...

    def extract_tool_call(self, response: Any) -> Payload | None:
        """Return the call, answer or thought of the model's `response`, or None."""
        ...

    def validate_tool_call(self, payload: Payload | None, tools_by_name: Mapping[str, AnyTool]) -> ToolCallValidation:
        """Return whether the call `payload` can be made with `tools_by_name`, and its arguments.

        Anything but a call is invalid.
        """
        ...

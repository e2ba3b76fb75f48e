"""Adapters: one interface to every way of asking a model for calls, for callers with their own client."""

from callboard.adapters.adapter import NativeToolAdapter, OpenAIStructuredAdapter, ParsedAdapter, ValidatedAdapter
from callboard.adapters.extract_json import parse_json_response
from callboard.adapters.get_adapter import (
    NATIVE_TOOL_MODEL_PATTERNS,
    STRUCTURED_MODEL_PREFIXES,
    Adapter,
    get_adapter,
    mode_of,
)
from callboard.adapters.protocol import ToolCallingAdapter, ToolCallingMode, ToolCallValidation

__all__ = [
    "NATIVE_TOOL_MODEL_PATTERNS",
    "STRUCTURED_MODEL_PREFIXES",
    "Adapter",
    "NativeToolAdapter",
    "OpenAIStructuredAdapter",
    "ParsedAdapter",
    "ToolCallValidation",
    "ToolCallingAdapter",
    "ToolCallingMode",
    "ValidatedAdapter",
    "get_adapter",
    "mode_of",
    "parse_json_response",
]

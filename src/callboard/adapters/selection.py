"""Which adapter a model gets.

Owns seed 001's table of models' names. What is known of models beyond it is in `profiles`, for agents; the
table stays as the seed has it, so that a name gives the same adapter everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from callboard.adapters.adapter import NativeToolAdapter, OpenAIStructuredAdapter, ParsedAdapter, ValidatedAdapter
from callboard.adapters.contract import ToolCallingMode
from callboard.profiles import normalise, providers, split_provider

Adapter: TypeAlias = OpenAIStructuredAdapter | NativeToolAdapter | ValidatedAdapter | ParsedAdapter

STRUCTURED_MODEL_PREFIXES = ("gpt-4o", "gpt-4.1", "o1", "o3", "openai/gpt-oss")

NATIVE_TOOL_MODEL_PATTERNS = (
    "gpt-3.5",
    "gpt-4",
    "claude",
    "gemini",
    "mistral",
    "llama",
    "qwen",
    "deepseek",
    "openai/",
    "anthropic/",
    "google/",
    "meta-llama/",
    "mistralai/",
)

VALIDATED_MODEL_PREFIXES = ("mistral-7b",)
"""The seed's own example, against its table."""

ADAPTERS: Mapping[ToolCallingMode, type[Adapter]] = MappingProxyType(
    {
        ToolCallingMode.STRUCTURED: OpenAIStructuredAdapter,
        ToolCallingMode.NATIVE: NativeToolAdapter,
        ToolCallingMode.VALIDATED: ValidatedAdapter,
        ToolCallingMode.PARSED: ParsedAdapter,
    }
)


def get_adapter(model: str, mode: ToolCallingMode | str = ToolCallingMode.AUTO) -> Adapter:
    """The adapter of a mode, or with AUTO of a model by its name (seed 001). Raises ValueError for no such mode."""
    try:
        wanted = ToolCallingMode(mode)
    except ValueError:
        known = ", ".join(each.value for each in ToolCallingMode)
        raise ValueError(f"Unsupported tool calling mode: {mode!r}; there are {known}") from None
    return ADAPTERS[mode_of(model) if wanted is ToolCallingMode.AUTO else wanted]()


def mode_of(model: str) -> ToolCallingMode:
    """What the table says of a name: as it is written, else without what only says who serves it, else validated.

    A provider of ours before a colon (`openai:gpt-4o`) is no part of the name.
    """
    _, name = split_provider(model, providers())
    for each in (name.strip().lower(), normalise(name)):
        if each.startswith(VALIDATED_MODEL_PREFIXES):
            return ToolCallingMode.VALIDATED
        if each.startswith(STRUCTURED_MODEL_PREFIXES):
            return ToolCallingMode.STRUCTURED
        if any(pattern in each for pattern in NATIVE_TOOL_MODEL_PATTERNS):
            return ToolCallingMode.NATIVE
    return ToolCallingMode.VALIDATED

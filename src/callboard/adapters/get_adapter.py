"""Choose a model's adapter by its name.

The table decides first, so that the names of the specification give the same adapter everywhere; where it says nothing the model's
profile decides, which knows newer models.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from callboard.adapters.adapter import NativeToolAdapter, OpenAIStructuredAdapter, ParsedAdapter, ValidatedAdapter
from callboard.adapters.protocol import ToolCallingMode
from callboard.errors import CallerError
from callboard.profiles import normalise, providers, resolve, split_provider

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
"""The specification has this model in an example, against its own table."""

ADAPTERS: Mapping[ToolCallingMode, type[Adapter]] = MappingProxyType(
    {
        ToolCallingMode.STRUCTURED: OpenAIStructuredAdapter,
        ToolCallingMode.NATIVE: NativeToolAdapter,
        ToolCallingMode.VALIDATED: ValidatedAdapter,
        ToolCallingMode.PARSED: ParsedAdapter,
    }
)


def get_adapter(model: str, mode: ToolCallingMode | str = ToolCallingMode.AUTO) -> Adapter:
    """The adapter of a mode, or with AUTO of a model by its name.

    Raises ValueError for no such mode, and CallerError for what is no name.
    """
    try:
        requested = ToolCallingMode(mode)
    except ValueError:
        known = ", ".join(each.value for each in ToolCallingMode)
        raise ValueError(f"Unsupported tool calling mode: {mode!r}; there are {known}") from None
    return ADAPTERS[mode_of(model) if requested is ToolCallingMode.AUTO else requested]()


def mode_of(model: str) -> ToolCallingMode:
    """The mode of a model by its name.

    Args:
        model: The name. A provider of ours before a colon (`openai:gpt-4o`) is no part of it.

    Returns:
        What the table says of the name as it is written, else of the name without what only says who serves it,
        else what the model's profile says: validated where nothing is known.

    Raises:
        CallerError: It is no name.
    """
    if not isinstance(model, str):
        raise CallerError(f"a {type(model).__name__} is no model's name", hint="give one such as 'gpt-4o'")
    _, name = split_provider(model, providers())
    for each in (name.strip().lower(), normalise(name)):
        if each.startswith(VALIDATED_MODEL_PREFIXES):
            return ToolCallingMode.VALIDATED
        if each.startswith(STRUCTURED_MODEL_PREFIXES):
            return ToolCallingMode.STRUCTURED
        if any(pattern in each for pattern in NATIVE_TOOL_MODEL_PATTERNS):
            return ToolCallingMode.NATIVE
    return ToolCallingMode(resolve(model).mode) if name.strip() else ToolCallingMode.VALIDATED

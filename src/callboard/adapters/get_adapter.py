"""Choose a model's adapter by its name.

The table decides first, so that the names of the specification give the same adapter everywhere. For all other names
the model's profile decides, because it covers newer models.
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
"""Models that the specification's example treats differently from its own table."""

ADAPTERS: Mapping[ToolCallingMode, type[Adapter]] = MappingProxyType(
    {
        ToolCallingMode.STRUCTURED: OpenAIStructuredAdapter,
        ToolCallingMode.NATIVE: NativeToolAdapter,
        ToolCallingMode.VALIDATED: ValidatedAdapter,
        ToolCallingMode.PARSED: ParsedAdapter,
    }
)


def get_adapter(model: str, mode: ToolCallingMode | str = ToolCallingMode.AUTO) -> Adapter:
    """Return the adapter of a `mode`, or with AUTO the adapter of the `model`.

    Raises ValueError for an unknown mode, and CallerError if the model is not a name.
    """
    try:
        requested = ToolCallingMode(mode)
    except ValueError:
        known = ", ".join(each.value for each in ToolCallingMode)
        raise ValueError(f"Unsupported tool calling mode: {mode!r}; there are {known}") from None
    return ADAPTERS[mode_of(model) if requested is ToolCallingMode.AUTO else requested]()


def mode_of(model: str) -> ToolCallingMode:
    """Return the mode of a model by its name.

    Args:
        model: The name. A known provider before a colon (`openai:gpt-4o`) is not part of it.

    Returns:
        The table's mode for the name as it is written, otherwise for the name without its provider, otherwise the mode
        of the model's profile: validated for unknown models.

    Raises:
        CallerError: The model is not a name.
    """
    if not isinstance(model, str):
        raise CallerError(f"a {type(model).__name__} is not a model's name", hint="give one such as 'gpt-4o'")
    _, name = split_provider(model, providers())
    for each in (name.strip().lower(), normalise(name)):
        if each.startswith(VALIDATED_MODEL_PREFIXES):
            return ToolCallingMode.VALIDATED
        if each.startswith(STRUCTURED_MODEL_PREFIXES):
            return ToolCallingMode.STRUCTURED
        if any(pattern in each for pattern in NATIVE_TOOL_MODEL_PATTERNS):
            return ToolCallingMode.NATIVE
    return ToolCallingMode(resolve(model).mode) if name.strip() else ToolCallingMode.VALIDATED

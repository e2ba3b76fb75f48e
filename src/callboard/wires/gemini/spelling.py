"""Names of a body in the one spelling that the shapes have.

Owns which of a client's fields are renamed. Google reads `system_instruction` and `systemInstruction` alike, and
its own examples use both. Knows nothing of what the fields mean.
Law: what a user or a tool named is never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ANYBODY_S = frozenset(
    {
        "args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema",
        "labels", "partMetadata", "videoMetadata", "mediaResolution", "text", "data",
    }
)  # fmt: skip
"""Fields in which names are not Google's; those of schemas are read where schemas are."""


_NESTED = frozenset({dict, list})


def camel(value: Any) -> Any:
    """The value with its names in camel case, itself where they are already."""
    return _renamed(value) if _has_snakes(value) else value


def _has_snakes(value: Any) -> bool:
    if type(value) is list:
        return any(_has_snakes(item) for item in value if type(item) in _NESTED)
    if not isinstance(value, dict) and not isinstance(value, Mapping):
        return False
    for key, inner in value.items():
        if "_" in key or (type(inner) in _NESTED and key not in _ANYBODY_S and _has_snakes(inner)):
            return True
    return False


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    named = ((_camel(key), inner) for key, inner in value.items())
    return {name: inner if name in _ANYBODY_S else _renamed(inner) for name, inner in named}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join([word[:1].upper() + word[1:] for word in rest]) if head else name

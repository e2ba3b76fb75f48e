"""Which backends serve a model, and in which order they are asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import TypeAlias

from callboard.servers.gateway.settings import BackendSettings

_Pattern: TypeAlias = "tuple[re.Pattern[str], ...] | None"
"""One expression for each part between slashes; None matches every name."""


class ModelRouter:
    """`draw` gives numbers from 0 to 1."""

    def __init__(self, backends: Sequence[BackendSettings], draw: Callable[[], float]) -> None:
        self._rows = [(each, [_compile(pattern) for pattern in each.models]) for each in backends]
        self._draw = draw

    def backends_for(self, model: str) -> list[tuple[int, str]]:
        """The places of the backends that serve the model, and the name that each has for it, the first first."""
        serving = [
            (place, each, each.model_map.get(model, model))
            for place, (each, patterns) in enumerate(self._rows)
            if model in each.model_map or any(_matches(pattern, model) for pattern in patterns)
        ]
        if len(serving) > 1:
            # A draw without replacement: the logarithms of uniform numbers, divided by the weights, in order.
            ranked = [self._draw() ** (1 / each.weight) if each.weight > 0 else -1 for _, each, _ in serving]
            order = sorted(range(len(serving)), key=ranked.__getitem__, reverse=True)
            serving = [serving[at] for at in order]
        return [(place, name) for place, _, name in serving]

    def has_mapping(self, model: str) -> bool:
        """Whether the operator wrote this name into a map."""
        return any(model in each.model_map for each, _ in self._rows)

    def mapped_names(self) -> list[str]:
        """The names that the maps add."""
        return [name for each, _ in self._rows for name in each.model_map]


def _compile(pattern: str) -> _Pattern:
    """As in paths: `*` and `?` match no slash, but a pattern that is only `*` matches every name.

    Else `gemini-2.5-flash*` would let a client ask for `gemini-2.5-flash/anything` with the operator's key.
    """
    if not pattern.strip("*"):
        return None if pattern else ()
    return tuple([re.compile(translate(part), re.IGNORECASE) for part in pattern.split("/")])


def _matches(pattern: _Pattern, model: str) -> bool:
    if pattern is None:
        return True
    parts = model.split("/")
    return len(parts) == len(pattern) and all(each.match(part) for each, part in zip(pattern, parts, strict=True))

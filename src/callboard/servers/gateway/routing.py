"""Which backends are asked for a model, in which order.

Owns the table of patterns and the draw among equals. Knows nothing of backends but their settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

from callboard.servers.gateway.settings import BackendSettings


class Routes:
    """`draw` gives numbers from 0 to 1."""

    def __init__(self, backends: Sequence[BackendSettings], draw: Callable[[], float]) -> None:
        self._rows = [
            (each, re.compile("|".join([translate(pattern) for pattern in each.models]) or r"(?!)", re.IGNORECASE))
            for each in backends
        ]
        self._draw = draw

    def to(self, model: str) -> list[tuple[int, str]]:
        """The places of the backends that serve the model, and the name that each has for it, the first first."""
        found = [
            (place, each, each.map.get(model, model))
            for place, (each, pattern) in enumerate(self._rows)
            if model in each.map or pattern.match(model)
        ]
        if len(found) > 1:
            # A draw without replacement: the logarithms of uniform numbers, divided by the weights, in order.
            ranked = [self._draw() ** (1 / each.weight) if each.weight > 0 else -1 for _, each, _ in found]
            order = sorted(range(len(found)), key=ranked.__getitem__, reverse=True)
            found = [found[at] for at in order]
        return [(place, name) for place, _, name in found]

    def names(self) -> list[str]:
        """The names that the maps add."""
        return [name for each, _ in self._rows for name in each.map]

"""Which models turned out to take no tools.

What a backend says when it refuses may be the words of the client that asked, so nobody is believed for others: what
one owner's requests showed holds for that owner, for a while. Bounded for each owner and for all, so that names and keys
that a client makes up push out nothing but its own.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

SECONDS = 600.0
"""After these the backend is asked with tools again: it may have been started anew, with other flags."""
_MOST_MODELS = 16
_MOST_OWNERS = 256


class Learned:
    """`clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._until.values()))

    def add(self, owner: str, model: str) -> None:
        """For a while this owner asks the model without tools."""
        models = self._until.pop(owner, {})
        models.pop(model, None)
        models[model] = self._clock() + SECONDS
        if len(models) > _MOST_MODELS:
            del models[next(iter(models))]
        self._until[owner] = models
        if len(self._until) > _MOST_OWNERS:
            del self._until[next(iter(self._until))]

    def takes_tools(self, owner: str, model: str) -> bool:
        """Whether this owner's requests are sent with tools."""
        until = self._until.get(owner, {}).get(model)
        return until is None or self._clock() >= until

    def clear(self) -> None:
        self._until.clear()

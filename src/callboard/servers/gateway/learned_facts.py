"""Facts of models that refusals have shown, kept for a while for one owner.

The text of a refusal may repeat what the client sent, so nobody's requests teach anything for others. Bounded for each
owner and for all, so that names and keys that a client makes up push out nothing but its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

SECONDS = 600.0
"""After these the facts are forgotten: the backend may have been restarted with other flags."""
_MAX_MODELS = 16
_MAX_OWNERS = 256


class LearnedFacts:
    """`clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._facts: dict[str, dict[str, tuple[float, Mapping[str, Any]]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._facts.values()))

    def add(self, owner: str, model: str, facts: Mapping[str, Any]) -> None:
        """Add facts for this owner's requests to the model, for a while."""
        facts = {**self.facts(owner, model), **facts}
        models = self._facts.pop(owner, {})
        models.pop(model, None)
        models[model] = self._clock() + SECONDS, facts
        if len(models) > _MAX_MODELS:
            del models[next(iter(models))]
        self._facts[owner] = models
        if len(self._facts) > _MAX_OWNERS:
            del self._facts[next(iter(self._facts))]

    def facts(self, owner: str, model: str) -> Mapping[str, Any]:
        """What is known for this owner's requests to the model."""
        until, facts = self._facts.get(owner, {}).get(model, (0.0, {}))
        return facts if self._clock() < until else {}

    def facts_by_model(self, owner: str) -> dict[str, Mapping[str, Any]]:
        """The facts of every model that has some."""
        return {model: facts for model in self._facts.get(owner, {}) if (facts := self.facts(owner, model))}

    def clear(self) -> None:
        self._facts.clear()

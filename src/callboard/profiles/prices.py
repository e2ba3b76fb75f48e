"""What tokens cost.

Owns the arithmetic. Knows no price: they are facts of a profile.
"""

from __future__ import annotations

import msgspec

from callboard.core import Usage


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What a million tokens cost. `cached` are input tokens that the provider had seen before."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None

    def cost(self, usage: Usage) -> float:
        """The cost of the usage, in the prices' currency."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input - usage.cached
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / 1_000_000

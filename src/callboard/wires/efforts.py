"""How much thinking an effort is.

Owns the one scale between words and tokens. Knows no wire.
"""

from __future__ import annotations

from collections.abc import Mapping

BUDGETS: Mapping[str, int] = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
"""Tokens; those of low, medium and high are Google's own for OpenAI's efforts."""


def effort_of(budget: int) -> str:
    """The least effort that has the budget, in tokens; `high` for all above it, `none` for none."""
    if budget <= 0:
        return "none"
    return next((effort for effort, most in BUDGETS.items() if budget <= most), "high")

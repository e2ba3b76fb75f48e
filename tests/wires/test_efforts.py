"""How much thinking an effort is."""

from __future__ import annotations

import pytest

from callboard.wires.efforts import BUDGETS, effort_of


@pytest.mark.parametrize(
    ("budget", "effort"), [(-1, "none"), (0, "none"), (1, "minimal"), (1024, "low"), (1025, "medium"), (99999, "high")]
)
def test_efforts_of_budgets(budget, effort):
    assert effort_of(budget) == effort


def test_an_effort_s_budget_is_its_own():
    assert [effort_of(BUDGETS[effort]) for effort in ("minimal", "low", "medium", "high")] == list(BUDGETS)[:4]

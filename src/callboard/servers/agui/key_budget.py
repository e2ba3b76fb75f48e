"""The budgets of a gateway, for the jobs that its clients began: that of the key, and that of the day.

They are compared before a segment and before each round, and what a reply cost is added when it has ended. So a run that
finds them spent fails, as a request is refused, after the reply that spent them.
"""

from __future__ import annotations

from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.spending import Spending


class KeyBudget:
    """What is left to one key."""

    setting = "budget_per_day, key_budgets"

    def __init__(self, spending: Spending, owner: str) -> None:
        self.refusal = ""
        """Why nothing may be asked for, as of the last look."""
        self._spending = spending
        self._owner = owner

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, or the store does not tell."""
        return bool(self.refusal)

    async def add(self, dollars: float) -> None:
        """Add what a reply cost, and look what is left."""
        self._spending.charge(self._owner, dollars)
        await self.look()

    async def look(self) -> None:
        """Look what is left."""
        try:
            await self._spending.check(self._owner)
        except HttpError as error:
            self.refusal = error.failure.message
        else:
            self.refusal = ""

"""How long the doctor asks, and how often.

Law: no request begins once the seconds or the requests are spent, and none may take longer than what is left, so that
the whole examination ends in time however slow a backend is.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

SECONDS: Final = 110.0
"""By default: with what is around the questions, under two minutes."""
REQUESTS: Final = 150
_SHARE: Final = 3
"""One request may take this part of all seconds: one that hangs must not cost every other answer."""


class BudgetSpent(Exception):  # no error: the rest is not asked
    """There is no time, or no request, left."""


class DoctorBudget:
    """Seconds and requests; `clock` gives seconds."""

    def __init__(
        self, seconds: float = SECONDS, requests: int = REQUESTS, clock: Callable[[], float] = monotonic
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds
        self._requests = self._requests_left = requests

    @property
    def is_spent(self) -> bool:
        return self._requests_left <= 0 or self._clock() >= self._end

    @property
    def reason(self) -> str:
        """Why nothing more is asked."""
        return (
            f"{self._requests} request{'s' * (self._requests != 1)} sent"
            if self._requests_left <= 0
            else f"{self._seconds:g} s passed"
        )

    def take(self) -> float:
        """Count one request, and return the seconds that it may take. Raises BudgetSpent."""
        if self.is_spent:
            raise BudgetSpent
        self._requests_left -= 1
        return min(self._end - self._clock(), self._seconds / _SHARE)

"""Whether a backend is asked at all.

Owns the count of its failures in a row and the pause that follows. Knows nothing of requests or clocks: it is told
what happened and what time it is, in seconds of any clock that only goes forward.
Law: after the pause one request tries; the others wait for what becomes of it.
"""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "open", "half-open"]
LONGEST = 600.0
"""Seconds that a backend may ask to be left alone for."""


class Breaker:
    """Opens after `failures` in a row, for `pause` seconds or as long as the backend asks."""

    def __init__(self, failures: int = 5, pause: float = 30.0) -> None:
        self._most = failures
        self._pause = pause
        self._shut_for = 0.0
        self._until = 0.0
        self._probing_since: float | None = None
        self.failures = 0

    def state(self, now: float) -> State:
        if self.failures < self._most:
            return "closed"
        return "open" if now < self._until else "half-open"

    def wait(self, now: float) -> float:
        """Seconds until it may be asked; 0 if it may. Whoever gets 0 asks, and tells what came of it."""
        if self.failures < self._most:
            return 0.0
        if now < self._until:
            return min(self._until - now, self._shut_for)  # a sum of floats may round upwards
        # A probe of which nothing was heard for a pause is forgotten.
        if self._probing_since is not None and now - self._probing_since < self._pause:
            return min(self._probing_since + self._pause - now, self._pause)
        self._probing_since = now
        return 0.0

    def succeeded(self) -> None:
        self.failures = 0
        self._probing_since = None

    def failed(self, now: float, retry_after: float | None = None) -> None:
        """A fault of the backend's own: 5xx, a timeout, the network."""
        self.failures += 1
        self._probing_since = None
        if self.failures >= self._most:
            self._shut_for = max(self._pause, min(retry_after or 0.0, LONGEST))
            self._until = now + self._shut_for

    def left(self) -> None:
        """Nothing was learned: the client went, or the fault was the client's."""
        self._probing_since = None

"""How things stand with a server.

Owns the five states, what leads from one to another, and how long to wait before the next try. Knows neither
servers nor clocks: the time is an argument.
Law: only success forgets the failures before it, and a connection is a success when it has answered a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal["idle", "connecting", "ready", "backoff", "failed"]
Happening: TypeAlias = Literal["trying", "opened", "answered", "refused", "lost", "hopeless", "started", "closed"]

DELAYS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the next try, by the failures in a row; the last one for all that follow."""

_NEXT: Final[Mapping[tuple[State, Happening], State]] = {
    ("idle", "started"): "idle",
    ("idle", "trying"): "connecting",
    ("connecting", "started"): "connecting",
    ("connecting", "opened"): "ready",
    ("connecting", "refused"): "backoff",
    ("connecting", "hopeless"): "failed",
    ("ready", "started"): "ready",
    ("ready", "answered"): "ready",
    ("ready", "lost"): "backoff",
    ("backoff", "started"): "backoff",
    ("backoff", "trying"): "connecting",
    ("failed", "started"): "idle",
    ("idle", "closed"): "idle",
    ("connecting", "closed"): "idle",
    ("ready", "closed"): "idle",
    ("backoff", "closed"): "idle",
    ("failed", "closed"): "failed",
}


class Standing:
    """The state of one server, and when it may be tried again."""

    def __init__(self) -> None:
        self.state: State = "idle"
        self._failures = 0
        self._not_before = 0.0

    def feed(self, happening: Happening, now: float) -> State:
        """The state after it; `now` in seconds of any clock that only goes forward. Raises KeyError for what
        cannot happen in this state.
        """
        self.state = _NEXT[self.state, happening]
        match happening:
            case "refused" | "lost":
                self._not_before = now + DELAYS[min(self._failures, len(DELAYS) - 1)]
                self._failures += 1
            case "answered":
                self._failures = 0
            case "started":
                self._not_before = now
            case _:
                pass
        return self.state

    def wait(self, now: float) -> float:
        """Seconds until it may be tried."""
        return max(0.0, self._not_before - now)

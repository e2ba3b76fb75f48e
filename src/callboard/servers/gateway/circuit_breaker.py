"""Circuit breakers: a backend that fails in a row is not asked for a while.

They know no clock: callers pass the time, in seconds of any clock that only goes forward.

A request may itself be why a backend fails, so one client's failures keep the backend from that client alone. They keep
it from all when several clients saw it fail, none of them more than half of the times. A reply to anybody disproves all
that was counted before.

Law: after the recovery time one request tries; the others wait for its outcome.
"""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "open", "half-open"]
MAX_OPEN_SECONDS = 600.0
"""Longest pause that a backend may ask for, in seconds."""
_MAX_OWNERS = 256
"""Clients whose failures are counted; the oldest are forgotten."""


class CircuitBreaker:
    """Opens after so many failures in a row, for `recovery_seconds` or as long as the backend asks."""

    def __init__(self, failure_threshold: int = 5, recovery_seconds: float = 30.0) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._open_seconds = 0.0
        self._open_until: float | None = None
        """None is closed."""
        self._probing_since: float | None = None
        self.failures = 0
        self._doubts = 0

    def state(self, now: float) -> State:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half-open"

    def seconds_to_wait(self, now: float) -> float:
        """Seconds until the backend may be asked. On 0 the caller asks, and then records the outcome."""
        if self._open_until is None:
            return 0.0
        if now < self._open_until:
            return min(self._open_until - now, self._open_seconds)  # a sum of floats may round upwards
        # A probe without an outcome for as long as a recovery is forgotten.
        if self._probing_since is not None and now - self._probing_since < self._recovery_seconds:
            return min(self._probing_since + self._recovery_seconds - now, self._recovery_seconds)
        self._probing_since = now
        return 0.0

    def record_success(self) -> None:
        self.failures = self._doubts = 0
        self._open_until = self._probing_since = None

    def record_failure(self, now: float, retry_after: float | None = None, *, doubtful: bool = False) -> None:
        """A fault of the backend's own: 5xx, a timeout, the network. A `doubtful` one counts half."""
        self.failures += 1
        self._doubts += doubtful
        self._probing_since = None
        if self.failures - self._doubts >= self._threshold or self.failures >= 2 * self._threshold:
            self.open(now, retry_after)

    def open(self, now: float, retry_after: float | None = None) -> None:
        """Open at once, whatever the count."""
        self._probing_since = None
        self._open_seconds = max(self._recovery_seconds, min(retry_after or 0.0, MAX_OPEN_SECONDS))
        self._open_until = now + self._open_seconds

    def release(self) -> None:
        """The request ended without an outcome: the client left, or the fault was the client's."""
        self._probing_since = None


class SharedCircuitBreaker:
    """A backend's breaker, for many clients.

    Args:
        failure_threshold: Failures in a row that open it for one client; of all clients it takes as many, but of each
            no more than half of them count.
        recovery_seconds: Seconds for which it is open.
        shared: Whether several clients are known for certain. One client's failures then say nothing of the backend's
            state, which load balancers read from /health.
    """

    def __init__(self, failure_threshold: int = 5, recovery_seconds: float = 30.0, *, shared: bool = False) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._shared = shared
        self._all = CircuitBreaker(failure_threshold, recovery_seconds)
        self._owners: dict[str, CircuitBreaker] = {}
        """Those who saw it fail since its last reply."""

    def make_another(self) -> SharedCircuitBreaker:
        """A closed breaker with the same limits."""
        return SharedCircuitBreaker(self._threshold, self._recovery_seconds, shared=self._shared)

    @property
    def failures(self) -> int:
        """Failures in a row, of all clients."""
        return sum([each.failures for each in self._owners.values()])

    def state(self, now: float) -> State:
        """For all; where clients cannot be told apart for certain, also for all who saw it fail."""
        states = {each.state(now) for each in self._owners.values()}
        if self._shared or "closed" in states or not states:
            return self._all.state(now)
        return "open" if "open" in (*states, self._all.state(now)) else "half-open"

    def seconds_to_wait(self, now: float, owner: str = "") -> float:
        """Seconds until this client may ask the backend. On 0 the caller asks, and then records the outcome."""
        own = self._owners.get(owner)
        if own is not None and (pause := own.seconds_to_wait(now)):
            return pause
        if (pause := self._all.seconds_to_wait(now)) and own is not None:
            own.release()
        return pause

    def record_success(self) -> None:
        self._owners.clear()
        self._all.record_success()

    def record_failure(
        self, now: float, owner: str = "", retry_after: float | None = None, *, doubtful: bool = False
    ) -> None:
        """A fault of the backend's own.

        Args:
            now: Seconds.
            owner: The client whose request it was.
            retry_after: Seconds that the backend asks to be left alone for.
            doubtful: It answered, and the request may be why it failed: a status of 500. Alone such failures open the
                breaker for their client after twice as many.
        """
        own = self._owners.pop(owner, None) or CircuitBreaker(self._threshold, self._recovery_seconds)
        while len(self._owners) >= _MAX_OWNERS:
            del self._owners[next(iter(self._owners))]
        self._owners[owner] = own
        own.record_failure(now, retry_after, doubtful=doubtful)
        share = (self._threshold + 1) // 2
        counted = sum([min(each.failures, share) for each in self._owners.values()])
        if len(self._owners) > 1 and counted >= self._threshold:
            self._all.open(now, retry_after)
        else:
            self._all.release()

    def release(self, owner: str = "") -> None:
        """The request ended without an outcome: the client left, or the fault was the client's."""
        if owner in self._owners:
            self._owners[owner].release()
        self._all.release()

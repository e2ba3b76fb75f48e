"""Circuit breakers: stop asking a backend for a while after it fails several times in a row.

They have no clock: callers pass the time, in seconds of a monotonic clock.

The request may be the reason for a failure. So one client's failures block the backend for that client only. They block
it for all clients if several clients saw failures and no client saw more than half of them. A successful reply to any
client clears all counts.

Law: after the recovery time one request tries the backend; the others wait for its outcome.
"""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "open", "half-open"]
MAX_OPEN_SECONDS = 600.0
"""Longest pause that a backend may request, in seconds."""
_MAX_OWNERS = 256
"""Maximum clients whose failures are counted. The oldest are dropped."""


class CircuitBreaker:
    """Opens after several failures in a row, for `recovery_seconds` or as long as the backend asks."""

    def __init__(self, failure_threshold: int = 5, recovery_seconds: float = 30.0) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._open_seconds = 0.0
        self._open_until: float | None = None
        """End of the pause. None if the breaker is closed."""
        self._probing_since: float | None = None
        self.failures = 0
        self._doubts = 0

    def state(self, now: float) -> State:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half-open"

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until the backend may be asked. On 0 the caller asks, then records the outcome."""
        if self._open_until is None:
            return 0.0
        if now < self._open_until:
            return min(self._open_until - now, self._open_seconds)  # floats may round up
        # Forget a probe without an outcome after the recovery time.
        if self._probing_since is not None and now - self._probing_since < self._recovery_seconds:
            return min(self._probing_since + self._recovery_seconds - now, self._recovery_seconds)
        self._probing_since = now
        return 0.0

    def record_success(self) -> None:
        self.failures = self._doubts = 0
        self._open_until = self._probing_since = None

    def record_failure(self, now: float, retry_after: float | None = None, *, doubtful: bool = False) -> None:
        """Record a failure of the backend: 5xx, a timeout, the network. A `doubtful` failure counts half."""
        self.failures += 1
        self._doubts += doubtful
        self._probing_since = None
        if self.failures - self._doubts >= self._threshold or self.failures >= 2 * self._threshold:
            self.open(now, retry_after)

    def open(self, now: float, retry_after: float | None = None) -> None:
        """Open now, regardless of the count."""
        self._pause(now, max(self._recovery_seconds, min(retry_after or 0.0, MAX_OPEN_SECONDS)))

    def follow(self, now: float, seconds: float) -> None:
        """Open for these seconds, because another gateway's breaker did. The next failure opens it again."""
        self.failures = max(self.failures, self._threshold + self._doubts)
        self._pause(now, seconds)

    def _pause(self, now: float, seconds: float) -> None:
        self._probing_since = None
        self._open_seconds = seconds
        self._open_until = now + seconds

    def release(self) -> None:
        """Record a request without an outcome: the client left, or the client caused the failure."""
        self._probing_since = None


class SharedCircuitBreaker:
    """A backend's breaker that many clients share.

    Args:
        failure_threshold: Failures in a row that open the breaker for one client. The same number opens it for all
            clients, but at most half of them may come from one client.
        recovery_seconds: Seconds that the breaker stays open.
        shared: True if the clients are known to differ. One client's failures then do not change `state`, which load
            balancers read from /health.
    """

    def __init__(self, failure_threshold: int = 5, recovery_seconds: float = 30.0, *, shared: bool = False) -> None:
        self._threshold = failure_threshold
        self._recovery_seconds = recovery_seconds
        self._shared = shared
        self._all = CircuitBreaker(failure_threshold, recovery_seconds)
        self._owners: dict[str, CircuitBreaker] = {}
        """Breakers of the clients that saw failures since the last reply, by owner."""

    def make_another(self) -> SharedCircuitBreaker:
        """Return a closed breaker with the same limits."""
        return SharedCircuitBreaker(self._threshold, self._recovery_seconds, shared=self._shared)

    @property
    def failures(self) -> int:
        """Failures in a row, summed over all clients."""
        return sum([each.failures for each in self._owners.values()])

    def state(self, now: float) -> State:
        """Return the state for all clients. If they are not known to differ, the clients' own breakers count too."""
        states = {each.state(now) for each in self._owners.values()}
        if self._shared or "closed" in states or not states:
            return self._all.state(now)
        return "open" if "open" in (*states, self._all.state(now)) else "half-open"

    def seconds_to_wait(self, now: float, owner: str = "") -> float:
        """Return the seconds until this client may ask the backend. On 0 the caller asks, then records the outcome."""
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
        """Record a failure of the backend.

        Args:
            now: Current time in seconds.
            owner: The client that sent the request.
            retry_after: Seconds that the backend asked to wait.
            doubtful: True if the request may be the cause, as with status 500. It takes twice as many such failures
                to open the breaker for the client.
        """
        self._own(owner).record_failure(now, retry_after, doubtful=doubtful)
        share = (self._threshold + 1) // 2
        counted = sum([min(each.failures, share) for each in self._owners.values()])
        if len(self._owners) > 1 and counted >= self._threshold:
            self._all.open(now, retry_after)
        else:
            self._all.release()

    def release(self, owner: str = "") -> None:
        """Record a request without an outcome: the client left, or the client caused the failure."""
        if owner in self._owners:
            self._owners[owner].release()
        self._all.release()

    def pauses(self, now: float) -> dict[str | None, float]:
        """Return the seconds that the open breakers stay open, by client. None stands for all clients."""
        breakers = ((None, self._all), *self._owners.items())
        return {owner: each.seconds_to_wait(now) for owner, each in breakers if each.state(now) == "open"}

    def pause(self, now: float, owner: str | None, seconds: float) -> None:
        """Open for a client, or with None for all clients, because another gateway did."""
        (self._all if owner is None else self._own(owner)).follow(now, seconds)

    def end_pause(self, owner: str | None) -> None:
        """Close for a client, or with None for all clients, because another gateway got a reply."""
        if owner is None:
            self._all.record_success()
        else:
            self._owners.pop(owner, None)

    def _own(self, owner: str) -> CircuitBreaker:
        """Return the breaker of a client, and make it the newest."""
        own = self._owners.pop(owner, None) or CircuitBreaker(self._threshold, self._recovery_seconds)
        while len(self._owners) >= _MAX_OWNERS:
            del self._owners[next(iter(self._owners))]
        self._owners[owner] = own
        return own

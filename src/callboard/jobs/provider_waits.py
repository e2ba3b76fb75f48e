"""A job waits while the provider of its model is overloaded or cannot be reached.

A request waits for up to a minute within the run. After that the job waits in no process, and longer each time that no
reply came in between. Failures that no waiting cures, such as a wrong key or a malformed request, fail the job.
"""

from __future__ import annotations

from typing import Final

from callboard.errors import CallboardError, ProviderError
from callboard.jobs.kinds import Waits
from callboard.jobs.segment import JobSegment

RATE_LIMITS: Final = frozenset({"rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "overloaded_error"})
"""Codes of providers that ask to come back later."""
OUTAGES: Final = frozenset({"unreachable", "cut", "timeout", "backend_unavailable", "UNAVAILABLE", "DEADLINE_EXCEEDED"})
"""Codes of connections that were refused, broke or went silent, and of servers that could not reach another server."""
FIRST_PAUSE: Final = 30.0
"""Seconds of the first wait. Each further wait is twice as long, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 900.0
LONGEST_WAIT: Final = 86400.0
"""Seconds. A provider that asks for a longer wait is asked again after this time."""


def may_pass(failure: CallboardError | None) -> bool:
    """Return whether the same request may succeed later."""
    if not isinstance(failure, ProviderError) or failure.party == "caller":
        return False
    return failure.retry_after is not None or failure.code in RATE_LIMITS | OUTAGES


async def wait_for_provider(segment: JobSegment, failure: CallboardError) -> Waits:
    """Return a wait of the segment's job, at least as long as the provider asks for."""
    job = segment.job
    round_before, pause = job.memory.get("rate_limit", (-1, 0.0))
    pause = min(pause * 2, LONGEST_PAUSE) if round_before == job.rounds else FIRST_PAUSE
    await segment.claim.append((), memory={**job.memory, "rate_limit": (job.rounds, pause)})
    retry_after = failure.retry_after if isinstance(failure, ProviderError) else None
    delay = max(pause, min(retry_after or 0.0, LONGEST_WAIT))
    return Waits(waits_for="rate_limit", reason=str(failure), delay=delay)

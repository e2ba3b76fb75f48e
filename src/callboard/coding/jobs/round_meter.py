"""What each round of a run took: a stage from the events of a run to a `RoundMeasured` for each of its rounds.

For runs that no journal is written of: a journal measures rounds itself.
"""

from __future__ import annotations

from datetime import datetime

from callboard.coding.jobs.log import RoundMeasured
from callboard.core import Event, ReplyEnded, ReplyFailed, ResultReady, RoundStarted, RunEnded, Usage
from callboard.profiles import Pricing


class RoundMeter:
    """A stage: feed it each event with the time at which it happened.

    Args:
        pricing: Makes the cost of replies; without it the cost is unknown.
    """

    def __init__(self, pricing: Pricing | None) -> None:
        self._pricing = pricing
        self._number = 0
        """Of the round that is measured; 0 for none."""
        self._began_at: datetime | None = None
        self._replied_at: datetime | None = None
        self._usage = Usage()
        """Of the reply that comes."""
        self._sum = Usage()
        """Of the replies of the round that ended: one that is asked for again is another."""
        self._costs: list[float | None] = []
        """Of these replies, each by itself: with a row of models, another model may have given each."""
        self._ended: dict[str, datetime] = {}

    def feed(self, event: Event, now: datetime) -> list[RoundMeasured]:
        """The round that has ended with this event, if one has."""
        match event:
            case RoundStarted(number=number):
                measured = self.finish(now)
                self._number, self._began_at, self._replied_at = number, now, None
                self._usage = self._sum = Usage()
                self._costs, self._ended = [], {}
                return measured
            case Usage():
                self._usage = event
            case ReplyEnded() | ReplyFailed():
                self._end_reply(now)
                self._replied_at = now
            case ResultReady(canister=result):
                self._ended[result.invocation_id] = now
            case RunEnded():
                return self.finish(now)
            case _:
                pass
        return []

    def finish(self, now: datetime) -> list[RoundMeasured]:
        """The round that is measured, as far as it came."""
        if not self._number or self._began_at is None:
            return []
        self._end_reply(now)
        known = [each for each in self._costs if each is not None]
        measured = RoundMeasured(
            self._number,
            self._began_at,
            self._replied_at or now,
            self._sum.counts(),
            sum(known) if known and len(known) == len(self._costs) else None,
            self._ended,
        )
        self._number = 0
        return [measured]

    def _end_reply(self, now: datetime) -> None:
        usage, self._usage = self._usage, Usage()
        if usage != Usage():
            self._sum += usage
            self._costs.append(self._pricing.cost(usage, now) if self._pricing is not None else None)

"""Limits over all workers: starts per minute for each model, and a budget per day for all jobs.

Each model has a row with the time of its next start. A segment that comes earlier reserves the next free time. A day
starts at 00:00 UTC, and has a row with the cost of its replies. The cost is checked before each segment and each round.
So the replies that are running when the budget is reached can exceed it by their own cost.

A job waits for a start or the next day as it waits for a rate limit: without a place in a worker. A segment waits for
its model only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, select, update

from callboard.core.ports import Clock
from callboard.jobs.database import Database
from callboard.jobs.job import JobSummary
from callboard.jobs.tables import day_costs, insert_once, model_starts, to_microseconds
from callboard.profiles import describe_day_spent, seconds_to_next_day

_MINUTE: Final = 60_000_000
"""A minute in microseconds."""


class JobLimits:
    """The limits of a database's jobs.

    Args:
        database: The database of the jobs.
        starts: Maximum starts of segments per minute, by the names of models.
        dollars: Daily budget of all jobs in US dollars, None for no limit.
        clock: Returns the time in UTC.
    """

    setting = "jobs.budget_per_day"

    def __init__(
        self,
        database: Database,
        starts: Mapping[str, int],
        dollars: float | None = None,
        *,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self.dollars = dollars
        self._database = database
        self._starts = starts
        self._clock = clock
        self._day = ""
        self._sum = 0.0
        """Cost of `_day` in US dollars, as last read."""

    @property
    def is_spent(self) -> bool:
        return self.dollars is not None and self._day == self._today() and self._sum >= self.dollars

    async def add(self, dollars: float) -> None:
        day = self._today()

        def add(connection: Connection) -> float:
            connection.execute(insert_once(day_costs, connection), {"day": day, "cost": 0.0})
            row = day_costs.c.day == day
            connection.execute(update(day_costs).where(row).values(cost=day_costs.c.cost + dollars))
            return connection.scalar(select(day_costs.c.cost).where(row)) or 0.0

        self._sum, self._day = await self._database.run(add), day

    async def reserve(self, job: JobSummary, model: str) -> tuple[float, str]:
        """Return how many seconds the job's present segment must wait, and why."""
        if self.dollars is not None:
            await self.add(0.0)
            if self.is_spent:
                return seconds_to_next_day(self._clock()), describe_day_spent("all jobs", self._sum, self.dollars)
        limit = self._starts.get(model)
        if limit is None or (job.state == "waiting" and job.waits_for == "rate_limit"):
            return 0, ""
        now = to_microseconds(self._clock())

        def take(connection: Connection) -> int:
            connection.execute(insert_once(model_starts, connection), {"model": model, "next_at": now})
            row = model_starts.c.model == model
            start: int = connection.scalar(select(model_starts.c.next_at).where(row).with_for_update()) or now
            start = max(start, now)
            connection.execute(update(model_starts).where(row).values(next_at=start + _MINUTE // limit))
            return start

        pause = (await self._database.run(take) - now) / 1e6
        return pause, f"{limit} of {model} may start a minute"

    def _today(self) -> str:
        return self._clock().date().isoformat()

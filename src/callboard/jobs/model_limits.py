"""How many segments of a model's jobs start a minute, in all workers together.

A row for each model says when its next segment may start. A segment that comes earlier takes the next free moment and
waits for it, as a job waits for its provider's rate limit: it holds no place in a worker meanwhile. A segment that has
waited starts, so each waits once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, select, update

from callboard.core.ports import Clock
from callboard.jobs.database import Database
from callboard.jobs.day_budget import DayBudget
from callboard.jobs.job import JobSummary
from callboard.jobs.rows import to_microseconds
from callboard.jobs.tables import insert_once, model_starts

_MINUTE: Final = 60_000_000
"""In microseconds."""


class ModelLimits:
    """The limits of models, by their names: how many segments start a minute."""

    def __init__(
        self,
        database: Database,
        limits: Mapping[str, int],
        *,
        budget: DayBudget | None = None,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self.budget = budget
        """What all jobs may cost in a day."""
        self._database = database
        self._limits = limits
        self._clock = clock

    async def reserve(self, job: JobSummary, model: str) -> tuple[float, str]:
        """How many seconds the job's present segment has to wait, which is about to start and asks a model, and why."""
        limit = self._limits.get(model)
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

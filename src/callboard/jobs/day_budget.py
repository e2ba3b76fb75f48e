"""What all jobs of a database may cost in a day, which begins at 00:00 UTC.

A sum for each day stands in the database, where all workers add to it with each reply. It is compared before a segment
starts and before each round, so replies that are under way when the budget is reached go beyond it by what they cost
themselves. A job that finds it spent waits for the next day, and holds no place in a worker meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Column, Connection, Double, MetaData, Table, Text, select, update

from callboard.core.ports import Clock
from callboard.jobs.database import Database
from callboard.jobs.tables import PREFIX, insert_once, lock_tables
from callboard.profiles import describe_day_spent, seconds_to_next_day

_day_costs = Table(
    f"{PREFIX}day_costs",
    MetaData(),
    Column("day", Text, primary_key=True),
    Column("cost", Double, nullable=False),
)
"""Made where there is a budget."""


class DayBudget:
    """The budget of a day, in US dollars."""

    setting = "jobs.budget_per_day"

    def __init__(self, database: Database, dollars: float, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._dollars = dollars
        self._clock = clock
        self._is_made = False
        """Whether the table is known to be there."""
        self._day = ""
        self._sum = 0.0
        """Of that day, as it was read last."""

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, as far as this process knows."""
        return self._day == self._today() and self._sum >= self._dollars

    async def add(self, dollars: float) -> None:
        """Add what a reply cost. Raises DatabaseUnavailable."""
        day = self._today()

        def add(connection: Connection) -> float:
            if not self._is_made:
                lock_tables(connection)
                _day_costs.create(connection, checkfirst=True)
            connection.execute(insert_once(_day_costs, connection), {"day": day, "cost": 0.0})
            row = _day_costs.c.day == day
            connection.execute(update(_day_costs).where(row).values(cost=_day_costs.c.cost + dollars))
            return connection.scalar(select(_day_costs.c.cost).where(row)) or 0.0

        self._sum, self._day = await self._database.run(add), day
        self._is_made = True

    async def reserve(self) -> tuple[float, str]:
        """How many seconds a job has to wait, and why; 0 where something is left. Raises DatabaseUnavailable."""
        await self.add(0.0)
        if not self.is_spent:
            return 0, ""
        return seconds_to_next_day(self._clock()), describe_day_spent("all jobs", self._sum, self._dollars)

    def _today(self) -> str:
        return self._clock().date().isoformat()

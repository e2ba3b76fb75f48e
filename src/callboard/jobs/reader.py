"""What can be read of durable jobs: one, all, their entries, and what was asked."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from sqlalchemy import select

from callboard.core import ApprovalAnswered
from callboard.jobs import queries
from callboard.jobs.database import Database
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import Approval, DurableJob, DurableState, JobSummary
from callboard.jobs.tables import jobs


class JobReader:
    """The jobs of a database, to be read."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, identifier: str) -> DurableJob:
        """The job of this name, or the only one whose name begins so. Raises CallerError."""
        return await self.database.read(lambda connection: queries.find_job(connection, identifier))

    async def find(self, identifier: str) -> Sequence[str]:
        """The job of this name, else two at most of those whose names begin so."""
        return await self.database.read(lambda connection: queries.find_names(connection, identifier))

    async def list(
        self, states: Collection[DurableState] = (), *, before: str = "", limit: int = 100
    ) -> Sequence[JobSummary]:
        """The newest jobs first, of these states or of any, older than the job `before`."""
        return await self.database.read(lambda connection: queries.list_jobs(connection, states, before, limit))

    async def read_entries(self, identifier: str, after: int = 0, limit: int = sys.maxsize) -> Sequence[JobEntry]:
        """The entries behind number `after`, in order. Raises CallerError for a job that is not there."""
        return await self.database.read(lambda connection: queries.read_entries(connection, identifier, after, limit))

    async def read_answers(self, identifier: str) -> Sequence[ApprovalAnswered]:
        """The answers that people gave to a job, in order. Raises CallerError for a job that is not there."""
        return await self.database.read(
            lambda connection: queries.read_answers(connection, queries.key_of(connection, identifier))
        )

    async def read_approvals(self, identifier: str) -> Sequence[Approval]:
        """What was asked, in order; those without a verdict are open. Raises CallerError for a job that is not there."""
        return await self.database.read(
            lambda connection: queries.read_approvals(connection, queries.key_of(connection, identifier))
        )

    async def find_cancelled(self, identifiers: Collection[str]) -> set[str]:
        """Which of these running jobs are to be cancelled; one query."""
        query = select(jobs.c.id).where(jobs.c.id.in_(sorted(identifiers)), jobs.c.cancel_requested)
        return set(await self.database.read(lambda connection: connection.scalars(query).all()))

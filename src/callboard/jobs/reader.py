"""What can be read of durable jobs: one, all, their entries, what was asked, and the figures of lists.

What the faces ask often is one statement over an index, or over rows that are small.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select

from callboard.core import ApprovalAnswered
from callboard.errors import CallerError
from callboard.jobs import queries
from callboard.jobs.database import Database
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import Approval, DurableJob, DurableState, JobSummary
from callboard.jobs.queries import HINT, SUMMARY, key_of
from callboard.jobs.rows import from_rows
from callboard.jobs.tables import approvals, entries, jobs

_ONE: Final = select(*[jobs.c[name] for name in SUMMARY]).where(jobs.c.id == bindparam("id"))
_STATES: Final = select(jobs.c.state, func.count()).group_by(jobs.c.state)
_LAST_CHANGE: Final = select(func.count(), func.max(jobs.c.updated_at))
_ROUNDS: Final = (
    select(entries.c.round, func.min(entries.c.number), func.count())
    .where(entries.c.job == bindparam("job"))
    .group_by(entries.c.round)
    .order_by(entries.c.round)
)
_ASKED: Final = (
    select(
        *[approvals.c[name] for name in Approval.__struct_fields__],
        jobs.c.id.label("job_id"),
        jobs.c.title.label("job_title"),
    )
    .join(jobs, jobs.c.key == approvals.c.job)
    .where(jobs.c.state == "waiting", approvals.c.verdict == "")
    .order_by(approvals.c.asked_at, approvals.c.job, approvals.c.position)
    .limit(bindparam("most"))
)


class OpenQuestion(Approval, frozen=True, kw_only=True):
    """An approval or a question that waits, with the job that it is of."""

    job_id: str
    job_title: str


class JobRound(NamedTuple):
    """A round of a job: its number, its first entry, and how many it has. Round 0 is what the job was created with."""

    number: int
    first: int
    entries: int


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

    async def read_summary(self, identifier: str) -> JobSummary:
        """A job without what may be long. Raises CallerError if it does not exist."""
        for job in await self.database.read(
            lambda connection: [*from_rows(connection.execute(_ONE, {"id": identifier}), JobSummary)]
        ):
            return job
        raise CallerError("no such job", path=identifier, hint=HINT)

    async def count_states(self) -> Mapping[DurableState, int]:
        """How many jobs are in each state that one is in."""
        return await self.database.read(lambda connection: {row[0]: row[1] for row in connection.execute(_STATES)})

    async def last_change(self) -> tuple[int, int | None]:
        """How many jobs there are, and when the last of them changed: another pair means that a list is another."""
        row = await self.database.read(lambda connection: connection.execute(_LAST_CHANGE).one())
        return row[0], row[1]

    async def open_questions(self, limit: int = 100) -> Sequence[OpenQuestion]:
        """What waits for a person, the longest first."""
        return await self.database.read(
            lambda connection: list(from_rows(connection.execute(_ASKED, {"most": limit}), OpenQuestion))
        )

    async def rounds(self, identifier: str) -> Sequence[JobRound]:
        """The rounds of a job, in order. Raises CallerError for one that is not there."""
        return await self.database.read(
            lambda connection: [
                JobRound(*row) for row in connection.execute(_ROUNDS, {"job": key_of(connection, identifier)})
            ]
        )

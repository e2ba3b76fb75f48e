"""What an overview shows of the jobs of a database: how many there are, what waits for a person, a job's rounds.

Each is one statement over an index, or over rows that are small, so that it may be asked often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, select

from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.job import Approval, DurableState, JobSummary
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


class JobOverview:
    """What is asked of a database, to be shown."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, identifier: str) -> JobSummary:
        """A job without what may be long. Raises CallerError for one that is not there."""
        jobs = await self._database.read(
            lambda connection: list(from_rows(connection.execute(_ONE, {"id": identifier}), JobSummary))
        )
        if not jobs:
            raise CallerError("no such job", path=identifier, hint=HINT)
        return jobs[0]

    async def count_states(self) -> Mapping[DurableState, int]:
        """How many jobs are in each state that one is in."""
        return await self._database.read(lambda connection: {row[0]: row[1] for row in connection.execute(_STATES)})

    async def last_change(self) -> tuple[int, int | None]:
        """How many jobs there are, and when the last of them changed: another pair means that a list is another."""
        row = await self._database.read(lambda connection: connection.execute(_LAST_CHANGE).one())
        return row[0], row[1]

    async def open_questions(self, limit: int = 100) -> Sequence[OpenQuestion]:
        """What waits for a person, the longest first."""
        return await self._database.read(
            lambda connection: list(from_rows(connection.execute(_ASKED, {"most": limit}), OpenQuestion))
        )

    async def rounds(self, identifier: str) -> Sequence[JobRound]:
        """The rounds of a job, in order. Raises CallerError for one that is not there."""
        return await self._database.read(
            lambda connection: [
                JobRound(*row) for row in connection.execute(_ROUNDS, {"job": key_of(connection, identifier)})
            ]
        )

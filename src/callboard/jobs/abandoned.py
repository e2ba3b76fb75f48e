"""Jobs whose worker died, as a process sees them that runs no jobs itself.

A worker that lives takes over what a dead one had claimed. If no worker lives, the row of a job says "running" forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from msgspec.structs import replace
from sqlalchemy import Connection, delete, select

from callboard.jobs.database import Database
from callboard.jobs.job import DurableJob, JobSummary
from callboard.jobs.store import DurableStore
from callboard.jobs.tables import clock, lock_claims, segments

REASON: Final = "its worker died"
_LOOK_SECONDS: Final = 0.2

SomeJob = TypeVar("SomeJob", bound=JobSummary)


def mark_abandoned(database: Database, jobs: Sequence[SomeJob]) -> list[SomeJob]:
    """Return the jobs as they are: a running job without a lease is interrupted. The rows stay as they are."""
    if not any(each.state == "running" for each in jobs):
        return list(jobs)
    has_lease = segments.c.executor.is_not(None) & (segments.c.lease_until >= clock(database.engine.dialect.name))
    query = select(segments.c.job).where(has_lease)
    alive = database.read_blocking(lambda connection: set(connection.scalars(query)))
    return [
        replace(each, state="interrupted", reason=REASON) if each.state == "running" and each.id not in alive else each
        for each in jobs
    ]


async def end_abandoned(
    store: DurableStore,
    identifier: str,
    state: Literal["interrupted", "cancelled"] = "interrupted",
    reason: str = REASON,
) -> DurableJob:
    """End a running job whose worker is dead; every other job stays as it is. Return the job.

    A worker that was just killed still has its lease. So this waits until the lease has passed, or was renewed: a few
    seconds at most.

    Raises:
        CallerError: The job does not exist.
    """
    first = 0
    while (job := await store.get(identifier)).state == "running":
        number = job.segment

        def take(connection: Connection, number: int = number) -> int:
            """Return the end of the lease. If there is no lease, remove the segment, so that no worker claims it."""
            lock_claims(connection)
            its = (segments.c.job == identifier, segments.c.segment == number)
            has_lease = segments.c.executor.is_not(None) & (segments.c.lease_until >= clock(connection.dialect.name))
            end = connection.scalar(select(segments.c.lease_until).where(*its, has_lease))
            if end is None:
                connection.execute(delete(segments).where(*its))
            return end or 0

        end = await store.database.run(take)
        if not end:
            return await store.interrupt(identifier, number, reason, state=state, executor=job.executor)
        if first and end != first:
            return job
        first = end
        await asyncio.sleep(_LOOK_SECONDS)
    return job

"""Jobs whose worker died, as a process sees them that runs no jobs itself.

A worker that lives hands back what a dead one had claimed. If no worker lives, the row of a job says "running" forever.
A process that can take the lease of the job's executor knows that the executor is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from callboard.jobs.database import Database
from callboard.jobs.job import DurableJob, JobSummary
from callboard.jobs.lease import open_leases
from callboard.jobs.store import DurableStore

REASON: Final = "its worker died"

SomeJob = TypeVar("SomeJob", bound=JobSummary)


def mark_abandoned(database: Database, jobs: Sequence[SomeJob]) -> list[SomeJob]:
    """Return the jobs as they are: a running job whose executor is dead is interrupted. The rows stay as they are."""
    leases = open_leases(database)
    dead: set[str] = set()
    for executor in {each.executor for each in jobs if each.state == "running"}:
        with leases.seize(executor) as is_dead:
            if is_dead:
                dead.add(executor)
    return [
        replace(each, state="interrupted", reason=REASON) if each.state == "running" and each.executor in dead else each
        for each in jobs
    ]


async def end_abandoned(
    store: DurableStore,
    identifier: str,
    state: Literal["interrupted", "cancelled"] = "interrupted",
    reason: str = REASON,
) -> DurableJob:
    """End a running job whose executor is dead; every other job stays as it is. Return the job.

    Raises:
        CallerError: The job does not exist.
    """
    job = await store.get(identifier)
    if job.state != "running":
        return job
    # Another process cannot find the executor dead and run the segment meanwhile.
    with open_leases(store.database).seize(job.executor) as is_dead:
        if not is_dead:
            return job
        return await store.interrupt(identifier, job.segment, reason, state=state, executor=job.executor)

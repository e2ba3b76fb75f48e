"""Open the store of jobs for a command, and find a job in it.

SQLAlchemy is imported only if a command needs it, because that takes a quarter of a second.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from callboard.coding.job import JobOutput
from callboard.coding.job_folders import OLD_RECORD, list_old_records
from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.jobs import may_have_jobs
from callboard.jobs.job import DurableJob, JobSummary

if TYPE_CHECKING:
    from callboard.jobs.store import DurableStore

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds to wait until a worker has ended a cancelled job."""
POLL_SECONDS: Final = 0.1
LAST: Final = "@last"
"""Name of the newest job of this directory."""


@contextmanager
def open_store() -> Iterator[DurableStore]:
    """Open the store of jobs. Raises CallerError and DatabaseUnavailable."""
    require_extra("jobs")
    from callboard.jobs.database import Database  # noqa: PLC0415  # not for --help
    from callboard.jobs.store import DurableStore  # noqa: PLC0415

    with Database.open() as database:
        yield DurableStore(database)


def change_jobs(work: Callable[[DurableStore], Coroutine[Any, Any, T]]) -> T:
    """Change jobs in the store, and close it. If this queues a job of this host, start a worker for it."""
    from callboard.cli.background import ensure_worker  # noqa: PLC0415  # not for --help

    with open_store() as store:
        changed = asyncio.run(work(store))
        if isinstance(changed, DurableJob) and changed.state == "pending":
            ensure_worker(store.database, changed)
        return changed


def read_jobs(work: Callable[[DurableStore], Coroutine[Any, Any, T]]) -> T:
    """Read from the store, and close it."""
    with open_store() as store:
        return asyncio.run(work(store))


def find_job(name: str) -> DurableJob:
    """Return the job with this name, or the only job whose name starts with it, or the last. Raises CallerError."""
    if name == LAST:
        if not (here := [each.id for each in list_jobs() if is_here(each)]):
            raise CallerError("no job in this directory", path=name, hint="callboard jobs list --all shows the others")
        name = here[0]

    async def find(store: DurableStore) -> DurableJob:
        return store.mark_abandoned([await store.get(name)])[0]

    try:
        if may_have_jobs():
            return read_jobs(find)
    except CallerError:
        if name not in list_old_records():
            raise
    if name in list_old_records():
        hint = f"callboard jobs rm {name} deletes it"
        raise CallerError(f"{OLD_RECORD} is not read by this version of Callboard", path=name, hint=hint)
    raise CallerError("no such job", path=name, hint="callboard jobs list --all shows them")


def resume_job_in_worker(job: DurableJob) -> DurableJob:
    """Resume a job that has ended, or whose worker died. Raises CallerError."""

    async def resume(store: DurableStore) -> DurableJob:
        await store.end_abandoned(job.id)
        return await store.resume(job.id)

    return change_jobs(resume)


def settle_job(job: DurableJob) -> DurableJob:
    """Return the job. If its worker died, wait until the lease has expired, a few seconds at most."""
    return read_jobs(lambda store: store.end_abandoned(job.id))


def remove_job(identifier: str) -> None:
    """Delete a job that has ended, or whose worker died. Raises CallerError."""

    async def remove(store: DurableStore) -> None:
        await store.end_abandoned(identifier)
        await store.remove(identifier)

    read_jobs(remove)


def cancel_job(job: DurableJob) -> DurableJob:
    """Cancel a job, and wait for up to `PATIENCE` seconds until its worker has ended it, unless its worker died."""
    from callboard.jobs.coding_kind import settle_cancelled  # noqa: PLC0415  # not for --help

    async def cancel(store: DurableStore) -> DurableJob:
        cancelled = await store.request_cancel(job.id)
        for _ in range(int(PATIENCE / POLL_SECONDS)):
            cancelled = await store.end_abandoned(job.id, "cancelled", "cancelled")
            if cancelled.has_ended:
                break
            await asyncio.sleep(POLL_SECONDS)
        with suppress(CallerError):  # its repository may be gone
            await settle_cancelled(cancelled)
        return cancelled

    return change_jobs(cancel)


def list_jobs(text: str = "") -> Sequence[JobSummary]:
    """Return all jobs, or those with a text in their id, task or calls. The newest comes first."""
    if not may_have_jobs():
        return []

    async def read(store: DurableStore) -> Sequence[JobSummary]:
        from callboard.jobs.queries import JobFilter  # noqa: PLC0415  # a quarter of a second

        return store.mark_abandoned(await store.list(JobFilter(text=text), limit=sys.maxsize))

    return read_jobs(read)


def is_here(job: JobSummary) -> bool:
    """Return whether the job is of this directory, or of none."""
    return not job.directory or Path.cwd() in (Path(job.directory), *Path(job.directory).parents)


def read_output(job: DurableJob) -> JobOutput:
    """Return the output of a coding job or a chat, or the text of another job."""
    output = job.output or {}
    read: JobOutput = msgspec.convert({"summary": output.get("text", ""), **output}, JobOutput, strict=False)
    return read

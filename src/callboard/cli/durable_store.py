"""Open the store of durable jobs for a command, and find a job among these and the records of direct runs.

SQLAlchemy is imported when a command needs it: a quarter of a second that `--help` and a direct run do not pay.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from callboard.errors import CallerError
from callboard.jobs.database_url import may_have_jobs

if TYPE_CHECKING:
    from callboard.coding.jobs.job import Job
    from callboard.jobs.job import DurableJob, JobSummary
    from callboard.jobs.store import DurableStore

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds in which a worker ends a job that is cancelled."""
POLL_SECONDS: Final = 0.1
_HINT: Final = "callboard jobs list --all shows them"


@contextmanager
def open_store() -> Iterator[DurableStore]:
    """The store of jobs. Raises CallerError and DatabaseUnavailable."""
    from callboard.jobs.database import Database  # noqa: PLC0415  # not for --help
    from callboard.jobs.store import DurableStore  # noqa: PLC0415

    with Database.open() as database:
        yield DurableStore(database)


def change_jobs(work: Callable[[DurableStore], Coroutine[Any, Any, T]]) -> T:
    """Do something with the store, and close it. A job of this host that goes on by that gets a worker."""
    from callboard.cli.background import ensure_worker  # noqa: PLC0415  # not for --help
    from callboard.jobs.job import DurableJob  # noqa: PLC0415

    with open_store() as store:
        changed = asyncio.run(work(store))
        if isinstance(changed, DurableJob) and changed.state == "pending":
            ensure_worker(store.database, changed)
        return changed


def read_jobs(work: Callable[[DurableStore], Coroutine[Any, Any, T]]) -> T:
    """Look at something in the store, and close it."""
    with open_store() as store:
        return asyncio.run(work(store))


def find_job(name: str) -> Job | DurableJob:
    """The durable job or the record of a direct run of this name, or the only one whose name begins so.

    Raises CallerError.
    """
    from callboard.coding.jobs.store import JobStore  # noqa: PLC0415  # not for --help

    records = JobStore()
    direct = records.find(name)
    if not may_have_jobs():
        return records.load(name)
    durable = read_jobs(lambda store: _find(store, name))
    if len(direct) + len(durable) > 1:
        raise CallerError("several jobs begin so", path=name, hint=_HINT)
    return durable[0] if durable else records.load(name)


async def _find(store: DurableStore, name: str) -> list[DurableJob]:
    from callboard.jobs.abandoned import mark_abandoned  # noqa: PLC0415  # not for --help

    return mark_abandoned(store.database, [await store.get(each) for each in await store.find(name)])


def resume_durable_job(job: DurableJob) -> DurableJob:
    """Resume a job that has ended, or whose worker died. Raises CallerError."""
    from callboard.jobs.abandoned import end_abandoned  # noqa: PLC0415  # not for --help

    async def resume(store: DurableStore) -> DurableJob:
        await end_abandoned(store, job.id)
        return await store.resume(job.id)

    return change_jobs(resume)


def settle_job(job: DurableJob) -> DurableJob:
    """Return the job, after the lease of a worker that died has passed: a few seconds at most."""
    from callboard.jobs.abandoned import end_abandoned  # noqa: PLC0415  # not for --help

    return read_jobs(lambda store: end_abandoned(store, job.id))


def remove_durable_job(job: DurableJob) -> None:
    """Delete a job that has ended, or whose worker died. Raises CallerError."""
    from callboard.jobs.abandoned import end_abandoned  # noqa: PLC0415  # not for --help

    async def remove(store: DurableStore) -> None:
        await end_abandoned(store, job.id)
        await store.remove(job.id)

    read_jobs(remove)


def cancel_durable_job(job: DurableJob) -> DurableJob:
    """Cancel a job, and wait for up to `PATIENCE` seconds until its worker has ended it, unless its worker died."""
    from callboard.jobs.abandoned import end_abandoned  # noqa: PLC0415  # not for --help
    from callboard.jobs.coding_kind import settle_cancelled  # noqa: PLC0415  # not for --help

    async def cancel(store: DurableStore) -> DurableJob:
        cancelled = await store.request_cancel(job.id)
        for _ in range(int(PATIENCE / POLL_SECONDS)):
            cancelled = await end_abandoned(store, job.id, "cancelled", "cancelled")
            if cancelled.has_ended:
                break
            await asyncio.sleep(POLL_SECONDS)
        with suppress(CallerError):  # its repository may be gone
            await settle_cancelled(cancelled)
        return cancelled

    return change_jobs(cancel)


def list_durable_jobs() -> Sequence[JobSummary]:
    """All durable jobs, the newest first."""
    if not may_have_jobs():
        return []
    from callboard.jobs.abandoned import mark_abandoned  # noqa: PLC0415  # not for --help

    async def read(store: DurableStore) -> Sequence[JobSummary]:
        return mark_abandoned(store.database, await store.list(limit=sys.maxsize))

    return read_jobs(read)


def to_record(job: DurableJob) -> Job:
    """A durable job as the record of a direct run has it, for what shows both."""
    from callboard.coding.jobs.job import Job, JobOutput  # noqa: PLC0415  # not for --help

    output = job.output or {}
    fields = job.as_json() | {"type": job.kind, "output": {"summary": output.get("text", ""), **output}}
    known = {name: fields[name] for name in Job.__struct_fields__ if name in fields}
    read: JobOutput = msgspec.convert(known.pop("output"), JobOutput, strict=False)
    times = {name: getattr(job, name) for name in ("created_at", "started_at", "completed_at")}
    return Job(**{**known, **times, "output": read})


def find_durable_job(name: str, verb: str) -> DurableJob:
    """The durable job of this name. Raises CallerError, also for the record of a direct run, to which `verb` is not done."""
    from callboard.jobs.job import DurableJob  # noqa: PLC0415  # not for --help

    job = find_job(name)
    if isinstance(job, DurableJob):
        return job
    hint = f"what runs with --background can be; callboard {job.type} runs it anew"
    raise CallerError(f"it was run directly, so it cannot be {verb}", path=job.id, hint=hint)

"""Open the store of durable jobs for a command, and find a job among these and the records of direct runs.

SQLAlchemy and DBOS are imported when a command needs them: half a second that `--help` and a direct run do not pay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from callboard.errors import CallerError
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    from callboard.coding.jobs.job import Job
    from callboard.jobs.job import DurableJob
    from callboard.jobs.store import DurableStore

T = TypeVar("T")

_VARIABLE: Final = "CALLBOARD_DATABASE_URL"
_HINT: Final = "callboard jobs list --all shows them"


def has_durable_jobs() -> bool:
    """Whether there is a database, so that a command that only looks need not make one."""
    return bool(os.environ.get(_VARIABLE)) or _default_file().is_file()


def _default_file() -> Path:
    return state_directory() / "jobs" / "jobs.db"


@contextmanager
def open_store() -> Iterator[DurableStore]:
    """The store with its queue: what is created, answered or resumed in it goes on in a worker.

    Raises CallerError and DatabaseUnavailable.
    """
    from callboard.jobs.database import Database  # noqa: PLC0415  # not for --help
    from callboard.jobs.engine import Engine  # noqa: PLC0415
    from callboard.jobs.store import DurableStore  # noqa: PLC0415

    with Database.open() as database:
        engine = Engine(database)
        try:
            yield DurableStore(database, engine.enqueue)
        finally:
            engine.close()


@contextmanager
def read_store() -> Iterator[DurableStore]:
    """The store without its queue, for commands that only look: it opens in a tenth of the time."""
    from callboard.jobs.database import Database  # noqa: PLC0415  # not for --help
    from callboard.jobs.store import DurableStore  # noqa: PLC0415

    with Database.open() as database:
        yield DurableStore(database)


def change_jobs(work: Callable[[DurableStore], Coroutine[Any, Any, T]]) -> T:
    """Do something with the store and its queue, and close it."""
    with open_store() as store:
        return asyncio.run(work(store))


def read_jobs(work: Callable[[DurableStore], Coroutine[Any, Any, T]]) -> T:
    """Look at something in the store, and close it."""
    with read_store() as store:
        return asyncio.run(work(store))


def find_job(name: str) -> Job | DurableJob:
    """The durable job or the record of a direct run of this name, or the only one whose name begins so.

    Raises CallerError.
    """
    from callboard.coding.jobs.store import JobStore  # noqa: PLC0415  # not for --help

    records = JobStore()
    direct = records.find(name)
    if not has_durable_jobs():
        return records.load(name)
    durable = read_jobs(lambda store: _find(store, name))
    if len(direct) + len(durable) > 1:
        raise CallerError("several jobs begin so", path=name, hint=_HINT)
    return durable[0] if durable else records.load(name)


async def _find(store: DurableStore, name: str) -> list[DurableJob]:
    return [await store.get(each) for each in await store.find(name)]


def find_durable_job(name: str, verb: str) -> DurableJob:
    """The durable job of this name. Raises CallerError, also for the record of a direct run, to which `verb` is not done."""
    from callboard.jobs.job import DurableJob  # noqa: PLC0415  # not for --help

    job = find_job(name)
    if isinstance(job, DurableJob):
        return job
    hint = f"what runs with --background can be; callboard {job.type} runs it anew"
    raise CallerError(f"it was run directly, so it cannot be {verb}", path=job.id, hint=hint)

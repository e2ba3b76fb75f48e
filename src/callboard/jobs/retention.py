"""Remove the jobs that ended longer ago than the user keeps them, beside a worker.

Laws:
- A worker removes jobs of the queues that it serves: the files of a coding job are on the host whose queue it was in.
- Each job is removed in a transaction of its own, so that nothing that runs waits for more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

from callboard.coding.job_folders import JobFolders
from callboard.errors import CallboardError, CallerError
from callboard.jobs.store import DurableStore

LOOK_SECONDS: Final = 60.0
"""Between two looks for old jobs."""
REMOVED_AT_ONCE: Final = 20
"""Jobs that are looked up at once."""


@asynccontextmanager
async def open_retention(
    store: DurableStore, keep: timedelta | None, queues: Collection[str], show: Callable[[str], None]
) -> AsyncIterator[None]:
    """Remove the old jobs of some queues while it is entered.

    Args:
        store: Where the jobs are.
        keep: The age from which on a job that has ended is removed; None removes nothing.
        queues: Those of the worker.
        show: Shows a failure to the user, in one line.
    """
    if keep is None:
        yield
        return
    task = asyncio.create_task(_remove_always(store, keep, queues, show))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def remove_old_jobs(store: DurableStore, keep: timedelta, queues: Collection[str] | None = None) -> int:
    """Remove the jobs of these queues, or of all, that ended longer ago, with the files of coding jobs; how many.

    Raises:
        DatabaseUnavailable: The rest is left for the next time.
    """
    records = JobFolders()
    removed = 0
    while old := await store.find_old(keep, queues, REMOVED_AT_ONCE):
        for identifier in old:
            with suppress(CallerError):  # it was resumed, or another worker removed it
                await store.remove(identifier)
                removed += 1
                await asyncio.to_thread(records.remove, identifier)
    return removed


async def _remove_always(
    store: DurableStore, keep: timedelta, queues: Collection[str], show: Callable[[str], None]
) -> None:
    while True:
        try:
            await remove_old_jobs(store, keep, queues)
        except CallboardError as error:
            show(f"old jobs were not removed, which is tried again: {error}")
        await asyncio.sleep(LOOK_SECONDS)

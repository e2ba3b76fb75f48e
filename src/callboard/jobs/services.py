"""Services next to a worker: read `[jobs]` of the user's own callboard.toml, send notifications, and remove old jobs.

A worker runs jobs of many directories, and a project's file may not have `[jobs]`. So only the user's own file is read,
and the directory in which the worker was started does not matter.

Laws:
- A worker removes only jobs of the queues that it serves, because the files of a coding job are on the queue's host.
- Each job is removed in its own transaction, so other work never waits for more than one removal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

from callboard.coding.job_folders import JobFolders
from callboard.configuration import load_settings, user_file
from callboard.configuration.jobs import JobSettings
from callboard.errors import CallboardError, CallerError
from callboard.extras import require_extra
from callboard.jobs.database import Database
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.engine import Engine
from callboard.jobs.notifications import open_notifier
from callboard.jobs.store import DurableStore

LOOK_SECONDS: Final = 60.0
"""Seconds between checks for old jobs."""
REMOVED_AT_ONCE: Final = 20


async def remove_old_jobs(store: DurableStore, keep: timedelta, queues: Collection[str] | None = None) -> int:
    """Remove jobs that ended longer ago than `keep`, and the files of coding jobs. Return the number of removed jobs.

    Raises:
        DatabaseUnavailable: The remaining jobs are removed next time.
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


def load_job_settings() -> JobSettings:
    """Return `[jobs]` of the user's settings. Raises CallerError."""
    return load_settings({}, user_file(os.environ).parent, os.environ).jobs


def make_engine(database: Database, settings: JobSettings) -> Engine:
    """Return the engine of the settings. Raises CallerError if its extra is missing."""
    if settings.engine == "embedded":
        return EmbeddedEngine(database)
    require_extra("temporal")
    from callboard.jobs.temporal_engine import TemporalEngine  # noqa: PLC0415  # it needs an extra

    return TemporalEngine(database, settings.temporal)


@asynccontextmanager
async def open_services(
    store: DurableStore, settings: JobSettings, queues: Collection[str], show: Callable[[str], None]
) -> AsyncIterator[None]:
    """Send notifications and remove old jobs while a worker serves these queues.

    `show` shows a failure to the user, in one line.
    """

    async def remove(keep: timedelta) -> None:
        while True:
            try:
                await remove_old_jobs(store, keep, queues)
            except CallboardError as error:
                show(f"old jobs could not be removed; trying again: {error}")
            await asyncio.sleep(LOOK_SECONDS)

    removing = None if settings.keep_age is None else asyncio.create_task(remove(settings.keep_age))
    try:
        async with open_notifier(store.database, settings.notify, show, settings.board_url):
            yield
    finally:
        if removing is not None:
            removing.cancel()
            await asyncio.wait([removing])

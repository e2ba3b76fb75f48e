"""What a worker takes from `[jobs]` in the user's own callboard.toml.

A worker belongs to no project: it runs jobs of many directories, and a project's file may not have `[jobs]`. So the file
is read from the directory that it is in, wherever the worker was started.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from callboard.configuration import load_settings, user_file
from callboard.configuration.jobs import JobSettings, QueueSettings
from callboard.extras import require_extra
from callboard.jobs.database import Database
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.engine import Engine
from callboard.jobs.limits import JobLimits
from callboard.jobs.notifications import Notifier
from callboard.jobs.retention import open_retention
from callboard.jobs.store import DurableStore


def load_job_settings() -> JobSettings:
    """The user's `[jobs]`. Raises CallerError."""
    return load_settings({}, user_file(os.environ).parent, os.environ).jobs


def make_engine(database: Database, settings: JobSettings) -> Engine:
    """Return the engine that the settings name. Raises CallerError if its extra is missing."""
    if settings.engine == "embedded":
        return EmbeddedEngine(database)
    require_extra("temporal")
    from callboard.jobs.temporal_engine import TemporalEngine  # noqa: PLC0415  # it needs an extra

    return TemporalEngine(database, settings.temporal)


def queue_settings(settings: JobSettings, queues: Collection[str]) -> dict[str, QueueSettings]:
    """What the settings say of some queues."""
    return {name: settings.queues.get(name, QueueSettings()) for name in queues}


def job_limits(settings: JobSettings, database: Database) -> JobLimits | None:
    """Return the limits of models and of the day; None if there are none."""
    starts = {name: each.starts_per_minute for name, each in settings.models.items()}
    has_limits = bool(starts) or settings.budget_per_day is not None
    return JobLimits(database, starts, settings.budget_per_day) if has_limits else None


@asynccontextmanager
async def open_services(
    store: DurableStore, settings: JobSettings, queues: Collection[str], show: Callable[[str], None]
) -> AsyncIterator[None]:
    """Do what is done beside a worker of these queues: tell the user's programs, and remove old jobs.

    `show` shows a failure to the user, in one line.
    """
    async with (
        Notifier(store.database, settings.notify, show),
        open_retention(store, settings.keep_age, queues, show),
    ):
        yield

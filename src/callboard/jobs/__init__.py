"""Durable jobs: runs that survive the end of their process, on one machine or on many.

The conversation is the checkpoint. A job is a row, its canisters are rows (`store`), and a worker runs the job from
these rows, segment by segment. The extra `jobs` has the dependencies. They are imported on first use, so a command that
only asks whether there are jobs does not import SQLAlchemy.

    job = await jobs.submit("crew:clerk", "Reconcile the invoices.")
    async for event in job.events():
        ...
    result = await job.result()
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from callboard.errors import CallboardError
from callboard.extras import require_extra
from callboard.storage.directories import state_directory

if TYPE_CHECKING:
    from callboard.jobs.client import JobClient, get, submit
    from callboard.jobs.handle import JobEvent, JobHandle, JobResult

_LAZY = {
    "JobClient": "client",
    "JobEvent": "handle",
    "JobHandle": "handle",
    "JobResult": "handle",
    "get": "client",
    "submit": "client",
}

__all__ = ["DatabaseUnavailable", "JobClient", "JobEvent", "JobHandle", "JobResult", "get", "submit"]

VARIABLE: Final = "CALLBOARD_DATABASE_URL"
"""Environment variable with the URL of the database. By default the database is the user's file."""
HINT: Final = f"set {VARIABLE} to sqlite:////PATH/jobs.db or postgresql://USER:PASSWORD@HOST/NAME"


class DatabaseUnavailable(CallboardError):
    """The database cannot be reached, read or written."""

    party = "database"


def database_url() -> str:
    """Return the URL from the environment, or the URL of this user's file."""
    return os.environ.get(VARIABLE, "") or f"sqlite:///{_default_file()}"


def may_have_jobs() -> bool:
    """Return whether the environment names a database, or the user's file exists."""
    return bool(os.environ.get(VARIABLE)) or _default_file().is_file()


def _default_file() -> Path:
    return state_directory() / "jobs" / "jobs.db"


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra("jobs")
    return getattr(import_module(f"callboard.jobs.{_LAZY[name]}"), name)

"""Submit a coding job for a worker to run, and be that worker where none runs: `python -m callboard.cli.background`."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from callboard.cli.display import Display
from callboard.cli.models import UNGATED, check_reachable, open_model
from callboard.coding.agents.job_request import JobRequest
from callboard.configuration import Settings
from callboard.extras import require_extra
from callboard.providers.registry import PlannedModel

if TYPE_CHECKING:
    from callboard.jobs.database import Database
    from callboard.jobs.job import DurableJob

COMMAND: Final = ("-m", "callboard.cli.background")
"""Of Python: the worker that is started."""


def open_coding_model(settings: Settings) -> PlannedModel:
    """The model of a job that a worker runs; what it tells goes to the worker's standard error. Raises CallerError."""
    return open_model(settings, partial(print, file=sys.stderr, flush=True), UNGATED)


def ensure_worker(database: Database) -> Path | None:
    """Start a worker for the coding jobs of this host, where none runs on an SQLite file; the file it writes to."""
    from callboard.jobs.local_worker import start_worker  # noqa: PLC0415  # half a second

    return start_worker(database, COMMAND)


def submit_job(request: JobRequest, display: Display) -> DurableJob:
    """Queue a job, and start a worker where none would run it. Raises CallerError, DatabaseUnavailable."""
    require_extra("jobs")
    from callboard.jobs.coding_kind import host_queue, submit_request  # noqa: PLC0415  # half a second
    from callboard.jobs.database import Database  # noqa: PLC0415
    from callboard.jobs.engine import Engine  # noqa: PLC0415
    from callboard.jobs.store import DurableStore  # noqa: PLC0415

    model = open_model(request.settings, display.tell, UNGATED)

    async def check() -> None:
        try:
            await check_reachable(model, display.tell)
        finally:
            await model.aclose()

    asyncio.run(check())
    with Database.open() as database:
        engine = Engine(database)
        try:
            store = DurableStore(database, engine.enqueue)
            job = asyncio.run(submit_request(store, request, model.name))
        finally:
            engine.close()
        log = ensure_worker(database)
        if not database.is_sqlite:
            display.tell(f"a worker of this host runs it: callboard worker --queue {host_queue()}", "2")
        elif log is not None:
            display.tell(f"a worker was started, and ends when it is idle; it writes to {log}", "2")
    return job


def run_here() -> None:
    """Run the coding jobs of this host until there are none."""
    from callboard.errors import CallboardError  # noqa: PLC0415  # as above
    from callboard.jobs.local_worker import run_worker  # noqa: PLC0415

    try:
        asyncio.run(run_worker(open_coding_model))
    except CallboardError as error:
        sys.exit(f"callboard: {error}")


if __name__ == "__main__":
    run_here()

"""Submit a job for a worker to run, and start that worker if none runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from callboard.cli.display import Display
from callboard.cli.models import CODING_FACTS, check_reachable, open_model
from callboard.coding.agents.job_models import open_models
from callboard.coding.agents.job_request import JobRequest
from callboard.configuration import Settings
from callboard.extras import require_extra
from callboard.jobs import database_url
from callboard.jobs.job import DurableJob
from callboard.providers.registry import PlannedModel

if TYPE_CHECKING:
    from callboard.jobs.database import Database
    from callboard.jobs.store import DurableStore


def ensure_worker(database: Database, job: DurableJob) -> Path | None:
    """Start a worker for a job of this host if none runs on the SQLite file. Return its log file, or None."""
    from callboard.cli.run_kind import run_queue, worker_name  # noqa: PLC0415  # half a second
    from callboard.jobs.coding_kind import host_queue  # noqa: PLC0415
    from callboard.jobs.direct import start_worker  # noqa: PLC0415

    if job.queue == host_queue():
        return start_worker(database, job.queue)
    if job.queue == run_queue(job.directory):
        return start_worker(database, job.queue, name=worker_name(job.directory), directory=job.directory)
    return None


def runs_here(job: DurableJob) -> bool:
    """Return whether `ensure_worker` provides a worker for the job."""
    from callboard.cli.run_kind import run_queue  # noqa: PLC0415  # half a second
    from callboard.jobs.coding_kind import host_queue  # noqa: PLC0415

    return database_url().startswith("sqlite") and job.queue in {host_queue(), run_queue(job.directory)}


def submit_job(request: JobRequest, display: Display, *, priority: int = 0) -> DurableJob:
    """Queue a coding job, and start a worker if none runs. Raises CallerError, DatabaseUnavailable."""
    require_extra("jobs")
    from callboard.jobs.coding_kind import submit_request  # noqa: PLC0415  # half a second

    models = open_models(request, lambda settings: open_model(settings, display.tell, CODING_FACTS))
    _check_model(models.own, display)
    return _queue(lambda store: submit_request(store, request, models.own.name, priority=priority), display)


def submit_prompt(prompt: str, options: Mapping[str, Any], settings: Settings, display: Display) -> DurableJob:
    """Queue a run in the current directory, as `submit_job` does a coding job."""
    require_extra("jobs")
    from callboard.cli.run_kind import RunFlags, submit_run  # noqa: PLC0415  # half a second

    flags = RunFlags(**{name: options[name] for name in RunFlags.__struct_fields__})
    model = open_model(settings, display.tell)
    _check_model(model, display)
    return _queue(lambda store: submit_run(store, prompt, flags, model.name), display)


def show_submitted(job: DurableJob, display: Display, *, waits: bool, as_json: bool, verbose: bool) -> None:
    """Print the job's id. With `waits`, show the job until it ends, and exit with its code."""
    if waits:
        from callboard.cli.watch import watch  # noqa: PLC0415  # not for --background

        watch(job.id, as_json=as_json, verbose=verbose)
    typer.echo(json.dumps(job.as_json()) if as_json else job.id)
    display.tell(f"Follow it with: callboard jobs watch {job.id}", "2")


def _check_model(model: PlannedModel, display: Display) -> None:
    async def check() -> None:
        try:
            await check_reachable(model, display.tell)
        finally:
            await model.aclose()

    asyncio.run(check())


def _queue(create: Callable[[DurableStore], Coroutine[Any, Any, DurableJob]], display: Display) -> DurableJob:
    from callboard.jobs.database import Database  # noqa: PLC0415  # half a second
    from callboard.jobs.store import DurableStore  # noqa: PLC0415

    with Database.open() as database:
        job = asyncio.run(create(DurableStore(database)))
        log = ensure_worker(database, job)
        if not database.is_sqlite:
            display.tell(f"a worker on this host must run it: callboard worker --queue {job.queue}", "2")
        elif log is not None:
            display.tell(f"Started a background worker. Log: {log}", "2")
    return job

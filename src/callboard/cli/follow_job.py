"""Run a job in this process, show its steps, and exit as it went."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeAlias

import typer

from callboard.cli import interrupt
from callboard.cli.approvals import Approvals
from callboard.cli.jobs import EXIT_CODES, JobDisplay, print_outcome
from callboard.cli.models import CODING_FACTS, check_reachable, open_model
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.jobs.job import Job
from callboard.coding.jobs.store import JobStore, jobs_directory
from callboard.core import Model

RunJob: TypeAlias = Callable[[Model, Approvals, Callable[[Job], None]], Coroutine[Any, Any, Job]]
"""Runs a job with a model, and somebody who is asked; tells the job when it runs."""


def follow_job(request: JobRequest, jobs: JobStore, display: JobDisplay, run_job: RunJob) -> NoReturn:
    """Runs a job to its end. Raises typer.Exit with the code of how it ended, CallerError, KeyboardInterrupt."""
    model = open_model(request.settings, display.tell, CODING_FACTS)
    approvals = Approvals(request.directory, jobs_directory().parent, display)
    started: list[Job] = []

    async def run() -> Job:
        try:
            await check_reachable(model, display.tell)
            return await run_job(model, approvals, started.append)
        finally:
            await model.aclose()

    def show_cancelled() -> None:
        if display.as_json and started:
            display.job(jobs.load(started[0].id))
        hint = "".join([f"; callboard jobs show {each.id} tells how far it came" for each in started])
        display.tell(f"cancelled{hint}")

    job = interrupt.run(run(), show_cancelled)
    if display.as_json:
        display.job(job)
    else:
        print_outcome(job, display)
    raise typer.Exit(EXIT_CODES.get((job.state, bool(job.output.missing)), 1))

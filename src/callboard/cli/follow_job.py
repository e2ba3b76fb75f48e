"""Run a coding job in this process, show its steps, and exit with its code."""

from __future__ import annotations

import asyncio
import sys
from typing import NoReturn

import typer

from callboard.cli import interrupt
from callboard.cli.approvals import Approvals
from callboard.cli.display import JobDisplay
from callboard.cli.durable_store import open_store
from callboard.cli.models import CODING_FACTS, check_reachable, open_model
from callboard.cli.outcome import find_exit_code, print_outcome
from callboard.coding.agents.job_models import open_models
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_runner import add_github_text
from callboard.coding.cancellation import cancel_on_signals
from callboard.jobs.coding_kind import CodingKind
from callboard.jobs.direct import resume_direct, run_direct, submit_direct
from callboard.jobs.job import DurableJob
from callboard.jobs.store import DurableStore
from callboard.storage.directories import data_directory


def follow_job(request: JobRequest, display: JobDisplay, *, resume: DurableJob | None = None) -> NoReturn:
    """Run the requested job, or resume one, to its end.

    Raises typer.Exit with the job's exit code, CallerError, DatabaseUnavailable, KeyboardInterrupt.
    """
    current = resume.memory.get("memory", {}).get("phase", {}).get("model", "") if resume is not None else ""
    models = open_models(request, lambda settings: open_model(settings, display.tell, CODING_FACTS), current)
    display.await_model(models.own.name, models.own)
    approvals = Approvals(request.directory, data_directory(), display)
    approvals.can_pause = sys.stdin.isatty() and sys.stderr.isatty() and not display.as_json
    display.activity.hint = lambda: "Ctrl-C pauses" if approvals.can_pause else "Ctrl-C stops"
    begun: list[DurableJob] = []

    async def run(store: DurableStore) -> DurableJob:
        try:
            await check_reachable(models.own, display.tell)
            whole = await add_github_text(request)
            job = await (
                submit_direct(store, whole, models.own.name) if resume is None else resume_direct(store, resume)
            )
            begun.append(job)
            kind = CodingKind(
                job.kind,
                store,
                lambda settings: models.by_name[settings.model],
                request=whole,
                approver=approvals,
                show=display.step,
            )
            with interrupt.intercept(approvals.pause), cancel_on_signals() as signals:
                try:
                    async with display.report_silence():
                        ended = await run_direct(store, job, kind)
                except asyncio.CancelledError:
                    ended = begun[0] = await store.get(job.id)
                    if not signals:
                        raise
            if kind.obstacle is not None and resume is None:
                await store.remove(job.id)
                raise kind.obstacle
            return ended
        finally:
            await models.aclose()

    def show_cancelled() -> None:
        if display.as_json and begun:
            display.job(begun[0])
        hint = "".join([f". Continue it: callboard jobs resume {each.id}" for each in begun])
        display.tell(f"Cancelled{hint}")

    with open_store() as store:
        job = interrupt.run(run(store), show_cancelled)
    if display.as_json:
        display.job(job)
    else:
        print_outcome(job, display)
    raise typer.Exit(find_exit_code(job))

"""`callboard jobs` and `undo`: show, cancel, resume and undo jobs."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from callboard.cli import complete, durable_store
from callboard.cli.display import JobDisplay, print_safely
from callboard.cli.durable_store import find_job, read_jobs, read_output, resume_job_in_worker, settle_job
from callboard.cli.job_list import list_jobs
from callboard.cli.options import JobName
from callboard.cli.outcome import count_changes, describe_result
from callboard.cli.settings import settings_in
from callboard.cli.watch import describe_waiting
from callboard.coding.job import JobOutput
from callboard.coding.job_folders import JobFolders
from callboard.core import encode_line
from callboard.errors import CallerError
from callboard.jobs.job import QUEUE, DurableJob
from callboard.profiles import format_cost
from callboard.text.display import collapse
from callboard.text.duration import format_age, format_duration
from callboard.text.plural import format_count

_ENDED: Final = {"cancelled": "was cancelled"}
"""Verbs of the states that are not verbs."""

app = typer.Typer(no_args_is_help=True, help="List, show and manage your jobs: coding jobs, chats and agent runs.")
app.command("list")(list_jobs)


@app.command("show")
def show_job(
    name: JobName,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job as JSON.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print only its diff.")] = False,
) -> None:
    """Show a job's task, state and outcome."""
    job = find_job(name)
    output = read_output(job)
    answers = read_jobs(lambda store: store.read_answers(job.id))
    if as_json:
        answer_list = [json.loads(encode_line(each)) for each in answers]
        typer.echo(json.dumps({**job.as_json(), **({"answers": answer_list} if answer_list else {})}, indent=2))
        return
    if diff:
        print_safely(output.diff)
        return
    for key, value in _describe(job, output).items():
        if value:
            typer.echo(f"{key:9}  {collapse(str(value), 400)}")
    for each in answers:
        typer.echo(f"{'Answer':9}  {collapse(f'{each.invocation.name}: {each.describe()}', 1000)}")
    for line in read_jobs(lambda store: describe_waiting(store, job)):
        typer.echo(collapse(line, 2000))
    if job.state == "interrupted":
        typer.echo(f"Continue it: callboard jobs resume {job.id}")
    print_safely(f"\n{job.description}\n")
    if output.summary:
        print_safely(f"\n{output.summary}\n")


def _describe(job: DurableJob, output: JobOutput) -> dict[str, str]:
    """Return the facts of a job by their names on the board. An empty fact is not shown."""
    seconds = (job.completed_at or datetime.now(UTC)) - job.started_at if job.started_at else None
    started, finished = (
        f"{each.astimezone():%Y-%m-%d %H:%M:%S}" if each else "" for each in (job.started_at, job.completed_at)
    )
    usage = job.usage
    return {
        "Job": job.id,
        "Kind": job.kind,
        "State": describe_result(job)[0],
        "Phase": job.phase,
        "Directory": job.directory,
        "Model": job.model,
        "Started": started,
        "Finished": finished,
        "Duration": format_duration(seconds.total_seconds()) if seconds else "",
        "Rounds": f"{job.rounds}, {format_count(job.calls, 'call')}",
        "Tokens": f"{usage.get('input', 0):,} in, {usage.get('output', 0):,} out" if usage else "",
        "Cost": format_cost(job.cost),
        "Branch": output.branch,
        "Commits": ", ".join(each[:12] for each in output.commits),
        "Files": ", ".join(output.files) + count_changes(output.diff),
        "Tests": output.tests,
        "Pull": (output.pull_request_url or "no pull request was opened") if output.commits else "",
        "Missing": "; ".join(output.missing),
        "Folder": str(folder) if (folder := JobFolders().folder(job.id)).is_dir() else "",
        "Queue": "" if job.queue == QUEUE else job.queue,
        "From": job.parent,
        "Schedule": job.schedule,
    }


@app.command("cancel")
def cancel_job(name: JobName) -> None:
    """Cancel a running or waiting job, and stop its commands and their processes."""
    job = durable_store.find_job(name)
    if job.has_ended and job.state != "interrupted":
        ago = f" {format_age((datetime.now(UTC) - job.completed_at).total_seconds())}" if job.completed_at else ""
        typer.echo(f"Nothing to cancel: it {_ENDED.get(job.state, job.state)}{ago}.")
        return
    ended = durable_store.cancel_job(job)
    typer.echo(f"{ended.id}: {ended.state}{f' ({ended.reason})' if ended.reason not in {'', ended.state} else ''}")


@app.command("resume")
def resume_job(
    name: JobName,
    model: Annotated[
        str,
        typer.Option(help="Continue with another model.", show_default="the job's own", autocompletion=complete.models),
    ] = "",
    base_url: Annotated[str, typer.Option(help="The model's endpoint.", show_default="the job's own")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every step as one line of JSON; the last line is the job.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show rounds, prompts, reasoning, notes and usage.")
    ] = False,
) -> None:
    """Continue a job whose process died, or a worker's job that did not complete. Settings are read again.

    The job keeps its working tree and its conversation. Finished calls, and a call that was interrupted, do not run
    again.
    """
    from callboard.cli.follow_job import follow_job  # noqa: PLC0415
    from callboard.coding.agents.job_request import request_of  # noqa: PLC0415
    from callboard.jobs.direct import is_direct  # noqa: PLC0415

    job = find_job(name)
    if job.kind == "chat":
        raise CallerError("this is a chat", path=job.id, hint=f"callboard chat --resume {job.id}")
    if not is_direct(job):
        if model or base_url:
            raise CallerError("a worker's job keeps its model", path=job.id, hint="omit --model and --base-url")
        resumed = resume_job_in_worker(job)
        typer.echo(f"{resumed.id}: {resumed.state}. Follow it with: callboard jobs watch {resumed.id}", err=True)
        return
    flags = {"model": model or job.input.get("model"), "base_url": base_url or job.input.get("base_url")}
    flags |= {
        "max_rounds": job.input.get("rounds"),
        **{name: job.input.get(name) for name in ("dialect", "context", "effort", "budget")},
    }
    settings = settings_in(Path(job.directory), flags, for_coding=True)
    request = request_of(job.kind, job.directory, job.input, settings)
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose or settings.coding.debug.enabled, as_json=as_json)
    follow_job(request, display, resume=job)


def undo(name: JobName) -> None:
    """Undo a job: delete its branch, or revert a chat's edits to your files."""
    from callboard.jobs.chat import undo_chat  # noqa: PLC0415
    from callboard.jobs.coding_kind import undo_job  # noqa: PLC0415

    folders = JobFolders()
    job = find_job(name)
    if not folders.folder(job.id).is_dir():
        raise CallerError("this host has no files of the job", path=job.id)
    job = settle_job(job)
    if not job.has_ended:
        raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id}")
    if job.kind == "chat":
        typer.echo(read_jobs(lambda store: undo_chat(store, job, folders)))
        return
    typer.echo(asyncio.run(undo_job(job.id, job.memory.get("tree", {}), folders)))

"""The commands of `callboard jobs` besides those of `jobs`: what is done with jobs that were begun."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.cli import interrupt, job_answers
from callboard.cli.durable_store import (
    change_jobs,
    find_job,
    open_store,
    read_jobs,
    remove_job,
)
from callboard.cli.jobs import JobDisplay, JobName, app
from callboard.cli.watch import describe_runner, follow, wait_for_poll, watch
from callboard.coding.job_folders import JobFolders, list_old_records
from callboard.errors import CallerError
from callboard.jobs.database_url import may_have_jobs
from callboard.text.duration import parse_duration

if TYPE_CHECKING:
    from callboard.jobs.entries import JobEntry
    from callboard.jobs.job import DurableJob
    from callboard.jobs.store import DurableStore

AsJson = Annotated[bool, typer.Option("--json", help="Print the new job as JSON.")]


@app.command("logs")
def logs(
    name: JobName,
    wait: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what a job adds, until it has ended.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every step as one line of JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show rounds, prompts, reasoning and notes.")
    ] = False,
) -> None:
    """Print what a job did, step by step, as it was recorded. Nothing is run."""
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose, as_json=as_json)
    show_steps(find_job(name), display, wait=wait)


def show_steps(job: DurableJob, display: JobDisplay, *, wait: bool) -> None:
    """Print the steps of a job; with `wait`, until it has ended."""
    from callboard.jobs.steps import EntrySteps  # noqa: PLC0415  # not for --help

    stage = EntrySteps()

    async def show(store: DurableStore) -> None:
        async for entry in _read_entries(store, job, wait=wait):
            for step in stage.feed(entry):
                display.step(step)
        for step in stage.finish():
            display.step(step)

    with open_store() as store:
        interrupt.run(show(store))


async def _read_entries(store: DurableStore, job: DurableJob, *, wait: bool) -> AsyncIterator[JobEntry]:
    if not wait:
        for entry in await store.read_entries(job.id):
            yield entry
        return
    async for _, entries in follow(store, job.id, wait_for_poll):
        for entry in entries:
            yield entry


@app.command("retry")
def retry(name: JobName, as_json: AsJson = False) -> None:
    """Do what a job was asked for once more, from the beginning, as a new job."""
    job = find_job(name)
    _show_new(change_jobs(lambda store: store.retry(job.id)), as_json=as_json)


@app.command("fork")
def fork(
    name: Annotated[
        str,
        typer.Argument(
            metavar="JOB@ROUND",
            help="The job, or how its name begins, and how many of its rounds are taken over.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Go on from an earlier round of a job, as a new job; the job itself stays as it is."""
    identifier, _, rounds = name.partition("@")
    if not rounds.isdecimal():
        raise CallerError("the round is missing", path=name, hint="write JOB@ROUND, such as 20261123-08@2")
    job = find_job(identifier)
    _show_new(change_jobs(lambda store: store.fork(job.id, int(rounds))), as_json=as_json)


def _show_new(job: DurableJob, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(job.as_json()))
        return
    typer.echo(job.id)
    typer.echo(f"{describe_runner(job)}; callboard jobs watch {job.id} shows it", err=True)


@app.command("rm")
def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="The jobs, or how their names begin.", show_default=False),
    ] = None,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="All that ended longer ago, such as 12h, 30d or 8w.", show_default=False)
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete jobs that have ended, with all that was recorded of them. Branches and files that they made stay."""
    from callboard.jobs.job import END_STATES  # noqa: PLC0415  # not for --help

    if bool(names) == bool(older_than):
        raise CallerError("say which: their names, or --older-than", path="rm")
    if older_than:
        _remove_old(parse_duration(older_than, "--older-than"), older_than, yes=yes)
        return
    records = [name for name in names or () if name in list_old_records()]
    targets = [find_job(name) for name in names or () if name not in records]
    for job in targets:
        # Of a running job it is found out below whether its worker lives.
        if job.state not in END_STATES and job.state != "running":
            raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id} ends it")
    _confirm(f"delete {', '.join([*records, *[each.id for each in targets]])}?", yes=yes)
    for name in dict.fromkeys([*records, *[each.id for each in targets]]):
        if name not in records:
            remove_job(name)
        JobFolders().remove(name)
        typer.echo(f"{name}: deleted", err=True)


def _remove_old(age: timedelta, text: str, *, yes: bool) -> None:
    from callboard.jobs.retention import remove_old_jobs  # noqa: PLC0415  # not for --help

    _confirm(f"delete all jobs and chats that ended more than {text} ago?", yes=yes)
    count = read_jobs(lambda store: remove_old_jobs(store, age)) if may_have_jobs() else 0
    typer.echo(f"{count} jobs deleted", err=True)


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CallerError("nobody is here to ask", hint="--yes deletes without a question")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


@app.command("export")
def export(
    name: JobName,
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="Where its folder is made.", show_default="the current directory")
    ] = Path(),
) -> None:
    """Write a job into a folder of its name: its record, its steps as JSONL, and each prompt and reply as a file.

    `job.json` is the job, `entries.jsonl` its conversation and steps exactly as they are kept, `events.jsonl` the steps as
    `--json` prints them, and `diff.patch` what a coding job changed.
    """
    job = find_job(name)
    folder = to / job.id
    if os.path.lexists(folder):
        raise CallerError("it is there already", path=str(folder), hint="delete it, or choose another place with --to")
    folder.mkdir(parents=True, mode=0o700)
    _write_folder(job, folder)
    typer.echo(str(folder))


def _write_folder(job: DurableJob, folder: Path) -> None:
    from callboard.jobs.export import JobExport  # noqa: PLC0415  # not for --help
    from callboard.jobs.steps import read_steps  # noqa: PLC0415

    entries = read_jobs(lambda store: store.read_entries(job.id))
    (folder / "job.json").write_text(json.dumps(job.as_json(), indent=2) + "\n", "utf-8")
    with (folder / "entries.jsonl").open("wb") as file:
        file.writelines(f"{each.line}\n".encode() for each in entries)
    if diff := (job.output or {}).get("diff"):
        (folder / "diff.patch").write_text(diff, "utf-8")
    with JobExport(folder) as log:
        for step in read_steps(entries):
            log.add(step)


app.command("watch")(watch)
app.command("approve")(job_answers.approve)
app.command("deny")(job_answers.deny)
app.command("answer")(job_answers.answer)

__all__ = ["app"]

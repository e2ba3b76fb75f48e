"""More commands of `callboard jobs`: approve, deny, answer, retry, fork, remove and export."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callboard.cli import interrupt
from callboard.cli.display import JobDisplay
from callboard.cli.durable_store import (
    change_jobs,
    find_job,
    open_store,
    read_jobs,
    remove_job,
)
from callboard.cli.jobs import app
from callboard.cli.line_editor import NO, YES, discard_input, read_answer
from callboard.cli.options import JobName, Json, option
from callboard.cli.questions import describe_call
from callboard.cli.watch import describe_runner, follow, wait_for_poll, watch
from callboard.coding.job_folders import JobFolders, list_old_records
from callboard.configuration.ownership import find_user_name
from callboard.errors import CallerError
from callboard.jobs import may_have_jobs
from callboard.jobs.entries import JobEntry
from callboard.jobs.job import END_STATES, Approval, DurableJob
from callboard.jobs.steps import EntrySteps, JobExport, read_steps
from callboard.text.display import collapse, escape, make_visible
from callboard.text.duration import parse_duration
from callboard.text.plural import format_count

if TYPE_CHECKING:
    from callboard.jobs.store import DurableStore

CallName = Annotated[
    str,
    typer.Argument(metavar="CALL", help="The call's id, or its start, if several calls wait.", show_default=False),
]


def approve(
    name: JobName,
    call: CallName = "",
    edit: Annotated[str, option(metavar="JSON", help="Run it with these arguments instead of the model's.")] = "",
    digest: Annotated[str, option(help="Digest of the call that you reviewed. A changed call is not approved.")] = "",
    yes: Annotated[bool, option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Approve a call that a job waits for. The command shows the call first."""
    edited = _read_arguments(edit)
    job = find_job(name)
    approval = read_jobs(lambda store: _find_open(store, job, call, is_question=False))
    if digest and digest != approval.digest:
        hint = f"look at it: callboard jobs show {job.id}"
        raise CallerError(f"the digest of the call is {approval.digest}", path=f"--digest {digest}", hint=hint)
    show_approval(approval, edited)
    if not (digest or yes):
        _confirm_call(job, approval)
    _answer(job, approval, as_json, verdict="allow", edited=edited)


def deny(
    name: JobName,
    call: CallName = "",
    reason: Annotated[str, option(help="The reason, which the model reads.")] = "",
    as_json: Json = False,
) -> None:
    """Deny a call that a job waits for. The job continues without it."""
    job = find_job(name)
    approval = read_jobs(lambda store: _find_open(store, job, call))
    show_approval(approval)
    _answer(job, approval, as_json, verdict="deny", reason=reason)


def answer(
    name: JobName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer. `-` reads standard input.")],
    call: CallName = "",
    as_json: Json = False,
) -> None:
    """Answer the question that a job waits for."""
    job = find_job(name)
    approval = read_jobs(lambda store: _find_open(store, job, call, is_question=True))
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    show_approval(approval)
    _answer(job, approval, as_json, verdict="allow", text=text)


def show_approval(approval: Approval, edited: dict[str, Any] | None = None) -> None:
    """Print the whole call, escaped, on standard error."""
    arguments = approval.arguments if edited is None else edited
    if approval.why:
        typer.echo(make_visible(approval.why), err=True)
    typer.echo(describe_call(approval.name, arguments), err=True)
    digest = f", digest {approval.digest}" if approval.digest else ""
    typer.echo(f"call {make_visible(approval.call_id)}{digest}", err=True)


def _read_arguments(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        hint = """write all arguments, such as '{"path": "a.txt"}'"""
        raise CallerError("not a JSON object", path=f"--edit {collapse(text)}", hint=hint)
    return arguments


async def _find_open(store: DurableStore, job: DurableJob, call: str, *, is_question: bool | None = None) -> Approval:
    """Return the open approval or question of this call, or the only one. Raises CallerError if there is none."""
    approvals = await store.read_approvals(job.id)
    chosen = [each for each in approvals if each.call_id == call] or [
        each for each in approvals if each.call_id.startswith(call) and not each.verdict
    ]
    path = f"{job.id} {call}".strip()
    if not chosen:
        if job.has_ended:
            raise CallerError(f"the job is {job.state} and asks nothing", path=path)
        raise CallerError(_describe_idle(job, call), path=path, hint=f"callboard jobs show {job.id} shows its state")
    if len(chosen) > 1:
        names = ", ".join([f"{escape(each.call_id)} ({escape(each.name)})" for each in chosen])
        raise CallerError(f"several calls wait: {names}", path=path, hint="name one of them after the job")
    if is_question is not None and chosen[0].is_question != is_question:
        message, command = (
            ("it is a question", "answer") if chosen[0].is_question else ("it is not a question", "approve or deny")
        )
        raise CallerError(message, path=path, hint=f"callboard jobs {command}")
    return chosen[0]


def _describe_idle(job: DurableJob, call: str) -> str:
    if call:
        return "the job does not ask about this call"
    waits = f" for its {job.waits_for.replace('_', ' ')}" if job.state == "waiting" else ""
    return f"the job is {job.state}{waits} and asks nothing"


def _confirm_call(job: DurableJob, approval: Approval) -> None:
    if not sys.stdin.isatty():
        seen = f"--digest {approval.digest}" if approval.digest else "--yes"
        hint = f"after you have reviewed the call: callboard jobs approve {job.id} {approval.call_id} {seen}"
        raise CallerError("no terminal to confirm in", path=f"{job.id} {approval.call_id}", hint=hint)
    word = ""
    while word not in YES:
        discard_input()
        typer.echo("Allow this call? [y]es, [n]o", err=True)
        line = read_answer()
        word = "no" if line is None else line.strip().lower()
        if word in NO:
            typer.echo("The call is still waiting.", err=True)
            raise typer.Exit(1)


def _answer(job: DurableJob, approval: Approval, as_json: bool, **values: Any) -> None:
    by = find_user_name()
    changed = change_jobs(
        lambda store: store.answer(job.id, approval.call_id, digest=approval.digest, by=by, via="terminal", **values)
    )
    if as_json:
        typer.echo(json.dumps(changed.as_json()))
        return
    next_step = "Continuing" if changed.state != "waiting" else "Waiting for more answers"
    typer.echo(f"{next_step}. Follow it with: callboard jobs watch {job.id}", err=True)


AsJson = Annotated[bool, option("--json", help="Print the new job as JSON.")]


@app.command("logs")
def logs(
    name: JobName,
    wait: Annotated[bool, option("--follow", "-f", help="Keep printing new steps until the job has ended.")] = False,
    as_json: Annotated[bool, option("--json", help="Print every step as one line of JSON.")] = False,
    verbose: Annotated[bool, option("--verbose", "-v", help="Show rounds, prompts, reasoning and notes.")] = False,
) -> None:
    """Print the recorded steps of a job. Runs nothing."""
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose, as_json=as_json)
    show_steps(find_job(name), display, wait=wait)


def show_steps(job: DurableJob, display: JobDisplay, *, wait: bool) -> None:
    """Print the steps of a job; with `wait`, until the job has ended."""
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
    """Run a job's task again from the start, as a new job."""
    job = find_job(name)
    _show_new(change_jobs(lambda store: store.retry(job.id)), as_json=as_json)


@app.command("fork")
def fork(
    name: Annotated[
        str,
        typer.Argument(
            metavar="JOB@ROUND",
            help="The job's name, the start of it, or @last, and the number of rounds to keep.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Continue from an earlier round of a job, as a new job. The old job does not change."""
    identifier, _, rounds = name.rpartition("@")
    if not identifier or not rounds.isdecimal():
        raise CallerError("no round is named", path=name, hint="write JOB@ROUND, such as 20261123-08@2")
    job = find_job(identifier)
    _show_new(change_jobs(lambda store: store.fork(job.id, int(rounds))), as_json=as_json)


def _show_new(job: DurableJob, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(job.as_json()))
        return
    typer.echo(job.id)
    typer.echo(f"{describe_runner(job)}. Follow it with: callboard jobs watch {job.id}", err=True)


@app.command("rm")
def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="The jobs' names, or the start of them.", show_default=False),
    ] = None,
    older_than: Annotated[str, option(metavar="AGE", help="Jobs that ended longer ago, such as 12h, 30d or 8w.")] = "",
    yes: Annotated[bool, option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete ended jobs with their records. Their branches and files stay."""
    if bool(names) == bool(older_than):
        raise CallerError("name the jobs, or give --older-than", path="rm")
    if older_than:
        _remove_old(parse_duration(older_than, "--older-than"), older_than, yes=yes)
        return
    records = [name for name in names or () if name in list_old_records()]
    targets = [find_job(name) for name in names or () if name not in records]
    for job in targets:
        # `remove_job` checks whether the worker of a running job is alive.
        if job.state not in END_STATES and job.state != "running":
            raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id} ends it")
    confirm_deletion(f"delete {', '.join([*records, *[each.id for each in targets]])}?", yes=yes)
    for name in dict.fromkeys([*records, *[each.id for each in targets]]):
        if name not in records:
            remove_job(name)
        JobFolders().remove(name)
        typer.echo(f"{name}: deleted", err=True)


def _remove_old(age: timedelta, text: str, *, yes: bool) -> None:
    from callboard.jobs.services import remove_old_jobs  # noqa: PLC0415  # not for --help

    confirm_deletion(f"delete all jobs and chats that ended more than {text} ago?", yes=yes)
    count = read_jobs(lambda store: remove_old_jobs(store, age)) if may_have_jobs() else 0
    typer.echo(f"{format_count(count, 'job')} deleted", err=True)


def confirm_deletion(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CallerError("no terminal to confirm in", hint="--yes deletes without asking")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


@app.command("export")
def export(
    name: JobName,
    to: Annotated[
        Path, option(metavar="DIR", help="Parent of the job's folder.", show_default="the current directory")
    ] = Path(),
) -> None:
    """Write a job to a folder with its name: the record, the steps as JSONL, and each prompt and reply as a file.

    `job.json` is the job, `entries.jsonl` its conversation and steps exactly as stored, `events.jsonl` the steps as
    `--json` prints them, and `diff.patch` the changes of a coding job.
    """
    job = find_job(name)
    folder = to / job.id
    if os.path.lexists(folder):
        raise CallerError("the folder exists", path=str(folder), hint="delete it, or choose another place with --to")
    folder.mkdir(parents=True, mode=0o700)
    _write_folder(job, folder)
    typer.echo(str(folder))


def _write_folder(job: DurableJob, folder: Path) -> None:

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
app.command("approve")(approve)
app.command("deny")(deny)
app.command("answer")(answer)

__all__ = ["app"]

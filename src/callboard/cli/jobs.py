"""`callboard jobs`, `trace` and `undo`: show, cancel, resume, trace and undo jobs."""

from __future__ import annotations

import asyncio
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from callboard.cli import complete, durable_store
from callboard.cli.display import JobDisplay, describe_count, print_safely
from callboard.cli.durable_store import find_job, read_jobs, read_output, resume_job_in_worker, settle_job
from callboard.cli.options import JobName
from callboard.cli.settings import settings_in
from callboard.cli.watch import describe_waiting
from callboard.coding.job_folders import OLD_RECORD, JobFolders, list_old_records
from callboard.core import encode_line
from callboard.errors import CallerError
from callboard.jobs.job import DurableJob, DurableState, JobSummary
from callboard.jobs.steps import CallSpan, RoundSpan, build_trace, describe_trace, place_spans, sum_seconds
from callboard.profiles import format_cost
from callboard.text.display import collapse

if TYPE_CHECKING:
    from rich.table import Table

_BAR: Final = 30
"""Width of the bars, in characters."""
_MAX_NAME: Final = 40
_MAX_FAILURE: Final = 60
_STYLES: Final = {"done": "green", "failed": "red", "open": "yellow"}


def trace(
    name: JobName,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show where a job's time, tokens and money went, by round and call.

    Each bar shows when its reply or call ran. Waits for a person are not shown.
    """
    job = find_job(name)
    rounds = build_trace(read_jobs(lambda store: store.read_entries(job.id)))
    if as_json:
        described = {name: getattr(job, name) for name in ("id", "state", "model", "usage", "cost")}
        typer.echo(json.dumps({**described, "rounds": describe_trace(rounds)}, indent=2))
        return
    from rich.console import Console  # noqa: PLC0415  # rich costs 50 ms

    console = Console(highlight=False, soft_wrap=False)
    console.print(_make_table(job, rounds, is_narrow=console.width < 80))


def _make_table(job: DurableJob, rounds: list[RoundSpan], *, is_narrow: bool) -> Table:
    from rich.table import Table  # noqa: PLC0415  # rich costs 50 ms
    from rich.text import Text  # noqa: PLC0415

    seconds = sum_seconds(rounds)
    sums = _describe_tokens(job.usage), format_cost(job.cost)
    model = collapse(job.model, _MAX_NAME)
    table = Table(box=None, pad_edge=False, title_justify="left", title=Text(f"{job.id}  {job.state}  {model}"))
    table.add_column("round", no_wrap=True, overflow="ellipsis")
    for heading in ("time", "tokens in/out", "cost"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=8)
    table.add_column("", no_wrap=True, overflow="crop", max_width=1 if is_narrow else _BAR)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    heading = ""
    for each, begin, width in place_spans(rounds):
        if isinstance(each, CallSpan):
            table.add_row(*_call_row(each, begin, width))
            continue
        if (new := each.phase + (f": {each.model}" if each.model else "")) != heading:
            heading = new
            table.add_row(Text(collapse(heading, _MAX_NAME), style="bold"))
        table.add_row(
            f"{each.number}",
            _describe_seconds(each.seconds),
            _describe_tokens(each.usage),
            format_cost(each.cost),
            Text(_draw_bar(begin, width), style="cyan"),
        )
    table.add_section()
    table.add_row("all", _describe_seconds(seconds or None), *sums)
    return table


def _call_row(call: CallSpan, begin: float, width: float) -> list[Any]:
    from rich.text import Text  # noqa: PLC0415  # rich costs 50 ms

    style = _STYLES[call.state]
    name = Text(f"  {collapse(call.name, _MAX_NAME)}")
    bar = Text(_draw_bar(begin, width), style=style)
    state = call.state if call.state != "failed" else collapse(call.failure, _MAX_FAILURE)
    return [name, _describe_seconds(call.seconds), "", "", bar, Text(state, style=style)]


def _draw_bar(begin: float, width: float) -> str:
    if not width:
        return ""
    first = min(int(begin * _BAR), _BAR - 1)
    return " " * first + "━" * max(1, min(round(width * _BAR), _BAR - first))


def _describe_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _describe_tokens(usage: dict[str, int]) -> str:
    return f"{usage.get('input', 0)}/{usage.get('output', 0)}" if usage else ""


State = StrEnum("State", {each: each for each in get_args(DurableState)})  # type: ignore[misc]  # the values are known
"""A state of jobs, as an option."""

app = typer.Typer(no_args_is_help=True, help="List, show and manage your jobs: coding jobs, chats and agent runs.")


@app.command("list")
def list_jobs(
    all_: Annotated[bool, typer.Option("--all", help="List the jobs of all directories.")] = False,
    states: Annotated[list[State] | None, typer.Option("--state", help="A state to list; repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of jobs to list; 0 lists all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one job per line, as JSON.")] = False,
) -> None:
    """List the jobs, the newest first."""
    jobs = [each for each in durable_store.list_jobs() if not states or each.state in states]
    jobs = jobs if all_ else list(filter(durable_store.is_here, jobs))
    for each in jobs[: limit or None]:
        typer.echo(json.dumps(each.as_json()) if as_json else _describe_job(each))
    if limit and (more := len(jobs) - limit) > 0:
        typer.echo(f"{describe_count(more, 'more job')}; --limit 0 lists all", err=True)
    if not jobs and not as_json:
        which = f"no {' or '.join(states or ())} jobs".replace("  ", " ")
        typer.echo(which if all_ else f"{which} in this directory; --all lists all jobs", err=True)
    if old := list_old_records():
        names = " ".join(old[:3]) + (" ..." if len(old) > 3 else "")
        typer.echo(f"not listed, {OLD_RECORD} each: {len(old)}; callboard jobs rm {names} deletes them", err=True)


def _describe_job(job: JobSummary) -> str:
    created = f"{job.created_at.astimezone():%Y-%m-%d %H:%M}"
    details = {"running": job.phase, "waiting": job.waits_for.replace("_", " ")}.get(job.state, "")
    state = collapse(f"{job.state} {details}".strip())
    return f"{job.id}  {created}  {collapse(job.kind):6}  {state:18}  {collapse(job.title, 60)}"


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
    rows = {
        "job": job.id,
        "type": job.kind,
        "state": f"{job.state}{f': {job.reason}' if job.reason else ''}",
        "phase": job.phase,
        "directory": job.directory,
        "model": job.model,
        "began": job.started_at and f"{job.started_at.astimezone():%Y-%m-%d %H:%M:%S}",
        "ended": job.completed_at and f"{job.completed_at.astimezone():%Y-%m-%d %H:%M:%S}",
        "rounds": f"{job.rounds}, {describe_count(job.calls, 'call')}, {job.usage.get('input', 0)} tokens in, "
        f"{job.usage.get('output', 0)} out",
        "error": job.error,
        "branch": output.branch,
        "commits": ", ".join(each[:12] for each in output.commits),
        "files": ", ".join(output.files),
        "tests": output.tests,
        "pull": output.commits and (output.pull_request_url or "no pull request was opened"),
        "missing": "; ".join(output.missing),
        "folder": str(folder) if (folder := JobFolders().folder(job.id)).is_dir() else "",
        "queue": job.queue,
        "from": job.parent,
        "schedule": job.schedule,
    }
    for key, value in rows.items():
        if value:
            typer.echo(f"{key:9}  {collapse(str(value), 400)}")
    for each in answers:
        typer.echo(f"{'answer':9}  {collapse(f'{each.invocation.name}: {each.describe()}', 1000)}")
    for line in read_jobs(lambda store: describe_waiting(store, job)):
        typer.echo(collapse(line, 2000))
    if job.state == "interrupted":
        typer.echo(f"callboard jobs resume {job.id} continues it")
    print_safely(f"\n{job.description}\n")
    if output.summary:
        print_safely(f"\n{output.summary}\n")


@app.command("cancel")
def cancel_job(name: JobName) -> None:
    """Cancel a running or waiting job, and stop its commands and their processes."""
    ended = durable_store.cancel_job(durable_store.find_job(name))
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
        typer.echo(f"{resumed.id}: {resumed.state}; callboard jobs watch {resumed.id} shows it", err=True)
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

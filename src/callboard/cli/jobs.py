"""`callboard jobs` and `undo`: show, cancel and resume jobs, and take back what they did."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from callboard.cli import complete
from callboard.cli.display import Display
from callboard.errors import CallerError
from callboard.text.display import collapse, strip_controls

if TYPE_CHECKING:
    from callboard.coding.job import Step
    from callboard.jobs.job import DurableJob, JobSummary

app = typer.Typer(no_args_is_help=True, help="Your jobs: coding jobs, chats, and jobs of workers.")

EXIT_CODES: Final[Mapping[tuple[str, bool], int]] = {
    ("completed", False): 0,
    ("completed", True): 3,
    ("failed", True): 3,
    ("failed", False): 1,
    ("cancelled", False): 130,
    ("cancelled", True): 130,
}
"""By a job's state, and whether evidence is missing."""

_COLORS: Final = {"completed": "32", "failed": "31", "cancelled": "33", "running": "36", "waiting": "35"}

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The job, or how its name begins.", show_default=False, autocompletion=complete.jobs
    ),
]


class JobDisplay(Display):
    """Shows the steps of a job; as JSON, a line each."""

    def __init__(self, out: TextIO, err: TextIO, *, verbose: bool, as_json: bool) -> None:
        super().__init__(out, err, verbose=verbose, color=err.isatty() and "NO_COLOR" not in os.environ)
        self.as_json = as_json

    def step(self, step: Step) -> None:
        from callboard.coding.job import (  # noqa: PLC0415
            Notice,
            PhaseEnded,
            PhaseStarted,
            PromptSent,
            Resumed,
            TreeSnapshot,
            encode_step,
        )

        if self.as_json:
            line = encode_step(step)
            # A terminal obeys some characters that JSON has as they are.
            line = json.dumps(json.loads(line)).encode() if self._terminal else line
            self._out.buffer.write(line + b"\n")
            self._out.buffer.flush()
            return
        match step:
            case PhaseStarted(name=name):
                self.tell(f"== {name}", "1")
            case PhaseEnded(missing=missing):
                for each in missing:
                    self.tell(f"   missing: {collapse(each, 400)}", "33")
            case Notice(text=text):
                self.tell(text, "2")
            case Resumed():
                self.tell("goes on where it was", "2")
            case PromptSent(text=text):
                if self._verbose:
                    self.tell(text, "2")
            case TreeSnapshot():
                pass  # forks begin with it
            case _:
                self.show(step)

    def job(self, job: DurableJob) -> None:
        self._out.write(json.dumps({**job.as_json(), "type": "job"}) + "\n")
        self._out.flush()


def print_outcome(job: DurableJob, display: Display) -> None:
    """Shows what a person needs to know at a job's end."""
    from callboard.cli.durable_store import read_output  # noqa: PLC0415  # not for --help
    from callboard.coding.job import UNTESTED  # noqa: PLC0415

    output = read_output(job)
    # The error says where, and what to do, too.
    why = collapse(job.error or job.reason, 1000)
    is_completed = job.state == "completed"
    is_untested = is_completed and output.tests.startswith(UNTESTED)
    state = f"{job.state}{', not tested' if is_untested else ''}{f': {why}' if why else ''}"
    display.tell(state, "33" if is_untested else _COLORS.get(job.state, ""))
    for each in output.missing:
        display.tell(f"missing: {collapse(each, 400)}", "33")
    if job.kind in ("review", "triage") and output.summary:
        _print(f"{output.summary}\n")
    if output.patch and is_completed:
        display.tell(f"the change is in {output.patch}; take it with: git apply {shlex.quote(output.patch)}")
    elif output.patch:
        display.tell(f"the unfinished change is in {output.patch}")
    elif (branch := output.branch) and output.commits:
        unfinished = "" if is_completed else "the unfinished change is on "
        display.tell(f"{unfinished}branch {branch}, {len(output.commits)} commits, {len(output.files)} files")
        take = f"    take: git merge {branch}" if is_completed else ""
        display.tell(f"look: git diff HEAD...{branch}{take}    drop: callboard undo {job.id}")
    if output.tests:
        display.tell(f"tests: {output.tests}")
    if output.pull_request and output.commits:
        display.tell(f"pull request: {output.pull_request_url or 'not opened'}")
    display.tell(f"job {job.id}: callboard jobs show {job.id}, callboard jobs logs {job.id}", "2")


@app.command("list")
def list_jobs(
    all_: Annotated[bool, typer.Option("--all", help="Of all directories, not of this one alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a job a line.")] = False,
) -> None:
    """List the jobs, the newest first."""
    from callboard.cli import durable_store  # noqa: PLC0415  # not for --help
    from callboard.coding.job_folders import OLD_RECORD, list_old_records  # noqa: PLC0415

    here = Path.cwd()
    jobs = [*durable_store.list_jobs()]
    if not all_:  # one without a directory is nowhere else either
        jobs = [
            each for each in jobs if not each.directory or here in (Path(each.directory), *Path(each.directory).parents)
        ]
    for each in jobs:
        typer.echo(json.dumps(each.as_json()) if as_json else _describe_job(each))
    if not jobs and not as_json:
        typer.echo("no jobs" if all_ else "no jobs of this directory; --all shows those of others", err=True)
    if old := list_old_records():
        names = " ".join(old[:3]) + (" ..." if len(old) > 3 else "")
        typer.echo(f"not listed, {OLD_RECORD} each: {len(old)}; callboard jobs rm {names} deletes them", err=True)


def _describe_job(job: JobSummary) -> str:
    """A job in one line."""
    created = f"{job.created_at.astimezone():%Y-%m-%d %H:%M}"
    details = {"running": job.phase, "waiting": job.waits_for.replace("_", " ")}.get(job.state, "")
    state = collapse(f"{job.state} {details}".strip())
    return f"{job.id}  {created}  {collapse(job.kind):6}  {state:18}  {collapse(job.title, 60)}"


@app.command("show")
def show_job(
    name: JobName,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job as JSON.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print its diff alone.")] = False,
) -> None:
    """Show a job: its task, its state and its outcome."""
    from callboard.cli.durable_store import find_job, read_jobs, read_output  # noqa: PLC0415  # not for --help
    from callboard.cli.watch import describe_waiting  # noqa: PLC0415
    from callboard.coding.job_folders import JobFolders  # noqa: PLC0415
    from callboard.core import encode_line  # noqa: PLC0415

    job = find_job(name)
    output = read_output(job)
    answers = read_jobs(lambda store: store.read_answers(job.id))
    if as_json:
        answer_list = [json.loads(encode_line(each)) for each in answers]
        typer.echo(json.dumps({**job.as_json(), **({"answers": answer_list} if answer_list else {})}, indent=2))
        return
    if diff:
        _print(output.diff)
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
        "rounds": f"{job.rounds}, {job.calls} calls, {job.usage.get('input', 0)} tokens in, "
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
    _print(f"\n{job.description}\n")
    if output.summary:
        _print(f"\n{output.summary}\n")


def _print(text: str) -> None:
    """Prints the text; on a terminal without what that would obey."""
    sys.stdout.write(strip_controls(text) if sys.stdout.isatty() else text)


@app.command("cancel")
def cancel_job(name: JobName) -> None:
    """End a job that runs or waits: its call, its commands and their processes, wherever they are."""
    from callboard.cli import durable_store  # noqa: PLC0415  # not for --help

    ended = durable_store.cancel_job(durable_store.find_job(name))
    typer.echo(f"{ended.id}: {ended.state}{f' ({ended.reason})' if ended.reason not in {'', ended.state} else ''}")


@app.command("resume")
def resume_job(
    name: JobName,
    model: Annotated[
        str,
        typer.Option(help="Go on with another model.", show_default="the job's own", autocompletion=complete.models),
    ] = "",
    base_url: Annotated[str, typer.Option(help="Where it is.", show_default="the job's own")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every step as one line of JSON, the last line the job.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show rounds, prompts, reasoning, notes and usage.")
    ] = False,
) -> None:
    """Go on with a job whose process died, or that a worker runs and that did not complete. Settings are read again.

    It goes on in its tree, with what the model knew. What it was told and did before is not repeated; a call that was
    under way is not made again.
    """
    from callboard.cli.durable_store import find_job, resume_job_in_worker  # noqa: PLC0415  # not for --help
    from callboard.cli.follow_job import follow_job  # noqa: PLC0415
    from callboard.cli.settings import settings_in  # noqa: PLC0415
    from callboard.coding.agents.job_request import request_of  # noqa: PLC0415
    from callboard.jobs.direct import is_direct  # noqa: PLC0415

    job = find_job(name)
    if job.kind == "chat":
        raise CallerError("this is a chat", path=job.id, hint=f"callboard chat --resume {job.id}")
    if not is_direct(job):
        if model or base_url:
            raise CallerError("a worker reads the model of the job", path=job.id, hint="leave --model out")
        resumed = resume_job_in_worker(job)
        typer.echo(f"{resumed.id}: {resumed.state}; callboard jobs watch {resumed.id} shows it", err=True)
        return
    flags = {"model": model or job.input.get("model"), "base_url": base_url or job.input.get("base_url")}
    flags |= {"max_rounds": job.input.get("rounds"), **{name: job.input.get(name) for name in ("dialect", "budget")}}
    settings = settings_in(Path(job.directory), flags)
    request = request_of(job.kind, job.directory, job.input, settings)
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose or settings.coding.debug.enabled, as_json=as_json)
    follow_job(request, display, resume=job)


def undo(name: JobName) -> None:
    """Take back what a job did: its branch and its tree go; a chat's edits are taken out of your files."""
    import asyncio  # noqa: PLC0415  # not for --help

    from callboard.cli.durable_store import find_job, read_jobs, settle_job  # noqa: PLC0415
    from callboard.coding.job_folders import JobFolders  # noqa: PLC0415
    from callboard.jobs.chat import undo_chat  # noqa: PLC0415
    from callboard.jobs.coding_kind import undo_job  # noqa: PLC0415

    folders = JobFolders()
    job = find_job(name)
    if not folders.folder(job.id).is_dir():
        raise CallerError("nothing of the job is on this host", path=job.id)
    job = settle_job(job)
    if not job.has_ended:
        raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id}")
    if job.kind == "chat":
        typer.echo(read_jobs(lambda store: undo_chat(store, job, folders)))
        return
    typer.echo(asyncio.run(undo_job(job.id, job.memory.get("tree", {}), folders)))

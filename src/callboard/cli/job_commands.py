"""`callboard build`, `debug`, `review`, `triage`: a repository and a task in, a tested change back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from callboard.cli.display import JobDisplay
from callboard.cli.options import (
    Background,
    BaseUrl,
    Budget,
    Dialect,
    Directory,
    Model,
    NoSandbox,
    Verbose,
    Wait,
    takes_options,
)
from callboard.cli.settings import settings_in, start_telemetry
from callboard.extras import require_extra

if TYPE_CHECKING:
    from callboard.coding.agents.job_request import JobRequest

Logs: TypeAlias = Annotated[Path | None, typer.Option(help="A file of logs.", show_default=False)]
SameAsOption: TypeAlias = Annotated[str, typer.Option(help="The same as an option.", show_default=False)]


take_request: ContextVar[Callable[[JobRequest, int], None] | None] = ContextVar("take_request", default=None)
"""Takes the request of a command, and its priority, in the place of running it: the command is scheduled."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that the four commands share; see `takes_options`."""

    issue: Annotated[int | None, typer.Option(min=1, help="An issue, read through gh.", show_default=False)] = None
    model: Model = ""
    base_url: BaseUrl = ""
    dialect: Dialect = ""
    max_rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Replies of the whole job, the last without tools; else as many as its phases have.",
            show_default=False,
        ),
    ] = None
    budget: Budget = None
    access: Annotated[
        str, typer.Option(help="read-only, edit (files and tests), or full (commands too).", show_default="full")
    ] = ""
    workflow: Annotated[
        str,
        typer.Option(help="phased (many steps), or short (for small models); else the profile's.", show_default=False),
    ] = ""
    at: Annotated[str, typer.Option(help="The commit, branch or tag to begin at.", show_default="HEAD")] = ""
    directory: Directory = Path()
    push: Annotated[bool, typer.Option("--push", help="Push the branch when the evidence holds.")] = False
    pr: Annotated[
        bool, typer.Option("--pr", help="Push, and open a pull request (a draft) through gh, when the evidence holds.")
    ] = False
    no_sandbox: NoSandbox = False
    allow_weaker_sandbox: Annotated[
        bool,
        typer.Option(
            "--allow-weaker-sandbox",
            help="Use a sandbox that leaves something outside open to change: `callboard doctor --sandbox` says what.",
        ),
    ] = False
    keep: Annotated[bool, typer.Option("--keep", help="Keep the job's working tree.")] = False
    wait: Wait = False
    background: Background = False
    priority: Annotated[int, typer.Option(help="Priority in the queue; lower numbers run first.")] = 0
    direct: Annotated[
        bool,
        typer.Option(
            "--direct",
            help="Run in this process, as is done without it too: for scripts that say so.",
            show_default=False,
        ),
    ] = True
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every step as one line of JSON, the last line the job.")
    ] = False
    verbose: Verbose = False


@takes_options(JobOptions)
def build(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The task. `-` reads standard input.", show_default=False)] = "",
    description: SameAsOption = "",
) -> None:
    """Build something: analyse, plan, implement, validate, deliver.

    The job works in a clone of the repository, on a new branch: your files stay as they are. Its tests and
    commands run in a sandbox without network.

    Exit codes: 0 the evidence holds, 1 failed, 2 wrong usage, 3 the
    evidence does not hold, 130 cancelled.
    """
    _run("build", options, description=_text(prompt, description, "--description"))


@takes_options(JobOptions)
def debug(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The symptoms. `-` reads standard input.", show_default=False)] = "",
    symptoms: SameAsOption = "",
    logs: Logs = None,
) -> None:
    """Fix a fault: reproduce, investigate, isolate, fix, verify, commit.

    Tests that fail are the measure, and may not be changed. Where it works and its exit codes are those of `build`.
    """
    _run("debug", options, logs, description=_text(prompt, symptoms, "--symptoms"))


@takes_options(JobOptions, "issue", "access", "at", "push", "pr")
def review(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The branch that is reviewed.", show_default=False)] = "",
    branch: SameAsOption = "",
    base: Annotated[
        str, typer.Option(help="Commit or branch to compare with, from the last common commit.", show_default="HEAD")
    ] = "",
    pr: Annotated[int | None, typer.Option(min=1, help="A pull request, read through gh.", show_default=False)] = None,
) -> None:
    """Review a branch: gather, security, quality, compile. Nothing is changed.

    The findings go to standard output, a line each: file, line, severity, what is wrong.
    """
    _run("review", options, branch=_either(prompt, branch, "--branch"), base=base, pull_request=pr)


@takes_options(JobOptions, "access", "push", "pr")
def triage(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The report. `-` reads standard input.", show_default=False)] = "",
    description: SameAsOption = "",
    error_logs: Logs = None,
) -> None:
    """Find the likely cause of a report, its severity and what to do first. Nothing is changed."""
    _run("triage", options, error_logs, description=_text(prompt, description, "--description"))


def _either(argument: str, option: str, name: str) -> str:
    if argument and option:
        raise typer.BadParameter("it stands beside the command already", param_hint=name)
    return argument or option


def _text(argument: str, option: str, name: str) -> str:
    text = _either(argument, option, name)
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _run(
    kind: Literal["build", "debug", "review", "triage"],
    options: JobOptions,
    logs: Path | None = None,
    **fields: Any,
) -> None:
    """Runs the job, shows its steps, and exits as it went. `fields` are those of JobRequest that only some kinds have."""
    require_extra("jobs")
    from callboard.cli.background import show_submitted, submit_job  # noqa: PLC0415  # not for --help
    from callboard.cli.follow_job import follow_job  # noqa: PLC0415
    from callboard.coding.agents.job_request import JobRequest, read_logs  # noqa: PLC0415

    directory = options.directory.resolve()
    flags = {name: getattr(options, name) for name in ("model", "base_url", "dialect", "max_rounds", "budget")}
    settings = settings_in(directory, flags)
    start_telemetry(settings.telemetry)
    verbose = options.verbose or settings.coding.debug.enabled
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose, as_json=options.as_json)
    request = JobRequest(
        kind=kind,
        directory=directory,
        settings=settings,
        logs=read_logs(logs) if logs else "",
        logs_file=str(logs or ""),
        issue=options.issue,
        commit=options.at,
        push=options.push,
        open_pull_request=options.pr,
        model=options.model,
        base_url=options.base_url,
        dialect=options.dialect,
        access=options.access,  # type: ignore[arg-type]  # JobRequest checks it, and the next
        workflow=options.workflow,  # type: ignore[arg-type]
        rounds=options.max_rounds,
        budget=options.budget,
        without_sandbox=options.no_sandbox,
        allow_weaker_sandbox=options.allow_weaker_sandbox,
        keep_tree=options.keep,
        **fields,
    )
    if (take := take_request.get()) is not None:
        take(request, options.priority)
        return
    if options.background or options.wait:
        job = submit_job(request, display, priority=options.priority)
        show_submitted(job, display, waits=options.wait, as_json=options.as_json, verbose=verbose)
        return
    follow_job(request, display)

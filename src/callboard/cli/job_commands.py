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
SameAsOption: TypeAlias = Annotated[str, typer.Option(help="The same text as an option.", show_default=False)]


take_request: ContextVar[Callable[[JobRequest, int], None] | None] = ContextVar("take_request", default=None)
"""If set, receives a command's request and its priority instead of running them: the command is scheduled."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that the four commands share; see `takes_options`."""

    issue: Annotated[int | None, typer.Option(min=1, help="A GitHub issue to read.", show_default=False)] = None
    model: Model = ""
    base_url: BaseUrl = ""
    dialect: Dialect = ""
    max_rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum replies of the job; the last has no tools. By default the sum of its phases.",
            show_default=False,
        ),
    ] = None
    budget: Budget = None
    access: Annotated[
        str, typer.Option(help="read-only, edit (files and tests), or full (commands too).", show_default="full")
    ] = ""
    workflow: Annotated[
        str,
        typer.Option(help="phased (many steps) or short (small models). Default: the profile's.", show_default=False),
    ] = ""
    at: Annotated[str, typer.Option(help="The commit, branch or tag to start from.", show_default="HEAD")] = ""
    directory: Directory = Path()
    push: Annotated[bool, typer.Option("--push", help="Push the branch if the evidence holds.")] = False
    pr: Annotated[
        bool,
        typer.Option("--pr", help="Push the branch and open a draft pull request through gh, if the evidence holds."),
    ] = False
    no_sandbox: NoSandbox = False
    allow_weaker_sandbox: Annotated[
        bool,
        typer.Option(
            "--allow-weaker-sandbox",
            help="Allow a sandbox that leaves some actions outside open; `callboard doctor --sandbox` lists them.",
        ),
    ] = False
    keep: Annotated[bool, typer.Option("--keep", help="Keep the job's working tree.")] = False
    wait: Wait = False
    background: Background = False
    priority: Annotated[int, typer.Option(help="Priority of a worker's job; the lowest number runs first.")] = 0
    direct: Annotated[
        bool,
        typer.Option(
            "--direct",
            help="Run in this process. This is the default; scripts may say it explicitly.",
            show_default=False,
        ),
    ] = True
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every step as one line of JSON; the last line is the job.")
    ] = False
    verbose: Verbose = False


@takes_options(JobOptions)
def build(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The task. `-` reads standard input.", show_default=False)] = "",
    description: SameAsOption = "",
) -> None:
    """Build something: analyse, plan, implement, validate, deliver.

    The job works on a new branch in a clone of the repository. It does not change your files. Its tests and
    commands run in a sandbox without network.

    Exit codes: 0 the evidence holds, 1 failed, 2 wrong usage, 3 the
    evidence does not hold, 130 cancelled.
    """
    _run("build", options, description=_text(prompt, description, "--description"))


@takes_options(JobOptions)
def debug(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The bug to fix. `-` reads standard input.", show_default=False)] = "",
    symptoms: SameAsOption = "",
    logs: Logs = None,
) -> None:
    """Fix a bug: reproduce, investigate, isolate, fix, verify, commit.

    The fix must make failing tests pass without changing them. It uses a clone and exit codes as `build` does.
    """
    _run("debug", options, logs, description=_text(prompt, symptoms, "--symptoms"))


@takes_options(JobOptions, "issue", "access", "at", "push", "pr")
def review(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The branch to review.", show_default=False)] = "",
    branch: SameAsOption = "",
    base: Annotated[str, typer.Option(help="Compare with this branch, from the merge base.", show_default="HEAD")] = "",
    pr: Annotated[int | None, typer.Option(min=1, help="A pull request to read.", show_default=False)] = None,
) -> None:
    """Review a branch: gather, security, quality, compile. Changes no files.

    The findings go to standard output, one per line: file, line, severity, problem.
    """
    _run("review", options, branch=_either(prompt, branch, "--branch"), base=base, pull_request=pr)


@takes_options(JobOptions, "access", "push", "pr")
def triage(
    options: JobOptions,
    prompt: Annotated[str, typer.Argument(help="The bug report. `-` reads standard input.", show_default=False)] = "",
    description: SameAsOption = "",
    error_logs: Logs = None,
) -> None:
    """Assess a bug report: likely cause, severity, and what to do first. Changes no files."""
    _run("triage", options, error_logs, description=_text(prompt, description, "--description"))


def _either(argument: str, option: str, name: str) -> str:
    if argument and option:
        raise typer.BadParameter("the command already has this as an argument", param_hint=name)
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
    """Run the job, show its steps, and exit with its code. `fields` are JobRequest fields of some kinds."""
    require_extra("coding")
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

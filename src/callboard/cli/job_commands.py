"""`callboard build`, `debug`, `review`, `triage`: a repository and a task in, a tested change back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from callboard.cli import complete
from callboard.cli.command_group import ADVANCED
from callboard.cli.display import JobDisplay
from callboard.cli.options import (
    WORKER,
    Background,
    BaseUrl,
    Budget,
    CodingModel,
    Context,
    Dialect,
    Directory,
    Effort,
    NoSandbox,
    Verbose,
    Wait,
    option,
    takes_options,
)
from callboard.cli.settings import settings_in, start_telemetry
from callboard.extras import require_extra

if TYPE_CHECKING:
    from callboard.coding.agents.job_request import JobRequest

Logs: TypeAlias = Annotated[Path | None, option(help="A file of logs.")]
SameAsOption: TypeAlias = Annotated[str, option(hidden=True)]
"""The prompt as an option, for scripts that name it."""

take_request: ContextVar[Callable[[JobRequest, int], None] | None] = ContextVar("take_request", default=None)
"""If set, receives a command's request and its priority instead of running them: the command is scheduled."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that the four commands share; see `takes_options`."""

    issue: Annotated[int | None, option(min=1, help="A GitHub issue to read.")] = None
    model: CodingModel = ""
    base_url: BaseUrl = ""
    dialect: Dialect = ""
    context: Context = 0
    effort: Effort = ""
    escalate: Annotated[
        str,
        option(help="A stronger model that takes over when this one is stuck.", autocompletion=complete.models),
    ] = ""
    max_rounds: Annotated[
        int | None,
        option(
            min=1,
            help="Maximum replies of the job; the last has no tools.",
            show_default="the sum of its phases",
            panel=ADVANCED,
        ),
    ] = None
    budget: Budget = None
    access: Annotated[
        str, option(help="read-only, edit (files and tests) or full (commands too).", show_default="full")
    ] = ""
    workflow: Annotated[
        str, option(help="phased (many steps) or short (small models).", show_default="the profile's", panel=ADVANCED)
    ] = ""
    at: Annotated[str, option(help="The commit, branch or tag to start from.", show_default="HEAD")] = ""
    directory: Directory = Path()
    push: Annotated[bool, option("--push", help="Push the branch if the evidence holds.")] = False
    pr: Annotated[bool, option("--pr", help="Push, and open a draft pull request with gh, if the evidence holds.")] = (
        False
    )
    no_sandbox: NoSandbox = False
    allow_weaker_sandbox: Annotated[
        bool,
        option(
            "--allow-weaker-sandbox",
            help="Allow a sandbox with gaps, which callboard doctor --sandbox lists.",
            panel=ADVANCED,
        ),
    ] = False
    keep: Annotated[bool, option("--keep", help="Keep the job's working tree.", panel=ADVANCED)] = False
    wait: Wait = False
    background: Background = False
    priority: Annotated[int, option(help="Priority of the job; the lowest number runs first.", panel=WORKER)] = 0
    direct: Annotated[bool, option("--direct", hidden=True)] = True
    """The default, for scripts that name it."""
    as_json: Annotated[
        bool, option("--json", help="Print every step as one line of JSON; the last line is the job.")
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
    base: Annotated[str, option(help="Compare with this branch, from the merge base.", show_default="HEAD")] = "",
    pr: Annotated[int | None, option(min=1, help="A pull request to read.")] = None,
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
    logs: Annotated[Path | None, option("--logs", "--error-logs", help="A file of logs.")] = None,
) -> None:
    """Assess a bug report: likely cause and severity. Changes no files.

    The answer also says what to do first.
    """
    _run("triage", options, logs, description=_text(prompt, description, "--description"))


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
    from callboard.configuration.settings import CODING_MODEL  # noqa: PLC0415
    from callboard.providers.local.memory import read_memory  # noqa: PLC0415
    from callboard.providers.local.recommendation import describe_too_small  # noqa: PLC0415

    directory = options.directory.resolve()
    flags = {
        name: getattr(options, name)
        for name in ("model", "base_url", "dialect", "context", "effort", "max_rounds", "budget")
    }
    settings = settings_in(directory, flags, for_coding=True)
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
        context=options.context,
        effort=options.effort,
        escalate=options.escalate,
        access=options.access,  # type: ignore[arg-type]  # JobRequest checks it, and the next
        workflow=options.workflow,  # type: ignore[arg-type]
        rounds=options.max_rounds,
        budget=options.budget,
        without_sandbox=options.no_sandbox,
        allow_weaker_sandbox=options.allow_weaker_sandbox,
        keep_tree=options.keep,
        **fields,
    )
    if settings.sources["model"] == "default":
        expect = "which fixes small bugs" if settings.model == CODING_MODEL else "the best that is installed"
        display.tell(f"model: {settings.model}, {expect}; --model names another", "2")
    elif small := describe_too_small(settings.model, read_memory()):
        display.tell(small, "33")
    if (take := take_request.get()) is not None:
        take(request, options.priority)
        return
    if options.background or options.wait:
        job = submit_job(request, display, priority=options.priority)
        show_submitted(job, display, waits=options.wait, as_json=options.as_json, verbose=verbose)
        return
    follow_job(request, display)

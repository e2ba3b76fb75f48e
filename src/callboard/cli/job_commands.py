"""`callboard build`, `debug`, `review`, `triage`: a repository and a task in, a tested change back.

Owns the commands' options and what a person sees of a job. What a job does is `callboard.coding`'s business.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from callboard.cli import complete

if TYPE_CHECKING:
    from callboard.coding.jobs.store import Job

DEFAULT_MODEL = "local:qwen2.5-coder-0.5b"
"""As of `callboard.configuration`, which is not imported for --help."""

Model: TypeAlias = Annotated[
    str,
    typer.Option(
        help="local:NAME, openai:NAME, ..., or NAME with --base-url.",
        show_default=DEFAULT_MODEL,
        autocompletion=complete.models,
    ),
]
BaseUrl: TypeAlias = Annotated[
    str, typer.Option(help="A Chat Completions endpoint, such as http://127.0.0.1:8080/v1.", show_default=False)
]
MaxRounds: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Replies of the whole job; else as many as its phases have.", show_default=False),
]
Rights: TypeAlias = Annotated[
    str, typer.Option(help="read-only, edit (files and tests), or full (commands too).", show_default="full")
]
Form: TypeAlias = Annotated[
    str, typer.Option(help="phased (many steps), or short (for small models); else the profile's.", show_default=False)
]
At: TypeAlias = Annotated[str, typer.Option(help="The commit, branch or tag to begin at.", show_default="HEAD")]
Directory: TypeAlias = Annotated[
    Path, typer.Option("--directory", "-C", help="Where the repository is.", show_default="here")
]
Push: TypeAlias = Annotated[bool, typer.Option("--push", help="Push the branch when the evidence holds.")]
Request: TypeAlias = Annotated[
    bool, typer.Option("--pr", help="Push, and open a pull request (a draft) through gh, when the evidence holds.")
]
NoSandbox: TypeAlias = Annotated[
    bool,
    typer.Option("--no-sandbox", help="Run commands and tests unconfined: where the machine itself is the sandbox."),
]
AllowWeaker: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-weaker-sandbox",
        help="Use a sandbox that leaves something outside open to change: `callboard doctor --sandbox` says what.",
    ),
]
Keep: TypeAlias = Annotated[bool, typer.Option("--keep", help="Keep the job's working tree.")]
Direct: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--direct", help="Run in this process, as is done without it too: for scripts that say so.", show_default=False
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print every step as one line of JSON, the last line the job.")
]
Verbose: TypeAlias = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show rounds, prompts, reasoning, notes and usage.")
]
Issue: TypeAlias = Annotated[int | None, typer.Option(min=1, help="An issue, read through gh.", show_default=False)]


def build(
    prompt: Annotated[
        str, typer.Argument(help="What is to be built. `-` reads standard input.", show_default=False)
    ] = "",
    description: Annotated[str, typer.Option(help="The same as an option.", show_default=False)] = "",
    issue: Issue = None,
    model: Model = "",
    base_url: BaseUrl = "",
    max_rounds: MaxRounds = None,
    rights: Rights = "",
    form: Form = "",
    at: At = "",
    directory: Directory = Path(),
    push: Push = False,
    pr: Request = False,
    no_sandbox: NoSandbox = False,
    allow_weaker_sandbox: AllowWeaker = False,
    keep: Keep = False,
    direct: Direct = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Build something: analyse, plan, implement, validate, deliver.

    The job works in a git worktree of its own, on a branch of its own: your files stay as they are. Its tests and
    commands run in a sandbox without network.

    Exit codes: 0 the evidence holds, 1 failed, 2 wrong usage, 3 the
    evidence does not hold, 130 cancelled.
    """
    _follow(
        "build",
        {
            "description": _either(prompt, description, "--description"),
            "issue": issue,
            "at": at,
            "push": push,
            "pr": pr,
        },
        directory,
        {"model": model, "base_url": base_url, "max_rounds": max_rounds},
        rights=rights,
        form=form,
        no_sandbox=no_sandbox,
        allow_weaker_sandbox=allow_weaker_sandbox,
        keep=keep,
        as_json=as_json,
        verbose=verbose,
    )


def debug(
    prompt: Annotated[str, typer.Argument(help="What goes wrong. `-` reads standard input.", show_default=False)] = "",
    symptoms: Annotated[str, typer.Option(help="The same as an option.", show_default=False)] = "",
    logs: Annotated[Path | None, typer.Option(help="A file of logs.", show_default=False)] = None,
    issue: Issue = None,
    model: Model = "",
    base_url: BaseUrl = "",
    max_rounds: MaxRounds = None,
    rights: Rights = "",
    form: Form = "",
    at: At = "",
    directory: Directory = Path(),
    push: Push = False,
    pr: Request = False,
    no_sandbox: NoSandbox = False,
    allow_weaker_sandbox: AllowWeaker = False,
    keep: Keep = False,
    direct: Direct = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Mend a fault: reproduce, investigate, isolate, fix, verify, commit.

    Tests that fail are the measure, and may not be changed. Where it works and its exit codes are those of `build`.
    """
    _follow(
        "debug",
        {
            "symptoms": _either(prompt, symptoms, "--symptoms"),
            "logs": logs,
            "issue": issue,
            "at": at,
            "push": push,
            "pr": pr,
        },
        directory,
        {"model": model, "base_url": base_url, "max_rounds": max_rounds},
        rights=rights,
        form=form,
        no_sandbox=no_sandbox,
        allow_weaker_sandbox=allow_weaker_sandbox,
        keep=keep,
        as_json=as_json,
        verbose=verbose,
    )


def review(
    prompt: Annotated[str, typer.Argument(help="The branch that is reviewed.", show_default=False)] = "",
    branch: Annotated[str, typer.Option(help="The same as an option.", show_default=False)] = "",
    base: Annotated[str, typer.Option(help="What it is compared with, where both last met.", show_default="HEAD")] = "",
    pr: Annotated[int | None, typer.Option(min=1, help="A pull request, read through gh.", show_default=False)] = None,
    model: Model = "",
    base_url: BaseUrl = "",
    max_rounds: MaxRounds = None,
    form: Form = "",
    directory: Directory = Path(),
    no_sandbox: NoSandbox = False,
    allow_weaker_sandbox: AllowWeaker = False,
    keep: Keep = False,
    direct: Direct = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Review a branch: gather, security, quality, compile. Nothing is changed.

    The findings go to standard output, a line each: file, line, severity, what is wrong.
    """
    _follow(
        "review",
        {"branch": _either(prompt, branch, "--branch"), "base": base, "number": pr},
        directory,
        {"model": model, "base_url": base_url, "max_rounds": max_rounds},
        rights="",
        form=form,
        no_sandbox=no_sandbox,
        allow_weaker_sandbox=allow_weaker_sandbox,
        keep=keep,
        as_json=as_json,
        verbose=verbose,
    )


def triage(
    prompt: Annotated[
        str, typer.Argument(help="What was reported. `-` reads standard input.", show_default=False)
    ] = "",
    description: Annotated[str, typer.Option(help="The same as an option.", show_default=False)] = "",
    error_logs: Annotated[Path | None, typer.Option(help="A file of logs.", show_default=False)] = None,
    issue: Issue = None,
    model: Model = "",
    base_url: BaseUrl = "",
    max_rounds: MaxRounds = None,
    form: Form = "",
    at: At = "",
    directory: Directory = Path(),
    no_sandbox: NoSandbox = False,
    allow_weaker_sandbox: AllowWeaker = False,
    keep: Keep = False,
    direct: Direct = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Say what a report is about: the likely cause, how severe it is, what to do first. Nothing is changed."""
    _follow(
        "triage",
        {"description": _either(prompt, description, "--description"), "logs": error_logs, "issue": issue, "at": at},
        directory,
        {"model": model, "base_url": base_url, "max_rounds": max_rounds},
        rights="",
        form=form,
        no_sandbox=no_sandbox,
        allow_weaker_sandbox=allow_weaker_sandbox,
        keep=keep,
        as_json=as_json,
        verbose=verbose,
    )


def _either(argument: str, option: str, name: str) -> str:
    if argument and option:
        raise typer.BadParameter("it stands beside the command already", param_hint=name)
    return argument or option


def _follow(
    kind: Literal["build", "debug", "review", "triage"],
    given: dict[str, Any],
    directory: Path,
    flags: dict[str, Any],
    *,
    rights: str,
    form: str,
    no_sandbox: bool,
    allow_weaker_sandbox: bool,
    keep: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Runs the job, shows its steps, and exits as it went."""
    from callboard.cli import interrupt  # noqa: PLC0415  # not for --help
    from callboard.cli.approvals import Approvals  # noqa: PLC0415
    from callboard.cli.jobs import EXIT_CODES, JobDisplay, tell_outcome  # noqa: PLC0415
    from callboard.cli.models import accessed_model, check_reachable  # noqa: PLC0415
    from callboard.cli.settings import settings_in  # noqa: PLC0415
    from callboard.coding.agents.job_request import Assignment, assign  # noqa: PLC0415
    from callboard.coding.agents.job_runner import work  # noqa: PLC0415
    from callboard.coding.jobs.store import Jobs, jobs_directory  # noqa: PLC0415

    jobs = Jobs()
    place = directory.resolve()
    settings = settings_in(place, flags)
    display = JobDisplay(sys.stdout, sys.stderr, verbose=verbose or settings.coding.debug.enabled, as_json=as_json)
    assignment: Assignment = assign(
        kind,
        given,
        place,
        settings,
        rights=rights,
        form=form,
        keep=keep,
        without_sandbox=no_sandbox,
        allow_weaker_sandbox=allow_weaker_sandbox,
        rounds=flags["max_rounds"],
        standard_input=sys.stdin.buffer,
    )
    model = accessed_model(settings, display.tell)
    approvals = Approvals(place, jobs_directory().parent, display)

    begun: list[Job] = []

    async def follow() -> Any:
        try:
            await check_reachable(model)
            return await work(assignment, model, jobs, display.step, approvals, began=begun.append)
        finally:
            await model.aclose()

    def cancelled() -> None:
        if as_json and begun:
            display.job(jobs.load(begun[0].id))
        told = "".join([f"; callboard jobs show {each.id} tells how far it came" for each in begun])
        display.tell(f"cancelled{told}")

    job = interrupt.run(follow(), cancelled)
    if as_json:
        display.job(job)
    else:
        tell_outcome(job, display)
    raise typer.Exit(EXIT_CODES.get((job.state, bool(job.output.get("missing"))), 1))

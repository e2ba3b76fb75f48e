"""The tools `bash` and `test`: run a command in the sandbox, and run the tests of the repository."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from callboard.coding.git.tree_state import compute_digest
from callboard.coding.test_runners import Kind, Selection
from callboard.coding.test_runners import run_tests as run_selected
from callboard.coding.tools.action_tool import ToolAction, action
from callboard.coding.tools.git import find_workspace_repository
from callboard.coding.workspace.run_command import MAX_SECONDS, describe_stop, find_shell, run_command
from callboard.coding.workspace.workspace import get_workspace
from callboard.core import CommandOutput
from callboard.tools import Context


@action(
    approval=True,
    timeout=MAX_SECONDS + 60,
    subjects={"command": "command"},
    cli={"-c": "command", "-t": "timeout"},
)
async def bash(
    context: Context,
    command: Annotated[str, "The command, for bash"],
    timeout: Annotated[float, "Seconds that it may take; 0 for the usual time"] = 0,  # noqa: ASYNC109  # what the model asks for, not ours
) -> str:
    """Runs a command in the root of the repository. Each call begins there anew, and nothing stays running."""
    workspace = get_workspace(context, opens_any=True)
    workspace.permits = context.permits
    if not command.strip() or "\0" in command:
        raise ValueError("there is no command")
    seconds = min(max(timeout or workspace.confinement.limits.seconds, 1.0), MAX_SECONDS)
    outcome = await run_command(
        workspace, [find_shell(), "-c", command], seconds=seconds, progress=context.progress, label=command[:200]
    )
    lines = [outcome.output.decode("utf-8", "replace").rstrip("\n")]
    exit_code = outcome.code
    if stopped := describe_stop(outcome, workspace, seconds):
        lines.append(f"(stopped: {stopped})")
        exit_code = None
    elif outcome.code:
        lines.append(f"(exit code {outcome.code})")
    return CommandOutput("\n".join([line for line in lines if line]) or "(no output)", exit_code)


_OPTIONS: dict[str, Any] = {
    "timeout": MAX_SECONDS + 60,
    "cli": {"-t": "type", "-p": "package", "-r": "run", "-v": "verbose"},
}


@action(**_OPTIONS)
async def run_tests(  # noqa: PLR0917  # a model passes them by name
    context: Context,
    type: Annotated[Literal["", Kind], "What runs them; found out if empty"] = "",  # noqa: A002  # a name of the specification
    package: Annotated[str, "Only those of this package or folder"] = "",
    run: Annotated[str, "Only those whose name matches"] = "",
    module: Annotated[str, "Only this module or file of tests"] = "",
    script: Annotated[str, "The script of package.json, or target of make"] = "",
    count: Annotated[int, "How often they run"] = 1,
    verbose: Annotated[bool, "Name every test"] = False,
    timeout: Annotated[float, "Seconds that they may take"] = 600,  # noqa: ASYNC109  # what the model asks for, not ours
) -> str:
    """Runs the tests, and tells which failed, where and why."""
    workspace = get_workspace(context, opens_any=True)
    workspace.permits = context.permits
    repository = await find_workspace_repository(workspace)
    report = await run_selected(
        workspace,
        Selection(package=package, run=run, module=module, script=script, count=count, verbose=verbose),
        kind=type,
        seconds=timeout,
        progress=context.progress,
        digest=partial(compute_digest, repository) if repository else None,
    )
    workspace.reports.append(report)
    return report.summary


test = ToolAction(run_tests.function, name="test", **_OPTIONS)

"""The tool `bash`: run a command in the sandbox."""

from __future__ import annotations

from typing import Annotated

from callboard.coding.tools.action_tool import action
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

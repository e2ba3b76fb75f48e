"""Run a command in the sandbox of a workspace, confined as the settings say, and report its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from callboard.coding.workspace.hidden_paths import find_hidden_paths
from callboard.coding.workspace.workspace import READ_ONLY, Workspace
from callboard.errors import SandboxUnavailable
from callboard.tools.context import ReportProgress

if TYPE_CHECKING:
    from callboard.configuration.coding import CodingSettings
    from callboard.sandbox import Confinement, Outcome

MAX_SECONDS: Final = 3600.0
"""Longest time limit of a command."""
EVERY: Final = 2.0
"""Seconds between two words on how far a command is."""

_MIB = 1024 * 1024


def make_confinement(
    settings: CodingSettings, root: Path, folder: Path, borrowed: Mapping[str, Path] | None = None
) -> Confinement:
    """Make the confinement of commands that work in `root`; their home is made in the job's folder."""
    from callboard.sandbox import CommandLimits, Confinement  # noqa: PLC0415  # where commands run

    home = folder / "home"
    home.mkdir(exist_ok=True, mode=0o700)
    limits = settings.limits
    return Confinement(
        workspace=root,
        read_only=READ_ONLY,
        readable=tuple(Path(each).expanduser() for each in settings.sandbox.readable),
        bind_mounts=borrowed or {},
        home=home,
        hosts=settings.sandbox.hosts,
        limits=CommandLimits(
            seconds=limits.command_seconds,
            memory_bytes=limits.command_memory_mb * 1024 * 1024,
            processes=limits.command_processes,
        ),
    )


async def run_command(
    workspace: Workspace,
    command: Sequence[str],
    *,
    seconds: float,
    progress: ReportProgress,
    label: str = "",
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs a command in the workspace, and tells how long it has been running. Cancelling ends it.

    Raises SandboxUnavailable where there is no sandbox.
    """
    sandbox = workspace.sandbox
    if sandbox is None:
        why = workspace.sandbox_error or "there is no sandbox to run commands in"
        raise SandboxUnavailable(why, hint="--no-sandbox runs them without one")
    base = workspace.confinement
    if sandbox.name == "bubblewrap":
        base = replace(base, hidden=await asyncio.to_thread(find_hidden_paths, workspace.root, workspace.permits))
    limits = replace(base.limits, seconds=min(max(seconds, 1.0), MAX_SECONDS))
    confinement = replace(base, limits=limits, environment={**base.environment, **(environment or {})})
    task = asyncio.ensure_future(sandbox.run(command, confinement))
    try:
        elapsed = 0.0
        while not task.done():
            progress(elapsed, limits.seconds, label)
            await asyncio.wait({task}, timeout=EVERY)
            elapsed += EVERY
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def describe_stop(outcome: Outcome, workspace: Workspace, seconds: float) -> str:
    """The words for why a command was stopped, "" if it ended by itself."""
    limits = workspace.confinement.limits
    words = {
        "": "",
        "timeout": f"it had {seconds:g} s",
        "output": f"it printed {outcome.total:,} bytes",
        "memory": f"it may use {limits.memory_bytes // _MIB:,} MiB of memory",
        "processes": f"it may have {limits.processes} processes",
        "disk": "it took nearly all the room that the disk has left",
    }
    return words[outcome.stop_reason]


def find_shell() -> str:
    """The shell for commands: bash where there is one."""
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if Path(path).exists()), "/bin/sh")

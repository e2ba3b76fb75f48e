"""Run a command in the sandbox of a workspace, confined as the settings say, and report its progress."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from callboard.coding.workspace.directory_walk import SKIPPED
from callboard.coding.workspace.workspace import READ_ONLY, Workspace
from callboard.errors import CallerError, SandboxUnavailable
from callboard.tools.context import Permits, ReportProgress, denied_places, everything

if TYPE_CHECKING:
    from callboard.configuration.coding import CodingSettings
    from callboard.sandbox import Confinement, Outcome

MAX_SECONDS: Final = 3600.0
"""Longest time limit of a command."""
EVERY: Final = 2.0
"""Seconds between two words on how far a command is."""

_MIB = 1024 * 1024
MAX_ENTRIES: Final = 500_000
"""Names that are read."""
MAX_HIDDEN: Final = 1000
"""Paths that are hidden; each is a mount."""


def make_confinement(
    settings: CodingSettings, root: Path, folder: Path, borrowed: Mapping[str, Path] | None = None
) -> Confinement:
    """Make the confinement of commands that work in `root`; create their home in the job's folder."""
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
    home: Path | None = None,
) -> Outcome:
    """Run a command in the workspace, and report how long it has been running. Cancelling ends it.

    `home` is another home for this command. Raises SandboxUnavailable if there is no sandbox.
    """
    sandbox = workspace.sandbox
    if sandbox is None:
        why = workspace.sandbox_error or "there is no sandbox to run commands in"
        raise SandboxUnavailable(why, hint="--no-sandbox runs them without one")
    base = workspace.confinement
    if sandbox.name == "bubblewrap":
        base = replace(base, hidden=await asyncio.to_thread(find_hidden_paths, workspace.root, workspace.permits))
    limits = replace(base.limits, seconds=min(max(seconds, 1.0), MAX_SECONDS))
    variables = {**base.environment, **(environment or {})}
    confinement = replace(base, limits=limits, environment=variables, home=home or base.home)
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
    """Return the reason why a command was stopped; "" if it ended normally."""
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
    """Return the shell for commands: bash if it is installed."""
    return next((path for path in ("/bin/bash", "/usr/bin/bash") if Path(path).exists()), "/bin/sh")


def find_hidden_paths(root: Path, permits: Permits) -> tuple[str, ...]:
    """Find the paths beneath the root that the rules hide from commands: existing paths, and literal paths in rules.

    A directory includes all that is in it. Links are not listed, since their targets are judged by their own names. The
    search skips `.git`, which the sandbox protects, and directories with third-party files. Raises CallerError if there
    are too many paths to be sure.
    """
    if permits is everything:
        return ()
    denied = dict.fromkeys(_denied_paths(root, permits))
    named = [path for path in denied_places(permits) if not _is_behind_link(root, path)]
    paths = dict.fromkeys([*denied, *named])
    if len(paths) > MAX_HIDDEN:
        raise CallerError(
            f"the rules keep more than {MAX_HIDDEN} paths from commands", path=str(root), hint="deny their directory"
        )
    return tuple([path for path in paths if not any(path.startswith(f"{other}/") for other in paths)])


def _denied_paths(root: Path, permits: Permits) -> Iterator[str]:
    count = 0
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(root / prefix) as entries:
            for entry in entries:
                count += 1
                path = f"{prefix}{entry.name}"
                if entry.is_symlink() or path in READ_ONLY:
                    continue
                if not permits(path):
                    yield path
                elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                    waiting.append(f"{path}/")
        if count > MAX_ENTRIES:
            raise CallerError(
                f"there are more than {MAX_ENTRIES:,} files, too many to hide what the rules deny", path=str(root)
            )


def _is_behind_link(root: Path, place: str) -> bool:
    path = root
    for name in place.split("/"):
        path /= name
        if path.is_symlink() or (path.parent != root and path.parent.exists() and not path.parent.is_dir()):
            return True
    return False

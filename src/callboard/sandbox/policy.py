"""The policy for a command, its outcome, and the protocol of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

MIB = 1024 * 1024

StopReason: TypeAlias = Literal["", "timeout", "output", "memory", "processes", "disk"]
"""Reason why a command was ended; "" if it ended normally."""


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for one command together with all its processes."""

    seconds: float = 120
    """Wall time until it is ended."""
    output_bytes: int = MIB
    """How much of its output is kept; 64 times as much end it."""
    processes: int = 256
    """Processes at once."""
    memory_bytes: int = 2048 * MIB
    """For each process, and for all of them together."""
    file_bytes: int = 512 * MIB
    """The largest file that it may write, and the size of each private file system in memory."""
    free_bytes: int = 1024 * MIB
    """Stay free on the disks where it writes, or half of what is free at the start where that is less; else it is ended."""


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """Access of a command within `limits`. It gets PATH, LANG, LC_*, TERM and TZ in addition to `environment`."""

    workspace: Path
    """Writable, and the command's current directory."""
    readable: tuple[Path, ...] = ()
    """Further paths, read-only, at their own places."""
    read_only: tuple[str, ...] = (".git",)
    """Paths in the workspace that cannot be changed, nor made where they do not exist."""
    bind_mounts: Mapping[str, Path] = {}
    """Paths in the workspace at which other directories are shown, read-only. Without namespaces they are links;
    without a sandbox, a command can write to the directory through the link."""
    hidden: tuple[str, ...] = ()
    """Paths in the workspace that can be neither read nor changed nor made. Only bubblewrap can do that."""
    home: Path | None = None
    """HOME, writable; None is a private empty one that goes away."""
    hosts: tuple[str, ...] = ()
    """Hosts that the proxy lets pass (`example.org`, `*.example.org`, `example.org:8443`); without any, no network."""
    environment: Mapping[str, str] = {}
    limits: CommandLimits = CommandLimits()
    output_file: Path | None = None
    """Has the end of the output while the command runs, and stays where this process dies before that."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a command after `seconds`; `stop_reason` says why it was ended, if it was."""

    code: int | None
    """Its exit status, 128 plus the number for a signal, None if it was ended."""
    output: bytes
    """Both streams, interleaved. If it is cut: the beginning, a line that says how much is missing, and the end."""
    total: int
    """Bytes of all output."""
    stop_reason: StopReason
    seconds: float


class Sandbox(Protocol):
    """Runs commands in one kind of sandbox."""

    @property
    def name(self) -> str:
        """bubblewrap, landlock or none."""

    @property
    def notice(self) -> str:
        """What the sandbox does not prevent; "" if it lacks nothing."""

    @property
    def open(self) -> Sequence[str]:
        """What a command can change outside of the workspace."""

    @property
    def visible(self) -> Sequence[str]:
        """What else a command can see or do outside of the workspace."""

    async def run(self, command: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Outcome:
        """Return the outcome of `command` with the input `stdin`, run within `confinement`.

        All its processes are gone when this returns or raises; cancelling ends them.

        Raises:
            CallerError: The confinement is impossible.
            SandboxUnavailable: This machine refuses it.
        """
        ...

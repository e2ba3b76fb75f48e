"""What a command may see and do, and what came of it.

Owns the values that cross this room's border, and the shape of a sandbox. Knows nothing of how a command is
confined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

MIB = 1024 * 1024

StopReason: TypeAlias = Literal["", "timeout", "output", "memory", "processes", "disk"]
"""Why a command was ended before it ended by itself; "" if it was not."""


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may use, with all that it starts.

    `seconds` is the time until it is ended. `output` is how many bytes of its output are kept; 64 times as many
    end it. `processes` bounds how many there are at once. `memory` in bytes is for each process, and for all of
    them together. `file` in bytes is the largest file that it may write, and the size of each private file
    system that lives in memory. `spare` is how many bytes are to stay free where it writes, half of what is free
    where that is less; one that takes more is ended.
    """

    seconds: float = 120
    output_bytes: int = MIB
    processes: int = 256
    memory_bytes: int = 2048 * MIB
    file_bytes: int = 512 * MIB
    free_bytes: int = 1024 * MIB


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """What a command may see and do.

    `workspace` is writable, and the command's current directory. `readable` are further paths, read-only, at
    their own places. `kept` are paths in the workspace that are read-only; what is not there cannot be made.
    `borrowed` maps places in the workspace to directories that are shown there, read-only (by a link where
    there are no namespaces, which without a sandbox can be written through). `hidden` are
    paths in the workspace that can be neither read nor changed nor made; only bubblewrap can do that. `home` is writable,
    and HOME; None stands for a private empty one that goes away. `hosts` are the names that the proxy lets pass
    (`example.org`, `*.example.org`, `example.org:8443`); without any there is no network. `environment` comes besides
    PATH, LANG, LC_*, TERM and TZ.
    """

    workspace: Path
    readable: tuple[Path, ...] = ()
    read_only: tuple[str, ...] = (".git",)
    bind_mounts: Mapping[str, Path] = {}
    hidden: tuple[str, ...] = ()
    home: Path | None = None
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: CommandLimits = CommandLimits()


class Outcome(msgspec.Struct, frozen=True):
    """What came of a command.

    `code` is its exit status, 128 and the number for a signal, None if it was stopped. `output` holds both
    streams as they came; when it was cut: the beginning, a line that says how much is missing, and the end.
    `total` is how many bytes came.
    """

    code: int | None
    output: bytes
    total: int
    stop_reason: StopReason
    seconds: float


class Sandbox(Protocol):
    """Runs commands. `name` is bubblewrap, landlock or none; `notice` says what it does not do, "" for nothing.

    `open` is what a command can change outside of the workspace, nothing if the sandbox holds; `visible` what else a
    user may want to know that it does not keep from a command.
    """

    @property
    def name(self) -> str: ...

    @property
    def notice(self) -> str: ...

    @property
    def open(self) -> Sequence[str]: ...

    @property
    def visible(self) -> Sequence[str]: ...

    async def run(self, command: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Outcome:
        """Runs a command to its end. Whatever it started is gone when this returns or raises.

        Cancelling ends the command. Raises CallerError for a confinement that cannot be, SandboxUnavailable
        where this machine refuses.
        """
        ...

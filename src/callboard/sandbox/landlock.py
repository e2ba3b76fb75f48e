"""Confine commands by the kernel's Landlock, if namespaces are not available. See landlock(7).

A rule only ever allows, and for all that is beneath a directory. So a read-only path in the workspace is excluded by
allowing everything beside it, and nothing new can be made there.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from callboard.sandbox.mount_points import check_paths, make_links, restore_files
from callboard.sandbox.policy import Confinement, Outcome
from callboard.sandbox.process import observe_commands
from callboard.sandbox.readable_paths import (
    SYSTEM,
    SYSTEM_FILES,
    find_readable_paths,
    interpreter_paths,
    is_reachable,
    resolve_writable_places,
)
from callboard.sandbox.seccomp import seccomp_filter
from callboard.sandbox.supervised_run import private_directories, run_supervised

_READABLE = ("/proc", "/dev/random", "/dev/urandom", "/etc/passwd", "/etc/group", "/etc/hosts")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")

_VISIBLE = (
    "other processes are visible",
    "there are no sockets at all, hosts or not",
    "there is no shared memory, and no named semaphores",
    "files outside can be watched for changes, by their names",
    "nothing new can be made beside a directory that is kept",
)
_OPEN = "permissions, groups and times of all your files can be set"
# Gaps, with the version of Landlock that closes them.
_VISIBLE_BEFORE = ((2, "files cannot be moved from one directory to another"),)
_OPEN_BEFORE = (
    (3, "files that are only readable can be truncated"),
    (5, "devices that are writable can be controlled"),
    (6, "signals can be sent to your other processes"),
)


class Landlock:
    """The Landlock sandbox; `version` is the version of the kernel's Landlock, from 1."""

    name = "landlock"

    def __init__(self, version: int) -> None:
        self._version = version

    @property
    def notice(self) -> str:
        """Return what commands can change outside of the workspace; see `callboard doctor --sandbox` for the rest."""
        begin = f"confined by Landlock {self._version} for want of bubblewrap"
        return f"{'; '.join([begin, *self.open])} (callboard doctor --sandbox says more)"

    @property
    def open(self) -> tuple[str, ...]:
        return (_OPEN, *(lack for version, lack in _OPEN_BEFORE if self._version < version))

    @property
    def visible(self) -> tuple[str, ...]:
        lacks = [*_VISIBLE, *(lack for version, lack in _VISIBLE_BEFORE if self._version < version)]
        if os.getuid() == 0:
            lacks.append("commands run as root, though without its capabilities; processes are counted, not limited")
        return tuple(lacks)

    @observe_commands
    async def run(self, command: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Outcome:
        confined = resolve_writable_places(confinement)
        workspace, home = confined.workspace, confined.home
        read_only = check_paths(confined.read_only, workspace)
        by_name = [str(place) for place in read_only if len(place.parts) == 1 and not (workspace / place).is_dir()]
        protected = [workspace / place for place in read_only if str(place) not in by_name]
        protected += [
            place for place in map(Path, map(os.path.realpath, interpreter_paths())) if place.is_relative_to(workspace)
        ]
        with ExitStack() as stack:
            stack.enter_context(restore_files(workspace, by_name))
            stack.enter_context(make_links(workspace, confined.bind_mounts))
            private, temporary = stack.enter_context(private_directories())
            writable = [*_list_beside(workspace, protected), home or private, temporary]
            readable = [*SYSTEM, *SYSTEM_FILES, *map(Path, _READABLE), *find_readable_paths(confined), workspace]
            return await run_supervised(
                command,
                confined,
                home=home or private,
                temporary=temporary,
                stdin=stdin,
                restrictions=[
                    *(f"write={place}" for place in writable if is_reachable(place)),
                    *(f"write={place}" for place in _DEVICES if is_reachable(Path(place))),
                    *(f"read={place}" for place in readable if is_reachable(place)),
                ],
                seccomp=seccomp_filter(platform.machine(), namespaces=False),
            )


def _list_beside(directory: Path, protected: Sequence[Path]) -> Iterator[Path]:
    """Return the entries of a directory without the protected ones; the directory itself if none is protected."""
    if not any(place.is_relative_to(directory) for place in protected):
        yield directory
    elif directory not in protected:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.is_symlink():
                    yield from _list_beside(directory / entry.name, protected)

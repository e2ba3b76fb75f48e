"""Start a process that may run and write only what is listed, by the kernel's Landlock.

This is for system programs that we start ourselves, such as git; a sandbox runs the commands of a model. A new thread
takes the rules, starts the process and ends: Landlock binds one thread and its children. A launcher would start an
interpreter for each call, and `preexec_fn` can deadlock in a process with threads.

Reading is not restricted. Law: if the kernel's Landlock is missing or too old, the process starts without it.
"""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.sandbox import supervisor

OLDEST: Final = 2
"""The first version of Landlock that can allow a file to be moved to another directory, as git does."""
# Creating a device, a socket or a pipe is refused in a writable directory.
_SPECIAL: Final = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11


class Permission(msgspec.Struct, frozen=True):
    """The permissions of a process and its children.

    `executable` are the programs, and directories of programs, that it may run. `writable` are the files and
    directories that it may change; missing ones are ignored.
    """

    executable: tuple[Path, ...]
    writable: tuple[Path, ...] = ()


@functools.cache
def landlock_version() -> int:
    """The version of the kernel's Landlock, 0 for one that cannot do what is needed here."""
    version = supervisor.landlock_version()
    return version if version >= OLDEST else 0


_starting: Final = threading.Lock()


def start_restricted(
    arguments: Sequence[str], permission: Permission | None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process with a permission; with None, or without Landlock, it may do what we may.

    Args:
        arguments: The program, by its absolute path, and its arguments.
        permission: Programs to run and paths to write.
        options: Options of `subprocess.Popen`.

    Raises:
        OSError: The program cannot be started, or the kernel refuses the rules.
    """
    if permission is None or not landlock_version():
        return subprocess.Popen(arguments, **options)  # noqa: S603  # the caller's
    started: list[subprocess.Popen[bytes]] = []
    refused: list[OSError] = []

    def start() -> None:
        try:
            supervisor.restrict_thread(
                supervisor.EXECUTE | supervisor.CHANGES,
                [
                    *[(str(path), supervisor.EXECUTE) for path in permission.executable],
                    *[(str(path), supervisor.CHANGES & ~_SPECIAL) for path in (*permission.writable, os.devnull)],
                ],
            )
            started.append(subprocess.Popen(arguments, **options))  # noqa: S603  # the caller's
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=start)
    # A finalizer that the garbage collector runs in this thread would have its permission: it could not remove a file.
    with _starting:
        collects = gc.isenabled()
        gc.disable()
        try:
            thread.start()
            thread.join()
        finally:
            if collects:
                gc.enable()
    if refused:
        raise refused[0]
    return started[0]

"""Start a process that may run and write only what is listed, by the kernel's Landlock.

For programs of the system that we start ourselves, such as git, in contrast to the commands of a model, which a
sandbox runs. The rules are laid upon a thread that starts the process and ends: Landlock binds one thread and what
comes of it. A launcher would cost each call the start of an interpreter, and `preexec_fn` can deadlock in a process
that has threads.

What may be read stays open. Law: where the kernel has no Landlock that can do this, the process is started without.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

OLDEST: Final = 2
"""The first version of Landlock that can allow a file to be moved to another directory, as git does."""

# linux/prctl.h, linux/landlock.h. The numbers of these calls are the same on every architecture.
_NO_NEW_PRIVILEGES: Final = 38
_CREATE, _ADD, _RESTRICT, _VERSION, _BENEATH = 444, 445, 446, 1, 1
_EXECUTE, _WRITE, _REFER, _TRUNCATE = 1, 1 << 1, 1 << 13, 1 << 14
_REMOVE_DIRECTORY, _REMOVE, _MAKE_DIRECTORY, _MAKE_FILE, _MAKE_LINK = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
_MAKE_OTHERS = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11  # devices, sockets, pipes
_CHANGES = _WRITE | _REMOVE_DIRECTORY | _REMOVE | _MAKE_DIRECTORY | _MAKE_FILE | _MAKE_LINK | _REFER | _TRUNCATE
_FILE_RIGHTS = _EXECUTE | _WRITE | _TRUNCATE
# The first version that knows it.
_SINCE: Final = {_TRUNCATE: 3}
_TCP, _NETWORK_SINCE = 3, 4  # bind and connect
_SCOPES, _SCOPES_SINCE = 3, 6  # abstract sockets and signals


class Permission(msgspec.Struct, frozen=True):
    """What a process and all that it starts may do.

    `executable` are the programs, and directories of programs, that it may run. `writable` are the files and
    directories that it may change; those that are not there are left out.
    """

    executable: tuple[Path, ...]
    writable: tuple[Path, ...] = ()


@functools.cache
def landlock_version() -> int:
    """The version of the kernel's Landlock, 0 for one that cannot do what is needed here."""
    if sys.platform != "linux":
        return 0
    version: int = _libc().syscall(_CREATE, None, 0, _VERSION)
    return version if version >= OLDEST else 0


_starting: Final = threading.Lock()


def start_restricted(
    arguments: Sequence[str], permission: Permission | None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process that has a permission; with None, or without Landlock, one that may do what we may.

    Args:
        arguments: The program, by its absolute path, and its arguments.
        permission: What it may run and write.
        options: Those of `subprocess.Popen`.

    Raises:
        OSError: The program cannot be started, or the kernel refuses the rules.
    """
    if permission is None or not landlock_version():
        return subprocess.Popen(arguments, **options)  # noqa: S603  # the caller's
    started: list[subprocess.Popen[bytes]] = []
    refused: list[OSError] = []

    def start() -> None:
        try:
            _restrict_thread(permission)
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


def _restrict_thread(permission: Permission) -> None:
    version = landlock_version()
    handled = _is_supported(_EXECUTE | _CHANGES | _MAKE_OTHERS, version)
    network = _TCP if version >= _NETWORK_SINCE else 0
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", handled, network, scopes)
    # Older kernels take the longer structure, if what they do not know of it is zero.
    rules = _check(_libc().syscall(_CREATE, attributes, len(attributes), 0))
    try:
        for paths, rights in (
            (permission.executable, _EXECUTE),
            ((*permission.writable, Path(os.devnull)), _is_supported(_CHANGES, version)),
        ):
            for path in paths:
                _allow(rules, path, rights)
        _check(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _check(_libc().syscall(_RESTRICT, rules, 0))
    finally:
        os.close(rules)


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        allowed = rights if stat.S_ISDIR(os.fstat(place).st_mode) else rights & _FILE_RIGHTS
        _check(_libc().syscall(_ADD, rules, _BENEATH, struct.pack("=Qi", allowed, place), 0))
    finally:
        os.close(place)


def _is_supported(rights: int, version: int) -> int:
    return rights & ~sum(right for right, since in _SINCE.items() if version < since)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)

"""The file of an SQLite database: its permissions and its file system.

Laws: only its owner can ever read or write the file. The file is not on a network file system, because SQLite's locks
and write-ahead log do not work between machines, and damage the database.

The rows decide what a worker does. So a user who can write or replace the file decides what the worker of the file's
owner runs.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Final

from callboard.configuration.ownership import is_private_group
from callboard.errors import CallerError
from callboard.jobs import HINT, VARIABLE, DatabaseUnavailable

NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
"""Network file systems, by their names in Linux."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
MOUNTS: Final = Path("/proc/self/mountinfo")
_HEADER: Final = b"SQLite format 3\0"
_OWN_DIRECTORY: Final = "choose a directory that only you can write to"


def prepare_file(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Create the file of a database if it is missing, and make sure that only its owner can read and write it.

    Raises:
        CallerError: The file is on a network file system, is a link, or another user owns it or may write to it.
        DatabaseUnavailable: The file is not a database, or can be neither created nor opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = path.parent.resolve()
        kind = find_file_system(directory, mounts)
        if kind in NETWORK:
            hint = f"keep it on a disk of this machine, or set {VARIABLE} to a PostgreSQL"
            raise CallerError(
                f"SQLite does not work on a file system of the network ({kind})", path=str(path), hint=hint
            )
        _check_directory(directory)
        if _is_private(path):
            # Do not open the file: closing it would drop the locks that SQLite holds on it for this process.
            _check_file(path.lstat(), path)
        else:
            _make_private(path)
    except OSError as error:
        raise DatabaseUnavailable(error.strerror or "it cannot be opened", path=str(path), hint=HINT) from None


def find_identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path. A rename keeps them; a replacement does not."""
    try:
        status = os.stat(path)  # noqa: PTH116  # before each transaction
    except OSError:
        return None
    return status.st_dev, status.st_ino


def find_file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system of a path, "" if it is not known."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    longest, kind = -1, ""
    for line in lines:
        fields = line.split()
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if path.is_relative_to(point) and len(point) >= longest:  # a later mount hides an earlier one
            longest, kind = len(point), fields[fields.index("-") + 1]
    return kind


def _is_private(path: Path) -> bool:
    try:
        return not stat.S_IMODE(path.lstat().st_mode) & 0o077
    except FileNotFoundError:
        return False


def _make_private(path: Path) -> None:
    try:
        file = os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CallerError("it is a symbolic link", path=str(path), hint="name the file itself") from None
    try:
        status = os.fstat(file)
        _check_file(status, path)
        if status.st_size and os.pread(file, len(_HEADER), 0) != _HEADER:
            raise DatabaseUnavailable("the file is not an SQLite database", path=str(path), hint=HINT)
        os.fchmod(file, stat.S_IMODE(status.st_mode) & 0o700)
    finally:
        os.close(file)


def _check_directory(directory: Path) -> None:
    status = directory.stat()
    if status.st_uid not in {os.geteuid(), 0}:
        raise CallerError("another user owns the directory", path=str(directory), hint=_OWN_DIRECTORY)
    if _others_write(status):
        raise CallerError("other users may write to the directory", path=str(directory), hint=_OWN_DIRECTORY)


def _check_file(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CallerError("it is not a regular file", path=str(path), hint=HINT)
    if status.st_uid != os.geteuid():
        raise CallerError("another user owns it", path=str(path), hint="start the worker as that user")
    if status.st_size and _others_write(status):
        hint = f"if you trust its content: chmod 600 {path}"
        raise CallerError("other users may have written to it", path=str(path), hint=hint)


def _others_write(status: os.stat_result) -> bool:
    """Return whether a user besides the owner and root may write. Ignore a group without other members."""
    by_group = status.st_mode & stat.S_IWGRP and not is_private_group(status.st_gid)
    return bool(status.st_mode & stat.S_IWOTH or by_group)

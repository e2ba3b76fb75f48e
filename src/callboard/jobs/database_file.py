"""The file of an SQLite database: who may read it, and on what file system it may be.

Laws: it is its owner's alone from its first byte on; it is not on a file system of the network, where SQLite's locks and
its write-ahead log do not work between machines, and break the database.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from callboard.errors import CallerError
from callboard.jobs.database_errors import DatabaseUnavailable
from callboard.jobs.database_url import HINT, VARIABLE

NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
"""File systems of the network, as Linux names them."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""How a space in a path is written there."""
MOUNTS: Final = Path("/proc/self/mountinfo")


def prepare_file(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Make a database's file where there is none, and see that nobody else can read it.

    Raises:
        CallerError: It is on a file system of the network, or belongs to another user.
        DatabaseUnavailable: It can be neither made nor opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = find_file_system(path.parent.resolve(), mounts)
        if kind in NETWORK:
            hint = f"keep it on a disk of this machine, or set {VARIABLE} to a PostgreSQL"
            raise CallerError(
                f"SQLite does not work on a file system of the network ({kind})", path=str(path), hint=hint
            )
        file = os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        try:
            _check_owner(os.fstat(file), file, path)
        finally:
            os.close(file)
    except OSError as error:
        raise DatabaseUnavailable(error.strerror or "it cannot be opened", path=str(path), hint=HINT) from None


def find_file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """The kind of file system that holds a path, "" where the system does not tell."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    longest, kind = -1, ""
    for line in lines:
        fields = line.split()
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if path.is_relative_to(point) and len(point) >= longest:  # of two at one place the later lies above
            longest, kind = len(point), fields[fields.index("-") + 1]
    return kind


def _check_owner(status: os.stat_result, file: int, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CallerError("it is no file", path=str(path), hint=HINT)
    if status.st_uid not in {os.geteuid(), 0} and os.geteuid() != 0:
        raise CallerError("it belongs to another user", path=str(path), hint=HINT)
    if stat.S_IMODE(status.st_mode) & 0o077:
        # Whoever can read it reads what every job did.
        os.fchmod(file, stat.S_IMODE(status.st_mode) & 0o700)

"""Check who else could have written a file, by owners and modes of the file and of every directory above it.

Law: a file counts as the user's own only if nobody but the user and root can write it, replace it, or replace a directory
above it. Access control lists are not looked at, and on Windows nothing is checked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = 0


class OwnershipProblem(NamedTuple):
    """The reason why another user could write a file, and a hint."""

    reason: str
    hint: str


def find_unsafe_owner(path: Path, *, trusted: bool = False) -> OwnershipProblem | None:
    """Return a problem if another user could have written or created the file, else None.

    Args:
        path: A file, a directory or a symlink. Both a symlink and its target are checked.
        trusted: The user trusts the directory, so its owner and group may be others. World-writable paths are refused
            anyway, and so is another user's directory in a world-writable one, such as /tmp.
    """
    if not hasattr(os, "getuid"):
        return None
    trusted_users = {_ROOT, os.getuid()}
    # In a user namespace without the machine's root, the system's directories have the owner of /.
    system_users = trusted_users | {Path("/").stat().st_uid}
    spelled, real = Path(os.path.realpath(path.parent), path.name), Path(os.path.realpath(path))
    allowed = dict.fromkeys([spelled, real, spelled.parent, real.parent], trusted_users)
    allowed |= {each: system_users for each in (*spelled.parents, *real.parents) if each not in allowed}
    for each, owners in allowed.items():
        status = each.lstat()
        if status.st_uid not in owners and not (trusted and not _is_world_writable(each.parent.stat())):
            whose = f"{each} belongs to another user ({_user_name(status.st_uid)})"
            return OwnershipProblem(whose, "write what you want of it into your own file, or make it yours with chown")
        if problem := _find_unsafe_mode(each, status, trusted=trusted):
            return problem
    return None


def _find_unsafe_mode(path: Path, status: os.stat_result, *, trusted: bool) -> OwnershipProblem | None:
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return None
    if _is_world_writable(status):
        return OwnershipProblem(f"everybody may write to {path}", f"chmod o-w {path}")
    if status.st_mode & stat.S_IWGRP and not trusted and not is_private_group(status.st_gid):
        return OwnershipProblem(f"a group may write to {path}", f"chmod g-w {path}")
    return None


def _is_world_writable(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWOTH)


def is_private_group(group: int) -> bool:
    """Return whether the user is the only member of a group, as most systems make one for each user."""
    import grp  # noqa: PLC0415  # not on Windows
    import pwd  # noqa: PLC0415  # as above

    try:
        user, about = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    # Its name must be the user's: many users may share a primary group.
    return user.pw_gid == group and about.gr_name == user.pw_name and not {*about.gr_mem} - {user.pw_name}


def find_user_name() -> str:
    """Return the name of the user who runs this process."""
    return _user_name(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "")


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415  # not on Windows

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"uid {user}"

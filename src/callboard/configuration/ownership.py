"""Who else could say what is in a file.

Owns the judgement of owners and modes on the way to it. Knows nothing of what is in it, and of access control lists.
Law: a file counts as the user's own only where nobody but the user and root can write it, put another in its place,
or put another directory in the place of one that leads to it. Nothing but that is asked where there are no such owners
(Windows).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = 0


class OwnershipProblem(NamedTuple):
    """Somebody else who could write it: what is wrong, and what to do about it."""

    reason: str
    hint: str


def find_unsafe_owner(path: Path, *, trusted: bool = False) -> OwnershipProblem | None:
    """Who could say what is in a file that is there, or that a thing is there at all; None if nobody else can.

    Args:
        path: A file, a directory or a link. Both a link and what it leads to are judged.
        trusted: The user trusts the directory, so its owner and its group may be others. That everybody may write
            there is never taken, nor another's directory in one where everybody may make directories, such as /tmp.
    """
    if not hasattr(os, "getuid"):
        return None
    trusted_users = {_ROOT, os.getuid()}
    # Where the machine's root is not to be seen (user namespaces), the system's directories have the owner of /.
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
    if status.st_mode & stat.S_IWGRP and not trusted and not _is_private_group(status.st_gid):
        return OwnershipProblem(f"a group may write to {path}", f"chmod g-w {path}")
    return None


def _is_world_writable(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWOTH)


def _is_private_group(group: int) -> bool:
    """Whether a group is the user's alone, as most systems make one for each user and give it all rights."""
    import grp  # noqa: PLC0415  # not on Windows
    import pwd  # noqa: PLC0415  # as above

    try:
        user, about = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    # That it has the user's name tells it from one that many users have as theirs.
    return user.pw_gid == group and about.gr_name == user.pw_name and not {*about.gr_mem} - {user.pw_name}


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415  # not on Windows

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"uid {user}"

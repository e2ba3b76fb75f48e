"""Find the paths that the permission rules hide from commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from callboard.coding.workspace.directory_walk import SKIPPED
from callboard.coding.workspace.workspace import READ_ONLY
from callboard.errors import CallerError
from callboard.tools.context import Permits, denied_places, everything

MAX_ENTRIES: Final = 500_000
"""Names that are read."""
MAX_HIDDEN: Final = 1000
"""Paths that are hidden; each is a mount."""


def find_hidden_paths(root: Path, permits: Permits) -> tuple[str, ...]:
    """The paths beneath the root that the rules hide from commands: existing ones, and those that a rule names literally.

    A directory stands for all that is in it; links are none, since what they lead to is judged by its own name. Not
    looked into are `.git`, which the sandbox keeps, and directories that hold what others wrote. Raises CallerError
    where there are too many to be sure.
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
    return tuple([path for path in paths if not any(_is_in(path, other) for other in paths)])


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


def _is_in(place: str, other: str) -> bool:
    return place.startswith(f"{other}/")

"""Walk a directory tree, breadth first, without directories that do not belong to a project.

Law: no link is followed, whatever changes meanwhile; at most `limit` names are read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final, Literal, TypeAlias

import msgspec

from callboard.storage.confined_directory import DIRECTORY, ConfinedDirectory

SKIPPED: Final = frozenset({"node_modules", "vendor", ".venv", "__pycache__", "target", "dist", "build"})
"""Directories of installed packages and build results; hidden ones are skipped too."""
MAX_ENTRIES: Final = 200_000
"""Names that one walk reads."""

Kind: TypeAlias = Literal["file", "directory", "link", "other"]


class DirectoryEntry(msgspec.Struct, frozen=True):
    """`path` is relative to where the walk began."""

    path: str
    kind: Kind
    depth: int


class DirectoryListing(msgspec.Struct, frozen=True):
    """Entries, breadth first, in each directory by name; `cut` if there are more."""

    entries: list[DirectoryEntry]
    cut: bool


def is_skipped(name: str) -> bool:
    """Return whether a directory of this name does not belong to the project."""
    return name.startswith(".") or name in SKIPPED


def walk_directory(
    files: ConfinedDirectory,
    path: str,
    *,
    limit: int = MAX_ENTRIES,
    depth: int | None = None,
    skip: Callable[[str], bool] = is_skipped,
) -> DirectoryListing:
    """List a directory and those below, down to `depth` levels; directories for which `skip` holds are not entered.

    Raises OSError for a directory that cannot be opened; one below it that cannot is passed over. Linear in the
    entries, times the depth of the directories.
    """
    entries: list[DirectoryEntry] = []
    with files.directory(path) as root:
        waiting: deque[tuple[str, ...]] = deque([()])
        while waiting and len(entries) <= limit:
            steps = waiting.popleft()
            with suppress(OSError):
                for name, kind in _entries(root, steps, limit + 1 - len(entries)):
                    entries.append(DirectoryEntry("/".join([*steps, name]), kind, len(steps) + 1))
                    if kind == "directory" and not skip(name) and (depth is None or len(steps) + 1 < depth):
                        waiting.append((*steps, name))
    return DirectoryListing(entries[:limit], len(entries) > limit)


def files_below(files: ConfinedDirectory, path: str, limit: int = MAX_ENTRIES) -> tuple[list[str], bool]:
    """Return the files below a directory, from the root, in the order of their paths, and whether there are more."""
    listing = walk_directory(files, path, limit=limit)
    prefix = f"{path.rstrip('/')}/" if path not in ("", ".") else ""
    names = [prefix + entry.path for entry in listing.entries if entry.kind == "file"]
    return sorted(names, key=path_sort_key), listing.cut


def path_sort_key(path: str) -> tuple[bytes, ...]:
    """Return a sort key: name by name, as bytes."""
    return tuple(os.fsencode(path).split(b"/"))


def _entries(root: int, steps: tuple[str, ...], limit: int) -> list[tuple[str, Kind]]:
    """Return the names in a directory; each step is opened relative to the one before."""
    opened = os.dup(root)
    try:
        for step in steps:
            below = os.open(step, DIRECTORY, dir_fd=opened)
            os.close(opened)
            opened = below
        with os.scandir(opened) as entries:
            return sorted([(entry.name, _kind(entry)) for entry in islice(entries, limit)])
    finally:
        os.close(opened)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def describe_omitted(count: int) -> str:
    """Return the words for files that the rules deny to a call."""
    return f"{count} {'file is' if count == 1 else 'files are'} left out, by the rules"

"""Choose a folder's files for git and jobs: existing, not generated, not too large; and copy a folder for a job.

Law: nothing in the user's folder is changed, no link in it is followed, and the copy shares nothing with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from callboard.errors import CallerError

MAX_FILE: Final = 50 * 1024 * 1024
"""Bytes of a file that is put into a repository."""

GENERATED: Final = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", ".tox", ".nox"),
        *("node_modules", ".venv", ".gradle", ".DS_Store"),
    }
)
"""Names of files and folders that programs make and nobody commits. Not every repository tells git to ignore them."""
_COMPILED: Final = (".pyc", ".pyo")
NEW_FILES: Final = (
    *("--others", "--exclude-standard"),
    *(f"--exclude={name}" for name in (*sorted(GENERATED), *(f"*{suffix}" for suffix in _COMPILED))),
)
"""Arguments with which `git ls-files` lists untracked files, without those that are ignored or generated."""


def is_generated(path: str) -> bool:
    """Return whether a path is of a kind that programs make and nobody commits."""
    return path.endswith(_COMPILED) or not GENERATED.isdisjoint(path.split("/"))


def large_files(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return the files that are too large, each with its size, time and mode."""
    large = {}
    for path in paths:
        with suppress(OSError):
            status = (root / path).lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size > MAX_FILE:
                large[path] = f"{status.st_size} {status.st_mtime_ns} {status.st_mode}"
    return large


def split_deleted(root: Path, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split the paths into existing and missing ones; for git, a path through a link does not exist."""
    folders = {"": True}

    def is_folder(name: str) -> bool:
        if name not in folders:
            folders[name] = is_folder(name.rpartition("/")[0]) and _has_mode(root / name, stat.S_ISDIR)
        return folders[name]

    existing: list[str] = []
    deleted: list[str] = []
    for path in paths:
        exists = is_folder(path.rpartition("/")[0]) and _has_mode(root / path, lambda _: True)
        (existing if exists else deleted).append(path)
    return existing, deleted


def _has_mode(path: Path, test: Callable[[int], bool]) -> bool:
    try:
        return test(path.lstat().st_mode)
    except OSError:
        return False


MAX_BYTES: Final = 2 * 1024**3
MAX_FILES: Final = 200_000

_SKIPPED: Final = GENERATED | {".git", ".hg", ".svn", ".jj", ".cache"}
_OURS: Final = ".git"
"""In the copy this is ours to write, so nothing of that name is copied, in any case: a link would lead us elsewhere."""


async def copy_files(source: Path, target: Path, *, without: Path) -> tuple[str, ...]:
    """Copy a folder, without generated files, installed packages and the folder `without`.

    Cancelling stops it; an unfinished copy stays.

    Returns:
        The paths that could not be copied.

    Raises:
        CallerError: There are more than 2 GB or 200,000 files.
    """
    stopped = threading.Event()
    try:
        return await asyncio.to_thread(_copy, source, target, without, stopped)
    finally:
        stopped.set()


def _copy(source: Path, target: Path, without: Path, stopped: threading.Event) -> tuple[str, ...]:
    left_out: list[str] = []
    without = without.resolve()
    files = size = 0
    folders = [""]
    target.mkdir()
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(source / folder) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            left_out.append(folder)
            continue
        for entry in children:
            if stopped.is_set():
                return ()
            name = f"{folder}/{entry.name}" if folder else entry.name
            files += 1
            try:
                status = entry.stat(follow_symlinks=False)
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                if files > MAX_FILES or size > MAX_BYTES:
                    raise _size_error(source)
                if entry.name.lower() == _OURS or (entry.is_symlink() and entry.name in _SKIPPED):
                    continue
                if entry.is_symlink():
                    (target / name).symlink_to(Path(entry.path).readlink())
                elif stat.S_ISREG(status.st_mode):
                    _copy_file(Path(entry.path), target / name, status)
                elif stat.S_ISDIR(status.st_mode):
                    if not _is_skipped(entry, without):
                        (target / name).mkdir()
                        folders.append(name)
                else:
                    left_out.append(name)
            except FileNotFoundError:
                continue
            except OSError:
                left_out.append(name)
    return tuple(left_out)


def _is_skipped(entry: os.DirEntry[str], without: Path) -> bool:
    if entry.name in _SKIPPED:
        return True
    if entry.name == "venv" and (Path(entry.path) / "pyvenv.cfg").is_file():
        return True
    return Path(entry.path).resolve() == without


def _copy_file(source: Path, target: Path, status: os.stat_result) -> None:
    # Without waiting, where a pipe was put in its place since.
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as old, target.open("xb") as new:
        shutil.copyfileobj(old, new, 1024 * 1024)
    with suppress(OSError):
        target.chmod(stat.S_IMODE(status.st_mode) & 0o777)


def _size_error(source: Path) -> CallerError:
    return CallerError(
        f"the folder is more than {MAX_FILES:,} files or {MAX_BYTES // 1024**3} GB, which is too much to copy",
        path=str(source),
        hint="make it a repository: git init, git add, git commit",
    )


def link_objects(source: Path, target: Path) -> None:
    """Take over objects, which nobody ever changes, without their bytes where the file system can do that."""
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in names:
            if not (there / name).exists():
                with suppress(FileNotFoundError):  # a temporary file of a git that runs
                    _link(Path(folder) / name, there / name)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or a file system without links
        unfinished = target.with_name(f".{target.name}")
        shutil.copyfile(source, unfinished)
        unfinished.replace(target)

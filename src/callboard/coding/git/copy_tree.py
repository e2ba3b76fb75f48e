"""A folder copied, for a job to work in.

Owns what is copied and how much of it. Knows nothing of git.
Law: nothing in the folder is changed, no link in it is followed, and what was copied is shared with nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from callboard.coding.git.tree_state import GENERATED
from callboard.errors import CallerError

MAX_BYTES: Final = 2 * 1024**3
MAX_FILES: Final = 200_000
BORROWED: Final = (".venv", "venv", "node_modules")
"""Folders of what is installed: read where they are instead of copied."""

_SKIPPED: Final = GENERATED | {".git", ".hg", ".svn", ".jj", ".cache"}
_OURS: Final = ".git"
"""Of the copy this is ours to write, so whatever has its name stays behind, in any case: a link would lead us elsewhere."""
# Of Linux: the copy shares its blocks with the file until one of them is written to (btrfs, xfs).
_FICLONE: Final = 0x40049409


async def copy_tree(source: Path, target: Path, *, without: Path) -> tuple[str, ...]:
    """Copies a folder but for what can be had again and the folder `without`; gives what could not be copied.

    Raises CallerError for more than 2 GB or 200,000 files. Cancelling stops it. A copy that was not finished stays.
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
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            left_out.append(folder)
            continue
        for entry in found:
            if stopped.is_set():
                return ()
            name = f"{folder}/{entry.name}" if folder else entry.name
            files += 1
            try:
                about = entry.stat(follow_symlinks=False)
                size += about.st_size if stat.S_ISREG(about.st_mode) else 0
                if files > MAX_FILES or size > MAX_BYTES:
                    raise _too_much(source)
                if entry.name.lower() == _OURS or (entry.is_symlink() and entry.name in _SKIPPED):
                    continue
                if entry.is_symlink():
                    (target / name).symlink_to(Path(entry.path).readlink())
                elif stat.S_ISREG(about.st_mode):
                    _copy_file(Path(entry.path), target / name, about)
                elif stat.S_ISDIR(about.st_mode):
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


def _copy_file(source: Path, target: Path, about: os.stat_result) -> None:
    # A pipe that was put in its place since is not waited for.
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(reading, "rb") as old, target.open("xb") as new:
        try:
            import fcntl  # noqa: PLC0415 - not everywhere

            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except (ImportError, OSError):
            shutil.copyfileobj(old, new, 1024 * 1024)
    with suppress(OSError):
        target.chmod(stat.S_IMODE(about.st_mode) & 0o777)


def _too_much(source: Path) -> CallerError:
    return CallerError(
        f"the folder is more than {MAX_FILES:,} files or {MAX_BYTES // 1024**3} GB, which is too much to copy",
        path=str(source),
        hint="make it a repository: git init, git add, git commit",
    )

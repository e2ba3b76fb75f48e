"""A copy of a folder for a job, with a private repository, where git has no commit of the folder.

Law: nothing in the user's folder is changed, no link in it is followed, and the copy shares nothing with it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec.structs import replace

from callboard.coding.git.index import GENERATED
from callboard.coding.git.repository import Repository, create_repository
from callboard.coding.git.tree import SLOW_SECONDS, TREE, Tree, TreeRecord, delete_folders, find_installed
from callboard.coding.git.tree_state import settle_index
from callboard.errors import CallerError
from callboard.text.display import display_names

MAX_BYTES: Final = 2 * 1024**3
MAX_FILES: Final = 200_000

_REPOSITORY: Final = "tree.git"
_FIRST_COMMIT: Final = "As it was"
_SKIPPED: Final = GENERATED | {".git", ".hg", ".svn", ".jj", ".cache"}
_OURS: Final = ".git"
"""In the copy this is ours to write, so nothing of that name is copied, in any case: a link would lead us elsewhere."""
# Of Linux: the copy shares its blocks with the file until one of them is written to (btrfs, xfs).
_FICLONE: Final = 0x40049409


class CopiedTree(Tree):
    """A copy of the user's folder; the result is a patch."""

    @property
    def result_patch(self) -> Path:
        return self.patch

    async def push(self, remote: str = "origin") -> None:
        raise CallerError("there is no repository to push from", path=self._record.directory)

    async def _remove(self) -> None:
        if self._record.states.is_dir():
            # What was kept needs the files that did not change.
            await move_objects(Path(self._record.repository) / "objects", self._record.states / "objects")
        await _remove(self._record)


async def make_copy(directory: Path, job: Path, branch: str, *, in_repository: bool) -> CopiedTree:
    """Copy a folder into the job's, and commit it there; see `open_tree`."""
    own = Repository(job / TREE, job / _REPOSITORY, only_branch=branch)
    record = TreeRecord(
        kind="copy",
        job=str(job),
        directory=str(directory),
        branch=branch,
        base="",
        repository=str(own.git_directory),
        common=str(own.common),
    )
    record.save()
    left_out = await copy_tree(directory, own.root, without=job)
    borrowed = await find_installed(directory, None)
    own.hidden = frozenset(borrowed)
    await create_repository(own.root, own.git_directory)
    await own.check_branch(branch)
    await own.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    await own.configure("core.autocrlf", "false")
    # Exclusively: a link would lead elsewhere, also one that leads nowhere yet.
    with (own.root / ".git").open("x") as pointer:
        pointer.write(f"gitdir: {own.git_directory}\n")
    began = monotonic()
    large = [name for name in await own.stage() if not name.endswith("/")]
    (own.git_directory / "info" / "exclude").write_bytes(b"".join([_exclude_line(name) for name in large]))
    if monotonic() - began > SLOW_SECONDS:
        await settle_index(own)
    identity = await own.committer_variables()
    await own.git("commit", "--quiet", "--allow-empty", f"--message={_FIRST_COMMIT}", environment=identity)
    record = replace(record, base=await own.head())
    record.save()
    why = "is in no commit yet" if in_repository else "is no git repository"
    notices = [f"{directory} {why}: the job works on a copy, and its result is a patch"]
    if left_out:
        notices.append(f"not in the copy: {display_names(left_out)}")
    if large:
        notices.append(f"no part of the result, since they have more than 50 MB: {display_names(large)}")
    return CopiedTree(record, own, borrowed, notices)


async def reopen_copy(directory: Path, record: TreeRecord, *, in_repository: bool) -> CopiedTree:
    """Open the copy of a job whose process died, with all that was not committed; see `reopen_tree`."""
    job = Path(record.job)
    own = Repository(job / TREE, job / _REPOSITORY, only_branch=record.branch)
    if not record.base:
        # The process died while it was made.
        await _remove(record)
        return await make_copy(directory, job, record.branch, in_repository=in_repository)
    if record.head or not await asyncio.to_thread((own.root / ".git").is_file):
        hint = f"what had changed is in {record.patch}" if record.head else ""
        raise CallerError("the copy that the job works in is gone", path=str(own.root), hint=hint)
    await asyncio.to_thread(_delete_locks, own.git_directory)
    await delete_folders(record.scratch)
    borrowed = await find_installed(directory, None)
    own.hidden = frozenset(borrowed)
    return CopiedTree(record, own, borrowed)


def _delete_locks(repository: Path) -> None:
    """Delete the locks of a git that was killed: the repository is the job's, so nobody else can hold them."""
    for lock in (*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock")):
        lock.unlink(missing_ok=True)


async def undo_copy(record: TreeRecord) -> str:
    """Remove a job's copy; see `undo_tree`."""
    await _remove(record)
    remaining = f" The changes are still in {record.patch}." if await asyncio.to_thread(record.patch.exists) else ""
    return f"The copy is gone; {record.directory} is as it was.{remaining}"


async def _remove(record: TreeRecord) -> None:
    await delete_folders(record.root, record.scratch, Path(record.job) / _REPOSITORY)


def _exclude_line(path: str) -> bytes:
    """A line of git's exclude file that means this path alone."""
    return b"/" + re.sub(rb"([\\*?\[ ])", rb"\\\1", os.fsencode(path)) + b"\n"


async def copy_tree(source: Path, target: Path, *, without: Path) -> tuple[str, ...]:
    """Copy a folder, without generated files, installed packages and the folder `without`.

    Cancelling stops it; an unfinished copy stays.

    Returns:
        What could not be copied.

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
        try:
            import fcntl  # noqa: PLC0415 - not everywhere

            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except (ImportError, OSError):
            shutil.copyfileobj(old, new, 1024 * 1024)
    with suppress(OSError):
        target.chmod(stat.S_IMODE(status.st_mode) & 0o777)


def _size_error(source: Path) -> CallerError:
    return CallerError(
        f"the folder is more than {MAX_FILES:,} files or {MAX_BYTES // 1024**3} GB, which is too much to copy",
        path=str(source),
        hint="make it a repository: git init, git add, git commit",
    )


async def move_objects(source: Path, target: Path) -> None:
    """Move the objects of a repository that goes away to a folder of the job, where they stay."""
    await asyncio.to_thread(_add_objects, source, target, os.replace)


async def link_objects(source: Path, target: Path) -> None:
    """Take over objects, which nobody ever changes, without their bytes where the file system can do that."""
    await asyncio.to_thread(_add_objects, source, target, _link)


def _add_objects(source: Path, target: Path, add: Callable[[Path, Path], None]) -> None:
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in names:
            if not (there / name).exists():
                with suppress(FileNotFoundError):  # a temporary file of a git that runs
                    add(Path(folder) / name, there / name)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or a file system without links
        unfinished = target.with_name(f".{target.name}")
        shutil.copyfile(source, unfinished)
        unfinished.replace(target)

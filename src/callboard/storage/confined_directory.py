"""Files beneath one directory, for paths that a model wrote.

Laws: each step of a path is opened separately, relative to the previous step, and never through a link: the link is
read and its target is walked in the same way. So the opened file is always beneath the root, whatever changes. Hard
links and mounts are trusted as the root owner's. The guard (`set_path_guard`) judges the path of the walk, not the
written path, so a link that changes in between cannot bypass the guard.

We do not resolve the path and compare: between the check and the `open`, a command in the same tree can replace a
directory by a link.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import BinaryIO, NamedTuple, Self, TypeAlias

from callboard.errors import CallerError

MAX_LINKS = 40
"""Links that are followed on one path, as in Linux."""
MAX_STEPS = 200
"""Names on one path."""
MAX_ENTRIES = 200_000
"""Names that are looked at for the other names of a file with hard links."""

# Absent on Windows, where `connect` refuses.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ROOT = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
DIRECTORY = _ROOT | _NO_FOLLOW
"""Flags to open a directory that is not a link."""
# Neither waits for the other end of a pipe nor takes a terminal.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_UNFINISHED = re.compile(r"\.callboard-[0-9a-f]{16}")
"""The name of a file that is being written."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


Guard: TypeAlias = Callable[[str], bool]
"""Whether what is at a path, relative to the root and without links, may be read and changed."""

_GUARD: ContextVar[Guard | None] = ContextVar("callboard.guard", default=None)


def set_path_guard(guard: Guard | None) -> None:
    """From now on, in this task or thread, open files and directories only where the guard allows it."""
    _GUARD.set(guard)


class ResolvedPath(NamedTuple):
    """The target of a path."""

    parent: int
    """An open directory."""
    name: str
    """A name in it, which is not a link."""
    path: str
    """The same, from the root."""


class ConfinedDirectory:
    """The files beneath one directory. Every method raises PermissionError for a path that leads out, else OSError.

    Paths are relative to the root, or absolute and beneath it, as the root was spelled or without links.

    Args:
        root: The directory. A relative path is resolved against the current directory when it connects.
        read_only: Names of files and directories that are never changed, including their content; in upper or lower
            case, at any depth.
    """

    def __init__(self, root: str = ".", read_only: Collection[str] = ()) -> None:
        self._name = root
        self._read_only = frozenset(name.casefold() for name in read_only)
        self._root = -1
        self._lock = threading.Lock()
        self._spellings: tuple[list[str], ...] = ()

    async def connect(self) -> None:
        """Open the root. Raises CallerError."""
        self._open()

    async def disconnect(self) -> None:
        """Close the root. A call under way finishes: it has a descriptor of its own."""
        self._close()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        with self._lock:
            opened, self._root = self._root, -1
        if opened >= 0:
            os.close(opened)

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a file. Raises OSError for more than `limit`."""
        with self.open(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"File has more than {limit} bytes", path)
        return data

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; the caller closes it."""
        with self._resolve(path) as entry:
            opened = os.open(entry.name, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT, dir_fd=entry.parent)
            try:
                status = os.fstat(opened)
                _check_file(status)
                self._check_guard(entry.path, path, status)
            except BaseException:
                os.close(opened)
                raise
            return os.fdopen(opened, "rb")

    def stat(self, path: str) -> os.stat_result:
        """Return the status of the target of a path."""
        with self._resolve(path) as entry:
            return os.stat(entry.name, dir_fd=entry.parent, follow_symlinks=False)

    def canonical(self, path: str) -> str:
        """Resolve a path: relative to the root, without links. Its last name need not be there; "" is the root."""
        with self._resolve(path) as entry:
            return entry.path

    def aliases(self, path: str) -> list[str]:
        """Return every path of a file, relative to the root: the canonical path, then its hard links.

        For a missing file, return the path at which it would be made. Raises OSError, also if there are more than
        MAX_ENTRIES names to search for hard links.
        """
        with self._resolve(path, lenient=True) as entry:
            try:
                status = os.stat(entry.name, dir_fd=entry.parent, follow_symlinks=False) if entry.name else None
            except FileNotFoundError:
                status = None
            return [entry.path, *self._hard_links(entry.path, status)]

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        """Replace a file's content atomically: a reader sees the old or the new.

        Missing directories are made. A file keeps its permissions, without set-user-ID. A new file gets the permissions
        `mode`, by default limited by the umask. For root, a file keeps its owner; a new file gets its directory's.
        """
        with self._resolve(path, make=True, change=True) as entry:
            parent, name = entry.parent, entry.name
            status = _file_status(name, parent)
            self._check_guard(entry.path, path, status)
            new = f".callboard-{secrets.token_hex(8)}"
            file = os.open(new, _NEW, 0o666, dir_fd=parent)
            try:
                try:
                    _copy_owner(file, status or os.fstat(parent))
                    if (bits := mode if status is None else status.st_mode) is not None:
                        os.fchmod(file, bits & 0o777)
                    remaining = memoryview(data)
                    while remaining:
                        remaining = remaining[os.write(file, remaining) :]
                    os.fsync(file)
                finally:
                    os.close(file)
                os.replace(new, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=parent)
                raise

    def delete(self, path: str) -> None:
        """Delete a file, or a link itself."""
        with self._resolve(path, change=True, follow=False) as entry:
            status = os.stat(entry.name, dir_fd=entry.parent, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                _check_file(status)
            self._check_guard(entry.path, path, status)
            os.unlink(entry.name, dir_fd=entry.parent)

    @contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Return a descriptor of a directory, open within the `with` block."""
        with self._resolve(path) as entry:
            self._check_guard(entry.path, path, None)
            opened = os.open(entry.name, DIRECTORY, dir_fd=entry.parent)
        try:
            yield opened
        finally:
            os.close(opened)

    def names(self, path: str, limit: int) -> list[str]:
        """Return the sorted names in a directory, folders with a final slash. Raises OSError for more than `limit`."""
        with self.directory(path) as directory, os.scandir(directory) as entries:
            names = [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in islice(entries, limit + 1)]
        if len(names) > limit:
            raise OSError(errno.EFBIG, f"Directory has more than {limit} names", path)
        return sorted(names)

    def _open(self) -> None:
        if os.open not in os.supports_dir_fd:
            raise CallerError("this system cannot confine paths to a directory", path=self._name)
        try:
            opened = os.open(self._name, _ROOT)
        except OSError as error:
            raise CallerError(error.strerror or "cannot be opened", path=self._name) from None
        with self._lock:
            self._root, opened = opened, self._root
        if opened >= 0:
            os.close(opened)
        self._spellings = (_split(os.path.realpath(self._name)), _split(os.path.abspath(self._name)))  # noqa: PTH100  # pathlib's keeps `..`

    def _check_guard(self, canonical: str, path: str, status: os.stat_result | None) -> None:
        """Raise PermissionError where the guard refuses any name of the file."""
        guard = _GUARD.get()
        if guard is None:
            return
        for name in (canonical, *self._hard_links(canonical, status)):
            if not guard(name):
                leads = "" if name == path else f": it leads to {name!r}"
                raise PermissionError(f"a rule keeps this call from {path!r}{leads}")

    def _hard_links(self, canonical: str, status: os.stat_result | None) -> list[str]:
        """Return the other names, beneath the root, of a file that has several."""
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:  # its own is one
            return []
        names: list[str] = []
        seen = 0
        root = self._duplicate_root()
        try:
            waiting: list[tuple[str, ...]] = [()]
            while waiting and len(names) < status.st_nlink:
                steps = waiting.pop()
                with (
                    suppress(FileNotFoundError, NotADirectoryError, PermissionError),
                    _open_steps(root, steps) as directory,
                ):
                    for item in os.scandir(directory):
                        seen += 1
                        if item.is_dir(follow_symlinks=False):
                            waiting.append((*steps, item.name))
                        elif item.inode() == status.st_ino and _is_same_file(item.name, directory, status):
                            names.append("/".join([*steps, item.name]))
                if seen > MAX_ENTRIES:
                    raise OSError(errno.EFBIG, "its hard links are among too many files to be found", canonical)
        finally:
            os.close(root)
        return [name for name in names if name != canonical]

    @contextmanager
    def _resolve(
        self, path: str, *, make: bool = False, change: bool = False, follow: bool = True, lenient: bool = False
    ) -> Iterator[ResolvedPath]:
        """Walk a path.

        Args:
            path: As it was written.
            make: Whether missing directories are made.
            change: Whether names of `read_only` are refused.
            follow: Whether a link at the end is followed.
            lenient: Whether directories may be missing; the result then has no name.
        """
        opened = [self._duplicate_root()]
        try:
            yield self._walk(path, opened, make=make, change=change, follow=follow, lenient=lenient)
        except OSError as error:
            # The operating system names the step; the caller wrote the path.
            if error.errno is None or error.filename == path:
                raise
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            for each in opened:
                os.close(each)

    def _walk(
        self, path: str, opened: list[int], *, make: bool, change: bool, follow: bool, lenient: bool = False
    ) -> ResolvedPath:
        """Walk a path; `opened` are the open directories from the root to the current one."""
        steps = self._reversed_steps(path, path, change=change)
        names: list[str] = []
        links = 0
        while steps:
            step = steps.pop()
            if step == "..":
                if len(opened) == 1:
                    raise self._outside_error(path)
                os.close(opened.pop())
                names.pop()
                continue
            target = _read_link(step, opened[-1]) if steps or follow else None
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                while target.startswith("/") and len(opened) > 1:
                    os.close(opened.pop())
                    names.pop()
                steps += self._reversed_steps(target, path, change=change)
            elif not steps:
                return ResolvedPath(opened[-1], step, "/".join([*names, step]))
            else:
                try:
                    opened.append(_open_directory(step, opened[-1], make=make))
                except FileNotFoundError:
                    if not lenient:
                        raise
                    return ResolvedPath(opened[-1], "", self._missing_path([*names, step, *reversed(steps)], path))
                names.append(step)
            if len(opened) + len(steps) > MAX_STEPS:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return ResolvedPath(opened[-1], ".", "/".join(names))

    def _reversed_steps(self, path: str, whole: str, *, change: bool) -> list[str]:
        """Return the names of a path, last first, from the root if it is absolute; `whole` is the path for an error."""
        names = _split(path)
        if path.startswith("/"):
            root = next((root for root in self._spellings if names[: len(root)] == root), None)
            if root is None:
                raise self._outside_error(whole)
            names = names[len(root) :]
        # Checked before missing directories are made.
        fixed = next((name for name in names if name.casefold() in self._read_only), None) if change else None
        if fixed is not None:
            raise PermissionError(f"{whole!r} is not to be changed: nothing in {fixed!r} is")
        return names[::-1]

    def _missing_path(self, steps: list[str], path: str) -> str:
        """Return the path where missing directories would be made: what is not there cannot be a link."""
        names: list[str] = []
        for step in steps:
            if step != "..":
                names.append(step)
            elif names:
                names.pop()
            else:
                raise self._outside_error(path)
        return "/".join(names)

    def _duplicate_root(self) -> int:
        # A duplicate: the number of a descriptor that another thread closes is soon reused.
        with self._lock:
            if self._root < 0:
                raise RuntimeError("the ensemble is not connected")
            return os.dup(self._root)

    def _outside_error(self, path: str) -> PermissionError:
        return PermissionError(f"{path!r} is outside of {'/' + '/'.join(self._spellings[0])!r}")


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _read_link(name: str, parent: int) -> str | None:
    """Return the target of a link; None if the path is not a link or does not exist."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _open_directory(name: str, parent: int, *, make: bool) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        made = os.open(name, DIRECTORY, dir_fd=parent)
        _copy_owner(made, os.fstat(parent))
        return made
    return os.open(name, DIRECTORY, dir_fd=parent)


def _copy_owner(opened: int, like: os.stat_result) -> None:
    """Give a file the owner of another; only root can, and not on every file system."""
    if os.geteuid() == 0:
        with suppress(PermissionError):
            os.fchown(opened, like.st_uid, like.st_gid)


def _file_status(name: str, parent: int) -> os.stat_result | None:
    """Return the status of a regular file, or None."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check_file(status)
    return status


@contextmanager
def _open_steps(root: int, steps: tuple[str, ...]) -> Iterator[int]:
    """Return the directory that these steps lead to, none of them a link."""
    opened = os.dup(root)
    try:
        for step in steps:
            inner = os.open(step, DIRECTORY, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _is_same_file(name: str, parent: int, status: os.stat_result) -> bool:
    try:
        other = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino)


def remove_unfinished(root: str) -> None:
    """Delete files of unfinished writes beneath a directory, left by processes that died. Raises OSError.

    Nobody else may write there meanwhile.
    """
    for _, folders, names, directory in os.fwalk(root):
        if ".git" in folders:
            folders.remove(".git")
        for name in filter(_UNFINISHED.fullmatch, names):
            os.unlink(name, dir_fd=directory)


def _check_file(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise PermissionError(errno.EACCES, "Not a regular file")

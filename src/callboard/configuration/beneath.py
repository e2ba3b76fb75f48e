"""A directory that nothing leads out of.

Owns the way from a path that a model wrote to an open file. Knows nothing of tools.
Law: each step of a path is opened by itself, relative to the one before, and never through a link: a link is
read and its target walked in the same way. So whatever is changed meanwhile, what is opened is beneath the
root. Hard links and mounts are what the root's owner put there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from callboard.errors import CallerError

MAX_LINKS = 40
"""Links that are followed on one path, as in Linux."""
MAX_STEPS = 200
"""Names on one path."""

# Absent on Windows, where `connect` refuses.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Neither waits for the other end of a pipe nor takes a terminal.
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class Beneath:
    """The files beneath `root`, a path. A relative one is taken from the current directory when it connects.

    Paths are relative to the root, or absolute and beneath it, as the root was spelled or without links.
    Every method raises PermissionError for a path that leads out, else what the operating system says.
    """

    def __init__(self, root: str = ".") -> None:
        self._given = root
        self._root = -1
        self._lock = threading.Lock()
        self._spellings: tuple[list[str], ...] = ()

    async def connect(self) -> None:
        """Opens the root. Raises CallerError."""
        self._open()

    async def disconnect(self) -> None:
        """Closes the root; what is under way goes on with its own."""
        with self._lock:
            opened, self._root = self._root, -1
        if opened >= 0:
            os.close(opened)

    def read(self, path: str, limit: int) -> bytes:
        """What is in a file; at most `limit` bytes, else OSError."""
        with self._place(path) as (parent, name):
            file = os.open(name, os.O_RDONLY | _NO_LINK | _QUIETLY, dir_fd=parent)
            try:
                _check_file(os.fstat(file))
                data = bytearray()
                while len(data) <= limit and (block := os.read(file, limit + 1 - len(data))):
                    data += block
            finally:
                os.close(file)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"File has more than {limit} bytes", path)
        return bytes(data)

    def write(self, path: str, data: bytes) -> None:
        """Puts the data in place of what was in the file, at once: whoever reads sees the old or the new.

        Directories that are missing are made. A file keeps its permissions.
        """
        with self._place(path, make=True) as (parent, name):
            mode = _mode(name, parent)
            new = f".callboard-{secrets.token_hex(8)}"
            file = os.open(new, _NEW, 0o666, dir_fd=parent)
            try:
                try:
                    if mode is not None:
                        os.fchmod(file, mode)
                    left = memoryview(data)
                    while left:
                        left = left[os.write(file, left) :]
                    os.fsync(file)
                finally:
                    os.close(file)
                os.replace(new, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=parent)
                raise

    def names(self, path: str, limit: int) -> list[str]:
        """The names in a directory, sorted, those of directories with a slash; at most `limit`, else OSError."""
        with self._place(path) as (parent, name):
            directory = os.open(name, _DIRECTORY | _NO_LINK, dir_fd=parent)
            try:
                with os.scandir(directory) as entries:
                    found = [
                        entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in islice(entries, limit + 1)
                    ]
            finally:
                os.close(directory)
        if len(found) > limit:
            raise OSError(errno.EFBIG, f"Directory has more than {limit} names", path)
        return sorted(found)

    def _open(self) -> None:
        if os.open not in os.supports_dir_fd:
            raise CallerError("this system cannot confine paths to a directory", path=self._given)
        try:
            opened = os.open(self._given, _DIRECTORY)
        except OSError as error:
            raise CallerError(error.strerror or "cannot be opened", path=self._given) from None
        with self._lock:
            self._root, opened = opened, self._root
        if opened >= 0:
            os.close(opened)
        self._spellings = (_names(os.path.realpath(self._given)), _names(os.path.abspath(self._given)))  # noqa: PTH100  # pathlib's keeps `..`

    @contextmanager
    def _place(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory that the last name of a path is in, and that name, which was no link."""
        held = [self._own_root()]
        try:
            yield self._walk(path, held, make=make)
        except OSError as error:
            # The operating system names the step, a person the path.
            if error.errno is None or error.filename == path:
                raise
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            for each in held:
                os.close(each)

    def _walk(self, path: str, held: list[int], *, make: bool) -> tuple[int, str]:
        """`held` are the open directories from the root to the one that the walk is in."""
        steps = self._steps(path, path)
        links = 0
        while steps:
            step = steps.pop()
            if step == "..":
                if len(held) == 1:
                    raise self._outside(path)
                os.close(held.pop())
                continue
            target = _target(step, held[-1])
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                while target.startswith("/") and len(held) > 1:
                    os.close(held.pop())
                steps += self._steps(target, path)
            elif not steps:
                return held[-1], step
            else:
                held.append(_directory(step, held[-1], make=make))
            if len(held) + len(steps) > MAX_STEPS:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return held[-1], "."

    def _steps(self, path: str, asked: str) -> list[str]:
        """The names of a path, last first, from the root if it is absolute."""
        names = _names(path)
        if path.startswith("/"):
            for root in self._spellings:
                if names[: len(root)] == root:
                    return names[len(root) :][::-1]
            raise self._outside(asked)
        return names[::-1]

    def _own_root(self) -> int:
        # Of its own, since a number that is closed by another thread soon stands for something else.
        with self._lock:
            if self._root < 0:
                raise RuntimeError("the ensemble is not connected")
            return os.dup(self._root)

    def _outside(self, path: str) -> PermissionError:
        return PermissionError(f"{path!r} is outside of {'/' + '/'.join(self._spellings[0])!r}")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _target(name: str, parent: int) -> str | None:
    """Where a link leads, None for what is no link or not there."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _directory(name: str, parent: int, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY | _NO_LINK, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _DIRECTORY | _NO_LINK, dir_fd=parent)


def _mode(name: str, parent: int) -> int | None:
    """The permissions of a file that is there."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check_file(found)
    return stat.S_IMODE(found.st_mode)


def _check_file(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError(errno.EACCES, "Not a regular file")

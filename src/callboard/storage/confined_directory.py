"""A directory that nothing leads out of.

Owns the way from a path that a model wrote to an open file. Knows nothing of tools.
Laws: each step of a path is opened by itself, relative to the one before, and never through a link: a link is
read and its target walked in the same way. So whatever is changed meanwhile, what is opened is beneath the
root. Hard links and mounts are what the root's owner put there. What a file's content is read or changed by is also
what is judged: `guarded` looks at the path that the walk took, so that no link that is turned in between leads past it.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import BinaryIO, NamedTuple, TypeAlias

from callboard.errors import CallerError

MAX_LINKS = 40
"""Links that are followed on one path, as in Linux."""
MAX_STEPS = 200
"""Names on one path."""
MAX_ENTRIES = 200_000
"""Names that are looked at for the other names of a file with hard links."""

# Absent on Windows, where `connect` refuses.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_ROOT = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
DIRECTORY = _ROOT | _NO_LINK
"""Opens a directory that is no link."""
# Neither waits for the other end of a pipe nor takes a terminal.
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


Guard: TypeAlias = Callable[[str], bool]
"""Whether what is at a path, relative to the root and without links, may be read and changed."""

_GUARD: ContextVar[Guard | None] = ContextVar("callboard.guard", default=None)


def guarded(guard: Guard | None) -> None:
    """From now on, in this task or thread, files and directories are opened only where the guard says so."""
    _GUARD.set(guard)


class Place(NamedTuple):
    """Where a path leads: an open directory and a name in it, which is no link; `path` is the same from the root."""

    parent: int
    name: str
    path: str


class Beneath:
    """The files beneath `root`, a path. A relative one is taken from the current directory when it connects.

    Paths are relative to the root, or absolute and beneath it, as the root was spelled or without links.
    What is named as one of `kept`, in whatever letters' case and however deep, is read and never changed, nor is
    what is in it. Every method raises PermissionError for a path that leads out, else what the operating system says.
    """

    def __init__(self, root: str = ".", kept: Collection[str] = ()) -> None:
        self._given = root
        self._kept = frozenset(name.casefold() for name in kept)
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
        with self.open(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"File has more than {limit} bytes", path)
        return data

    def open(self, path: str) -> BinaryIO:
        """A file, to be read and closed by the caller."""
        with self._place(path) as place:
            opened = os.open(place.name, os.O_RDONLY | _NO_LINK | _QUIETLY, dir_fd=place.parent)
            try:
                found = os.fstat(opened)
                _check_file(found)
                self._judge(place.path, path, found)
            except BaseException:
                os.close(opened)
                raise
            return os.fdopen(opened, "rb")

    def stat(self, path: str) -> os.stat_result:
        """What the operating system says of what a path leads to."""
        with self._place(path) as place:
            return os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)

    def canonical(self, path: str) -> str:
        """The one path, relative to the root, of what a path leads to, which need not be there; "" is the root."""
        with self._place(path) as place:
            return place.path

    def aliases(self, path: str) -> list[str]:
        """Every path, relative to the root, of what a path leads to: the canonical one, then those of hard links.

        Of what is not there, the path that it would be made at. Raises OSError, also where there are too many files
        to know.
        """
        with self._place(path, lenient=True) as place:
            try:
                found = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False) if place.name else None
            except FileNotFoundError:
                found = None
            return [place.path, *self._hard_links(place.path, found)]

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        """Puts the data in place of what was in the file, at once: whoever reads sees the old or the new.

        Directories that are missing are made. A file keeps its permissions, without those to run as its owner; a new
        one has those of `mode`, by default what the system gives. Where we are root a file keeps its owner, and what
        is new has its directory's.
        """
        with self._place(path, make=True, change=True) as place:
            parent, name = place.parent, place.name
            there = _there(name, parent)
            self._judge(place.path, path, there)
            new = f".callboard-{secrets.token_hex(8)}"
            file = os.open(new, _NEW, 0o666, dir_fd=parent)
            try:
                try:
                    _own(file, there or os.fstat(parent))
                    if (bits := mode if there is None else there.st_mode) is not None:
                        os.fchmod(file, bits & 0o777)
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

    def delete(self, path: str) -> None:
        """Takes the name of a file away; of a link the link's own."""
        with self._place(path, change=True, follow=False) as place:
            found = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                _check_file(found)
            self._judge(place.path, path, found)
            os.unlink(place.name, dir_fd=place.parent)

    @contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """A directory, open for as long as it is entered."""
        with self._place(path) as place:
            self._judge(place.path, path, None)
            opened = os.open(place.name, DIRECTORY, dir_fd=place.parent)
        try:
            yield opened
        finally:
            os.close(opened)

    def names(self, path: str, limit: int) -> list[str]:
        """The names in a directory, sorted, those of directories with a slash; at most `limit`, else OSError."""
        with self.directory(path) as directory, os.scandir(directory) as entries:
            found = [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in islice(entries, limit + 1)]
        if len(found) > limit:
            raise OSError(errno.EFBIG, f"Directory has more than {limit} names", path)
        return sorted(found)

    def _open(self) -> None:
        if os.open not in os.supports_dir_fd:
            raise CallerError("this system cannot confine paths to a directory", path=self._given)
        try:
            opened = os.open(self._given, _ROOT)
        except OSError as error:
            raise CallerError(error.strerror or "cannot be opened", path=self._given) from None
        with self._lock:
            self._root, opened = opened, self._root
        if opened >= 0:
            os.close(opened)
        self._spellings = (_names(os.path.realpath(self._given)), _names(os.path.abspath(self._given)))  # noqa: PTH100  # pathlib's keeps `..`

    def _judge(self, canonical: str, path: str, found: os.stat_result | None) -> None:
        """Raises PermissionError where a guard says no, of any name that it is reached by."""
        guard = _GUARD.get()
        if guard is None:
            return
        for name in (canonical, *self._hard_links(canonical, found)):
            if not guard(name):
                leads = "" if name == path else f": it leads to {name!r}"
                raise PermissionError(f"a rule keeps this call from {path!r}{leads}")

    def _hard_links(self, canonical: str, found: os.stat_result | None) -> list[str]:
        """The other names, beneath the root, of a file that has several."""
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_nlink < 2:  # its own is one
            return []
        names: list[str] = []
        looked = 0
        root = self._own_root()
        try:
            waiting: list[tuple[str, ...]] = [()]
            while waiting and len(names) < found.st_nlink:
                steps = waiting.pop()
                with suppress(FileNotFoundError, NotADirectoryError, PermissionError), _below(root, steps) as directory:
                    for entry in os.scandir(directory):
                        looked += 1
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append((*steps, entry.name))
                        elif entry.inode() == found.st_ino and _is_same(entry.name, directory, found):
                            names.append("/".join([*steps, entry.name]))
                if looked > MAX_ENTRIES:
                    raise OSError(errno.EFBIG, "its hard links are among too many files to be found", canonical)
        finally:
            os.close(root)
        return [name for name in names if name != canonical]

    @contextmanager
    def _place(
        self, path: str, *, make: bool = False, change: bool = False, follow: bool = True, lenient: bool = False
    ) -> Iterator[Place]:
        """Where a path leads. Missing directories are made with `make`; `change` refuses what is kept.

        Without `follow` the last name may be a link's; with `lenient` directories may be missing, and the place then
        has no name.
        """
        held = [self._own_root()]
        try:
            yield self._walk(path, held, make=make, change=change, follow=follow, lenient=lenient)
        except OSError as error:
            # The operating system names the step, a person the path.
            if error.errno is None or error.filename == path:
                raise
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            for each in held:
                os.close(each)

    def _walk(
        self, path: str, held: list[int], *, make: bool, change: bool, follow: bool, lenient: bool = False
    ) -> Place:
        """`held` are the open directories from the root to the one that the walk is in."""
        steps = self._steps(path, path, change=change)
        names: list[str] = []
        links = 0
        while steps:
            step = steps.pop()
            if step == "..":
                if len(held) == 1:
                    raise self._outside(path)
                os.close(held.pop())
                names.pop()
                continue
            target = _target(step, held[-1]) if steps or follow else None
            if target is not None:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                while target.startswith("/") and len(held) > 1:
                    os.close(held.pop())
                    names.pop()
                steps += self._steps(target, path, change=change)
            elif not steps:
                return Place(held[-1], step, "/".join([*names, step]))
            else:
                try:
                    held.append(_directory(step, held[-1], make=make))
                except FileNotFoundError:
                    if not lenient:
                        raise
                    return Place(held[-1], "", self._made_at([*names, step, *reversed(steps)], path))
                names.append(step)
            if len(held) + len(steps) > MAX_STEPS:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return Place(held[-1], ".", "/".join(names))

    def _steps(self, path: str, asked: str, *, change: bool) -> list[str]:
        """The names of a path, last first, from the root if it is absolute."""
        names = _names(path)
        if path.startswith("/"):
            root = next((root for root in self._spellings if names[: len(root)] == root), None)
            if root is None:
                raise self._outside(asked)
            names = names[len(root) :]
        # Before anything is made on the way.
        kept = next((name for name in names if name.casefold() in self._kept), None) if change else None
        if kept is not None:
            raise PermissionError(f"{asked!r} is not to be changed: nothing in {kept!r} is")
        return names[::-1]

    def _made_at(self, steps: list[str], asked: str) -> str:
        """The path of steps of which some are not there, and so no links."""
        names: list[str] = []
        for step in steps:
            if step != "..":
                names.append(step)
            elif names:
                names.pop()
            else:
                raise self._outside(asked)
        return "/".join(names)

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
        return os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        made = os.open(name, DIRECTORY, dir_fd=parent)
        _own(made, os.fstat(parent))
        return made
    return os.open(name, DIRECTORY, dir_fd=parent)


def _own(opened: int, like: os.stat_result) -> None:
    """Gives it the owner that something else has; only root can, and not everywhere."""
    if os.geteuid() == 0:
        with suppress(PermissionError):
            os.fchown(opened, like.st_uid, like.st_gid)


def _there(name: str, parent: int) -> os.stat_result | None:
    """What is known of a file that is there."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check_file(found)
    return found


@contextmanager
def _below(root: int, steps: tuple[str, ...]) -> Iterator[int]:
    """The directory that these steps lead to, none of them a link."""
    opened = os.dup(root)
    try:
        for step in steps:
            inner = os.open(step, DIRECTORY, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _is_same(name: str, parent: int, found: os.stat_result) -> bool:
    try:
        other = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino)


def _check_file(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError(errno.EACCES, "Not a regular file")

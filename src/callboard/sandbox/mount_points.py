"""Places in a workspace that are held while commands run there.

Owns the empty directories that are made for something to be shown or kept there, links to what cannot be shown
otherwise, and files that are put back.
Law: nothing is reached through a link, since whoever works in the workspace may have put it there; what was
made is gone when the last command that needs it is.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from callboard.errors import CallerError

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_MAX_FILE = 1024 * 1024

_State: TypeAlias = tuple[str, bytes, int]
"""What a name stands for, and of a file its content and permissions."""

_lock = threading.Lock()
_made: Counter[Path] = Counter()


def check_paths(places: Iterable[str], workspace: Path) -> list[PurePosixPath]:
    """The places, parents first. Raises CallerError for what is not in the workspace, or reached through a link."""
    paths = sorted(map(PurePosixPath, places))
    for place in paths:
        if place.is_absolute() or ".." in place.parts or not place.parts:
            raise CallerError("must be a path in the workspace", path=str(place))
        for step in path_steps(place):
            if (workspace / step).is_symlink():
                raise CallerError(
                    "is a link, and so cannot be held", path=str(workspace / step), hint="put what it leads to here"
                )
        for step in path_steps(place)[:-1]:
            if (workspace / step).exists() and not (workspace / step).is_dir():
                raise CallerError("is no directory", path=str(workspace / step))
    return paths


def path_steps(place: PurePosixPath) -> list[PurePosixPath]:
    """The directories of the workspace that a place is in, outermost first, and the place."""
    return [*reversed(place.parents), place][1:]


@contextmanager
def make_directories(workspace: Path, places: Sequence[PurePosixPath]) -> Iterator[None]:
    """Makes an empty directory at each place where there is nothing."""
    with _hold(workspace, [(step, None) for place in places for step in path_steps(place)]):
        yield


@contextmanager
def make_links(workspace: Path, bind_mounts: Mapping[str, Path]) -> Iterator[None]:
    """Makes a link at each place where there is nothing, to the directory that is borrowed there.

    For where nothing better is to be had. Raises CallerError for what is not in the workspace, or reached through a
    link.
    """
    places = {PurePosixPath(place): Path(os.path.realpath(target)) for place, target in bind_mounts.items()}
    parents = check_paths({str(place.parent) for place in places} - {"."}, workspace)
    with make_directories(workspace, parents), _hold(workspace, places.items()):
        yield


@contextmanager
def _hold(workspace: Path, places: Iterable[tuple[PurePosixPath, Path | None]]) -> Iterator[None]:
    """Makes what is not there: links to targets, and empty directories."""
    held: list[tuple[Path, Path | None]] = []
    try:
        with _lock:
            for place, target in places:
                path = workspace / place
                # What another command has made is there, but not for good.
                if _made[path] or _make(path, target, workspace):
                    _made[path] += 1
                    held.append((path, target))
        yield
    finally:
        with _lock:
            for path, target in reversed(held):
                _made[path] -= 1
                if not _made[path]:
                    del _made[path]
                    _unmake(path, target, workspace)


@contextmanager
def restore_files(workspace: Path, names: Sequence[str]) -> Iterator[None]:
    """Afterwards the files of these names in the workspace are as they were, and what was not there is not.

    For where nothing better is to be had. Raises CallerError for a file of more than 1 MiB.
    """
    directory = os.open(workspace, _DIRECTORY)
    try:
        before = {name: _state(name, directory) for name in names}
        for name, (_, content, _mode) in before.items():
            if len(content) > _MAX_FILE:
                raise CallerError("is too large to be put back", path=str(workspace / name))
        try:
            yield
        finally:
            for name, state in before.items():
                if _state(name, directory) != state:
                    _replace(name, directory, state)
    finally:
        os.close(directory)


def _make(path: Path, target: Path | None, workspace: Path) -> bool:
    with suppress(FileExistsError), _parent(path, workspace) as parent:
        if target is None:
            os.mkdir(path.name, dir_fd=parent)
        else:
            os.symlink(target, path.name, dir_fd=parent)
        return True
    return False


def _unmake(path: Path, target: Path | None, workspace: Path) -> None:
    """Takes away what was made, unless something else is there now."""
    with suppress(OSError), _parent(path, workspace) as parent:
        if target is None:
            os.rmdir(path.name, dir_fd=parent)
        elif os.readlink(path.name, dir_fd=parent) == str(target):
            os.unlink(path.name, dir_fd=parent)


def _state(name: str, directory: int) -> _State:
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return "other", b"", 0
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory), "rb") as file:  # noqa: PTH123  # by its number
            return "file", file.read(_MAX_FILE + 1), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except FileNotFoundError:
        return "", b"", 0


def _replace(name: str, directory: int, state: _State) -> None:
    kind, content, mode = state
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except OSError:
        shutil.rmtree(name, dir_fd=directory)
    if kind == "file":
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=directory), "wb") as file:  # noqa: PTH123  # as above
            os.fchmod(file.fileno(), mode)
            file.write(content)


@contextmanager
def _parent(path: Path, workspace: Path) -> Iterator[int]:
    """The open directory that the last name of a path is in."""
    directory = os.open(workspace, _DIRECTORY)
    try:
        for name in path.relative_to(workspace).parts[:-1]:
            inner = os.open(name, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        yield directory
    finally:
        os.close(directory)

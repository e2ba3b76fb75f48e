"""Prepare paths of a workspace while commands run: mount points, links in place of mounts, files that are restored.

Laws: no path is reached through a symlink, since a command may have put it there; what was made is removed when the last
command that needs it has ended.
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
"""Kind, content and mode of a file."""

_lock = threading.Lock()
_made: Counter[Path] = Counter()


def check_paths(places: Iterable[str], workspace: Path) -> list[PurePosixPath]:
    """Sort the paths, parents first. Raises CallerError for one that leads out of the workspace or through a symlink."""
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
    """The parents of a path in the workspace, outermost first, and the path."""
    return [*reversed(place.parents), place][1:]


@contextmanager
def make_directories(workspace: Path, places: Sequence[PurePosixPath]) -> Iterator[None]:
    """Make an empty directory at each path where nothing is."""
    with _hold(workspace, [(step, None) for place in places for step in path_steps(place)]):
        yield


@contextmanager
def make_links(workspace: Path, bind_mounts: Mapping[str, Path]) -> Iterator[None]:
    """Make symlinks in place of bind mounts, where nothing is. Raises CallerError as `check_paths` does."""
    places = {PurePosixPath(place): Path(os.path.realpath(target)) for place, target in bind_mounts.items()}
    parents = check_paths({str(place.parent) for place in places} - {"."}, workspace)
    with make_directories(workspace, parents), _hold(workspace, places.items()):
        yield


@contextmanager
def _hold(workspace: Path, places: Iterable[tuple[PurePosixPath, Path | None]]) -> Iterator[None]:
    """Make symlinks to targets, and empty directories where the target is None."""
    held: list[tuple[Path, Path | None]] = []
    try:
        with _lock:
            for place, target in places:
                path = workspace / place
                # What another command has made is there, but will be removed.
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
    """Restore files of the workspace afterwards, where they cannot be made read-only; remove those that were not there.

    Raises:
        CallerError: A file has more than 1 MiB.
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
    """Remove what was made, unless something else is there now."""
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
    """Open the parent directory of a path, step by step and through no symlink."""
    directory = os.open(workspace, _DIRECTORY)
    try:
        for name in path.relative_to(workspace).parts[:-1]:
            inner = os.open(name, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        yield directory
    finally:
        os.close(directory)

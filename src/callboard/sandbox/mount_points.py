"""Prepare paths of a workspace while commands run: mount points, links instead of mounts, files that are restored.

Laws: no path is reached through a symlink, since a command may have made the link. Mount points and links are removed
when the last command that needs them has ended.

`BubblewrapMounts` lists the file system of a bubblewrap sandbox as arguments; later mounts hide earlier ones.
Law: only paths that are named here exist in the sandbox.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from callboard.errors import CallerError
from callboard.sandbox.policy import Confinement
from callboard.sandbox.readable_paths import SYSTEM, SYSTEM_FILES, find_readable_paths, interpreter_paths, is_reachable

HOME = Path("/home/callboard")
"""The private home."""

PRIVATE = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"), HOME)  # noqa: S108  # the sandbox's own
"""Made for each command, and removed afterwards."""

HIDDEN = (
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
)
"""Files that reveal the machine and its other users. The rest of /proc is read-only."""

_PROXY, _RELAY = "/run/callboard/proxy", "/run/callboard/relay.py"

# In place of the machine's, which would tell its users. Some programs fail for a user without a name.
FILES = {
    "/etc/passwd": "root:x:0:0::/:/bin/sh\ncallboard:x:{user}:{group}::{home}:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": "root:x:0:\ncallboard:x:{group}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
}


class BubblewrapMounts:
    """Collects `arguments`. If `staged`, the launcher shows the sources in /tmp, by their number in `sources`."""

    def __init__(self, *, staged: bool) -> None:
        self.arguments: list[str] = []
        self.sources: list[str] = []
        self._staged = staged

    def add_system(self, confinement: Confinement) -> None:
        """Add the machine's programs, and the private directories."""
        for place in SYSTEM:
            if place.is_symlink():
                self.arguments += ["--symlink", str(place.readlink()), str(place)]
            elif os.path.isdir(place):  # noqa: PTH112  # pathlib's raises for what may not be looked at
                self.arguments += ["--ro-bind", str(place), str(place)]
        for place in SYSTEM_FILES:
            if is_reachable(place):
                self.arguments += ["--ro-bind", str(place), str(place)]
        self._add_proc()
        self.arguments += ["--dev", "/dev"]
        for place in PRIVATE:
            self.arguments += ["--perms", "1777", "--size", str(confinement.limits.file_bytes), "--tmpfs", str(place)]

    def _add_proc(self) -> None:
        """Add /proc, read-only: root could write its settings, which are the machine's, even without capabilities."""
        self.arguments += ["--proc", "/proc"]
        for hidden in HIDDEN:
            if Path(hidden).is_dir():
                self.arguments += ["--tmpfs", hidden, "--remount-ro", hidden]
            elif is_reachable(Path(hidden)):
                self.arguments += ["--ro-bind", os.devnull, hidden]
        self.arguments += ["--remount-ro", "/proc"]

    def add_workspace(
        self,
        confinement: Confinement,
        read_only: Sequence[PurePosixPath],
        bind_mounts: Sequence[PurePosixPath],
        hidden: Sequence[PurePosixPath] = (),
    ) -> None:
        """Add the paths of the confinement, which must be absolute and free of symlinks."""
        workspace = confinement.workspace
        writable = [workspace, *([confinement.home] if confinement.home else [])]
        # First, so that paths beneath them get no source of their own.
        for place in writable:
            self._source(place)
        for place in find_readable_paths(confinement):
            if not any(place.is_relative_to(each) for each in writable):
                self._bind(place)
        for place in sorted(writable):
            self._bind(place, option="--bind")
        for place in interpreter_paths():
            # Read-only: else a command could replace code that we execute.
            if is_reachable(place) and any(place.is_relative_to(each) for each in writable):
                self._bind(place)
        for step in sorted({step for place in (*read_only, *hidden) for step in path_steps(place)[:-1]}):
            # A directory that could be renamed would take the read-only path with it; a mount cannot be renamed.
            self._bind(workspace / step, option="--bind")
        for inside in read_only:
            self._bind(workspace / inside)
        for inside in bind_mounts:
            self._bind(workspace / inside, confinement.bind_mounts[str(inside)])
        for inside in hidden:
            covered = str(workspace / inside)
            if (workspace / inside).is_dir():
                self.arguments += ["--tmpfs", covered, "--remount-ro", covered]
            else:
                # Bind mounts forbid devices, so opening it is refused.
                self.arguments += ["--ro-bind", os.devnull, covered]

    def add_proxy(self, socket: Path, command: Sequence[str]) -> list[str]:
        """Add the proxy's socket and the relay; return the command that starts the relay first."""
        self._bind(Path(_PROXY), socket)
        self._bind(Path(_RELAY), Path(__file__).with_name("relay.py"))
        return [os.path.realpath(sys.executable), "-I", "-S", _RELAY, _PROXY, *command]

    def seal(self, workspace: Path) -> None:
        """Make the rest read-only."""
        self.arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(workspace)]

    def _bind(self, place: Path, source: Path | None = None, *, option: str = "--ro-bind") -> None:
        self.arguments += [option, self._source(source or place), str(place)]

    def _source(self, path: Path) -> str:
        real = Path(os.path.realpath(path))
        if not self._staged:
            return str(real)
        for number, taken in enumerate(self.sources):
            if real.is_relative_to(taken):
                return str(Path("/tmp", str(number), real.relative_to(taken)))  # noqa: S108  # the launcher's own
        self.sources.append(str(real))
        return f"/tmp/{len(self.sources) - 1}"  # noqa: S108  # as above


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
                raise CallerError("not a directory", path=str(workspace / step))
    return paths


def path_steps(place: PurePosixPath) -> list[PurePosixPath]:
    """Return the parents of a path in the workspace, outermost first, and the path."""
    return [*reversed(place.parents), place][1:]


@contextmanager
def make_directories(workspace: Path, places: Sequence[PurePosixPath]) -> Iterator[None]:
    """Make an empty directory at each path where nothing is."""
    with _hold(workspace, [(step, None) for place in places for step in path_steps(place)]):
        yield


@contextmanager
def make_links(workspace: Path, bind_mounts: Mapping[str, Path]) -> Iterator[None]:
    """Make symlinks instead of bind mounts, at unused paths. Raises CallerError as `check_paths` does."""
    places = {PurePosixPath(place): Path(os.path.realpath(target)) for place, target in bind_mounts.items()}
    parents = check_paths({str(place.parent) for place in places} - {"."}, workspace)
    with make_directories(workspace, parents), _hold(workspace, places.items()):
        yield


@contextmanager
def _hold(workspace: Path, places: Iterable[tuple[PurePosixPath, Path | None]]) -> Iterator[None]:
    held: list[tuple[Path, Path | None]] = []
    try:
        with _lock:
            for place, target in places:
                path = workspace / place
                # A path that another command has made exists, but will be removed.
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
    """Restore files of the workspace afterwards, if they cannot be made read-only; remove new ones.

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

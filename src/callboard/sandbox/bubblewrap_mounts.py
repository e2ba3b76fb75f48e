"""The file system of a bubblewrap sandbox, as bubblewrap's arguments. The order matters: later mounts hide earlier ones.

Law: only paths that are named here exist in the sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from callboard.sandbox.mount_points import path_steps
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
"""Files that tell of the machine and its other users. The rest of /proc is read-only."""

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

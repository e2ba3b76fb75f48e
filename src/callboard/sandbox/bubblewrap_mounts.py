"""What there is in a sandbox of bubblewrap, as the arguments that say so.

Owns the order in which it is put together: what comes later hides what was there before. What may be read is
`places`' business.
Law: a path is there only if it is named here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from callboard.sandbox.mount_points import steps_to
from callboard.sandbox.policy import Confinement
from callboard.sandbox.readable_paths import SYSTEM, SYSTEM_FILES, can_be_reached, interpreter_places, readable_places

HOME = Path("/home/callboard")
"""Where the private home is."""

PRIVATE = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"), HOME)  # noqa: S108  # the sandbox's own
"""What is made anew for each command, and goes away."""

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
"""What tells of the machine, and of its other users. All that is left of /proc is read-only."""

_PROXY, _RELAY = "/run/callboard/proxy", "/run/callboard/relay.py"

# In place of the machine's: names of users are nobody's business, and a user without a name is an error to some.
FILES = {
    "/etc/passwd": "root:x:0:0::/:/bin/sh\ncallboard:x:{user}:{group}::{home}:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": "root:x:0:\ncallboard:x:{group}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
}


class View:
    """Collects `arguments`. If `staged`, the sources are not at their own places, but by their number in /tmp."""

    def __init__(self, *, staged: bool) -> None:
        self.arguments: list[str] = []
        self.sources: list[str] = []
        self._staged = staged

    def system(self, confinement: Confinement) -> None:
        """The machine's programs, and what is made anew for each command."""
        for place in SYSTEM:
            if place.is_symlink():
                self.arguments += ["--symlink", str(place.readlink()), str(place)]
            elif os.path.isdir(place):  # noqa: PTH112  # pathlib's raises for what may not be looked at
                self.arguments += ["--ro-bind", str(place), str(place)]
        for place in SYSTEM_FILES:
            if can_be_reached(place):
                self.arguments += ["--ro-bind", str(place), str(place)]
        self._processes()
        self.arguments += ["--dev", "/dev"]
        for place in PRIVATE:
            self.arguments += ["--perms", "1777", "--size", str(confinement.limits.file), "--tmpfs", str(place)]

    def _processes(self) -> None:
        """/proc, where nothing can be written: its settings are the machine's, and root's without any capability."""
        self.arguments += ["--proc", "/proc"]
        for hidden in HIDDEN:
            if Path(hidden).is_dir():
                self.arguments += ["--tmpfs", hidden, "--remount-ro", hidden]
            elif can_be_reached(Path(hidden)):
                self.arguments += ["--ro-bind", os.devnull, hidden]
        self.arguments += ["--remount-ro", "/proc"]

    def own(
        self,
        confinement: Confinement,
        kept: Sequence[PurePosixPath],
        borrowed: Sequence[PurePosixPath],
        hidden: Sequence[PurePosixPath] = (),
    ) -> None:
        """What the confinement names. Its paths must be absolute, and without links."""
        workspace = confinement.workspace
        writable = [workspace, *([confinement.home] if confinement.home else [])]
        # First, so that what is beneath them is not taken for a source of its own.
        for place in writable:
            self._source(place)
        for place in readable_places(confinement):
            if not any(place.is_relative_to(each) for each in writable):
                self._show(place)
        for place in sorted(writable):
            self._show(place, option="--bind")
        for place in interpreter_places():
            # Whoever could change it would be run by us.
            if can_be_reached(place) and any(place.is_relative_to(each) for each in writable):
                self._show(place)
        for step in sorted({step for place in (*kept, *hidden) for step in steps_to(place)[:-1]}):
            # Renamed, it would take what is kept with it; a mount cannot be.
            self._show(workspace / step, option="--bind")
        for inside in kept:
            self._show(workspace / inside)
        for inside in borrowed:
            self._show(workspace / inside, confinement.borrowed[str(inside)])
        for inside in hidden:
            covered = str(workspace / inside)
            if (workspace / inside).is_dir():
                self.arguments += ["--tmpfs", covered, "--remount-ro", covered]
            else:
                # A device is not opened there: reading is refused.
                self.arguments += ["--ro-bind", os.devnull, covered]

    def proxy(self, socket: Path, command: Sequence[str]) -> list[str]:
        """Shows the proxy; the command that has it, if the relay is shown too."""
        self._show(Path(_PROXY), socket)
        self._show(Path(_RELAY), Path(__file__).with_name("relay.py"))
        return [os.path.realpath(sys.executable), "-I", "-S", _RELAY, _PROXY, *command]

    def closed(self, workspace: Path) -> None:
        """What is left of the tree is nobody's to write to."""
        self.arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(workspace)]

    def _show(self, place: Path, source: Path | None = None, *, option: str = "--ro-bind") -> None:
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

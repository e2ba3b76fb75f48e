"""Run commands in namespaces of their own, by bubblewrap.

When the first process of a pid namespace ends, the kernel ends all others.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from callboard.errors import SandboxUnavailable
from callboard.sandbox.bundled_bubblewrap import start_watcher
from callboard.sandbox.mount_points import FILES, HOME, BubblewrapMounts, check_paths, make_directories
from callboard.sandbox.policy import Confinement, Outcome
from callboard.sandbox.process import build_environment, gate_command, observe_commands, run_guarded
from callboard.sandbox.proxy import open_proxy
from callboard.sandbox.readable_paths import resolve_writable_places
from callboard.sandbox.seccomp import seccomp_filter
from callboard.sandbox.supervised_process import BLOCK, FIRST_DESCRIPTOR

_OPTIONS = [
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try",
    "--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
]  # fmt: skip

Way: TypeAlias = Literal["mapped", "nested", "direct"]
"""How bubblewrap is started: as an unused user with the owner's files mapped; in our own user namespace, with read-only
devices; or directly. See `launcher`.
"""
ROOTS: Final[tuple[Way, ...]] = ("mapped", "nested")
"""Not `direct`: root owns the devices that are shown, and could change their permissions."""
USERS: Final[tuple[Way, ...]] = ("nested", "direct")

_USER = 1000
"""The user that root becomes inside."""
_FREE_USERS = 0x40000000
"""From here to twice that are user numbers that no machine assigns."""
_COUNTS_NAMESPACE = (5, 14)
"""First kernel that counts only a user namespace's processes for a limit on processes (user_namespaces(7))."""
_SIGNALLED = 128
_OWN_PROCESSES = 3
"""The supervisor, bubblewrap, and the first process inside."""


class Bubblewrap:
    """Args:
    program: The path of bwrap.
    tree: A directory that holds the program and its libraries; None where it needs none.
    ways: The ways to start it, of which the first that works is used; by default those for this user.
    """

    name = "bubblewrap"

    def __init__(self, program: Path, *, tree: Path | None = None, ways: Sequence[Way] = ()) -> None:
        self.program = program
        self.tree = tree
        self._ways = tuple(ways) or (ROOTS if os.getuid() == 0 else USERS)
        self._reasons: tuple[str, ...] = ()

    @property
    def is_bundled(self) -> bool:
        """Whether it is the wheel's."""
        return self.tree is not None

    @property
    def way(self) -> Way:
        """How commands are started; known for sure after the first one."""
        return self._ways[0]

    @property
    def notice(self) -> str:
        if os.getuid() or self.way == "mapped":
            return ""
        because = f" ({'; '.join(self._reasons)})" if self._reasons else ""
        return f"commands run as root, though without its capabilities; processes are counted, not limited{because}"

    @property
    def open(self) -> tuple[str, ...]:
        return ()

    @property
    def visible(self) -> tuple[str, ...]:
        """Harmless effects that are visible outside."""
        if self.way == "direct":
            return ("the times of /dev/null and other devices can be set to now, as by every user of this machine",)
        return ()

    @observe_commands
    async def run(self, command: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Outcome:
        confined = resolve_writable_places(confinement)
        reasons: list[str] = []
        for way in self._ways:
            try:
                outcome, began = await self._run(way, command, confined, stdin)
            except SandboxUnavailable as error:
                reasons.append(f"{way}: {error.message}")
                continue
            if began:
                if reasons:
                    # A way that failed is not tried again; the notice has the reason.
                    self._ways, self._reasons = self._ways[self._ways.index(way) :], (*self._reasons, *reasons)
                return outcome
            text = " ".join(outcome.output.decode(errors="replace").split())
            reasons.append(f"{way}: {text or f'exit code {outcome.code}'}")
        raise SandboxUnavailable(f"bubblewrap refuses: {'; '.join(reasons)}", path=str(self.program))

    async def _run(self, way: Way, command: Sequence[str], confined: Confinement, stdin: bytes) -> tuple[Outcome, bool]:
        """Also whether the command began; if not, the output says why."""
        workspace, home = confined.workspace, confined.home
        read_only, bind_mounts = (
            check_paths(confined.read_only, workspace),
            check_paths(confined.bind_mounts, workspace),
        )
        async with AsyncExitStack() as stack:
            hidden = check_paths(confined.hidden, workspace)
            stack.enter_context(make_directories(workspace, [*read_only, *bind_mounts, *hidden]))
            mounts = BubblewrapMounts(staged=way == "mapped")
            mounts.add_system(confined)
            mounts.add_workspace(confined, read_only, bind_mounts, hidden)
            inner = command
            if confined.hosts:
                inner = mounts.add_proxy(await stack.enter_async_context(open_proxy(confined.hosts)), command)
            mounts.seal(workspace)
            status, files = stack.enter_context(_inherited_files(home or HOME))
            outcome = await run_guarded(
                [
                    str(self.program),
                    *self._options(),
                    *files.arguments,
                    *mounts.arguments,
                    "--",
                    *gate_command(inner, confined.limits, processes=_process_limit(way, confined), stdin=stdin),
                ],
                self._launch(way, mounts),
                descriptors=files.descriptors,
                own_processes=_OWN_PROCESSES,
                environment=build_environment(confined, home or HOME),
                stdin=stdin,
                limits=confined.limits,
                writable=[workspace, *([home] if home else [])],
                output_file=confined.output_file,
            )
            # A failure before the command began: of bubblewrap, or of the dynamic loader.
            failed = outcome.code is not None and 0 < outcome.code < _SIGNALLED and not _has_begun(status)
            return outcome, not failed

    def _options(self) -> list[str]:
        # This path does not exist, and bubblewrap skips it: it only marks the command line.
        mark = f"/{start_watcher('')}"
        user = ["--uid", str(_USER), "--gid", str(_USER)] if os.getuid() == 0 else []
        return [*_OPTIONS, "--ro-bind-try", mark, mark, *user]

    def _launch(self, way: Way, mounts: BubblewrapMounts) -> list[str]:
        match way:
            case "direct":
                return []
            case "nested":
                return ["launch=nested"]
            case "mapped":
                user = _FREE_USERS + secrets.randbelow(_FREE_USERS)
                sources = [f"source={source}" for source in mounts.sources]
                return ["launch=mapped", f"user={user}", f"tree={self.tree or ''}", *sources]


def _process_limit(way: Way, confinement: Confinement) -> int | None:
    """Return the limit on processes; None for unmapped root, and on old kernels, which count all of the user's."""
    if os.getuid() == 0:
        return confinement.limits.processes if way == "mapped" else None
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    apart = release and (int(release[1]), int(release[2])) >= _COUNTS_NAMESPACE
    return confinement.limits.processes if apart else None


class _Status(msgspec.Struct, rename="kebab"):
    """A line of bubblewrap's --json-status-fd."""

    exit_code: int | None = None


class _Files:
    """Files that bubblewrap inherits, and the options that name them."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.descriptors: list[int] = []

    def add(self, option: str, descriptor: int, *operands: str) -> None:
        self.arguments += [option, str(FIRST_DESCRIPTOR + len(self.descriptors)), *operands]
        self.descriptors.append(descriptor)


@contextmanager
def _inherited_files(home: Path) -> Iterator[tuple[int, _Files]]:
    """The end of a pipe from which to read bubblewrap's status, and the files."""
    files = _Files()
    status, writing = os.pipe()
    try:
        files.add("--json-status-fd", writing)
        user, group = (os.getuid(), os.getgid()) if os.getuid() else (_USER, _USER)
        files.add("--seccomp", _make_memfd(seccomp_filter(platform.machine(), namespaces=True)))
        for place, text in FILES.items():
            files.add("--ro-bind-data", _make_memfd(text.format(user=user, group=group, home=home).encode()), place)
        yield status, files
    finally:
        for descriptor in (status, *files.descriptors):
            os.close(descriptor)


def _has_begun(status: int) -> bool:
    """Return whether the command was started; else the output is bubblewrap's. Its processes have ended."""
    lines = os.read(status, BLOCK).splitlines()
    return any(msgspec.json.decode(line, type=_Status).exit_code is not None for line in lines)


def _make_memfd(data: bytes) -> int:
    descriptor = os.memfd_create("callboard")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor

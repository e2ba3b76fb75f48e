"""Run commands in namespaces of their own, by bubblewrap.

Law: when the first process of a pid namespace ends, the kernel ends all others. We kill it by a pidfd, not by its
number, which another process could have by then.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import secrets
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
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

_OPTIONS = [
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try",
    "--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
]  # fmt: skip
_LAUNCHER = Path(__file__).with_name("launcher.py")

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
_STATUS_SECONDS = 1
"""Seconds that bubblewrap has to report its first process."""


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
            outcome, began = await self._run(way, command, confined, stdin)
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
            guard = await stack.enter_async_context(_open_guard(home or HOME))
            outcome = await run_guarded(
                [
                    *self._launch(way, mounts),
                    *guard.arguments,
                    *mounts.arguments,
                    "--",
                    *gate_command(inner, confined.limits, processes=_process_limit(way, confined), stdin=stdin),
                ],
                guard,
                directory=Path("/"),
                environment=build_environment(confined, home or HOME),
                stdin=stdin,
                limits=confined.limits,
                writable=[workspace, *([home] if home else [])],
                output_file=confined.output_file,
            )
            # A failure before the command began: of bubblewrap, the launcher, or the dynamic loader.
            failed = outcome.code is not None and 0 < outcome.code < _SIGNALLED and not await guard.has_begun()
            return outcome, not failed

    def _launch(self, way: Way, mounts: BubblewrapMounts) -> list[str]:
        # This path does not exist, and bubblewrap skips it: it only marks the command line.
        mark = f"/{start_watcher('')}"
        program = [str(self.program), *_OPTIONS, "--ro-bind-try", mark, mark]
        if os.getuid() == 0:
            program += ["--uid", str(_USER), "--gid", str(_USER)]
        launcher = [os.path.realpath(sys.executable), "-I", "-S", str(_LAUNCHER), way]
        match way:
            case "direct":
                return program
            case "nested":
                return [*launcher, *program]
            case "mapped":
                user = _FREE_USERS + secrets.randbelow(_FREE_USERS)
                return [*launcher, str(user), str(self.tree or ""), *mounts.sources, "--", *program]


def _process_limit(way: Way, confinement: Confinement) -> int | None:
    """Return the limit on processes; None for unmapped root, and on old kernels, which count all of the user's."""
    if os.getuid() == 0:
        return confinement.limits.processes if way == "mapped" else None
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    apart = release and (int(release[1]), int(release[2])) >= _COUNTS_NAMESPACE
    return confinement.limits.processes if apart else None


class _Status(msgspec.Struct, rename="kebab"):
    """A line of bubblewrap's --json-status-fd."""

    child_pid: int | None = None
    exit_code: int | None = None


class _BubblewrapGuard:
    own_processes = 2  # bubblewrap, and the first process inside

    def __init__(self, status: asyncio.StreamReader) -> None:
        self.arguments: list[str] = []
        self.descriptors: list[int] = []
        self._status = status
        self._first: asyncio.Task[int | None] | None = None

    def pass_descriptor(self, option: str, descriptor: int, *operands: str) -> None:
        self.descriptors.append(descriptor)
        self.arguments += [option, str(descriptor), *operands]

    async def attach(self, process: Process) -> None:
        await asyncio.wait({self._handle()})

    async def kill_all(self, process: Process) -> None:
        done, _ = await asyncio.wait({self._handle()}, timeout=_STATUS_SECONDS)
        handle = done.pop().result() if done else None
        if handle is None:
            with suppress(ProcessLookupError):
                process.kill()
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        await _wait_readable(handle)

    async def has_begun(self) -> bool:
        """Return whether the command was started; else the output is bubblewrap's."""
        lines = (await self._status.read()).splitlines()
        return any(msgspec.json.decode(line, type=_Status).exit_code is not None for line in lines)

    def close(self) -> None:
        self._close_descriptors()
        if self._first and not self._first.cancel():
            handle = self._first.result()
            if handle is not None:
                os.close(handle)

    def _handle(self) -> asyncio.Task[int | None]:
        self._close_descriptors()
        if self._first is None:
            self._first = asyncio.create_task(self._first_process())
        return self._first

    async def _first_process(self) -> int | None:
        line = await self._status.readline()
        process = msgspec.json.decode(line, type=_Status).child_pid if line else None
        if process is None:
            return None
        try:
            return os.pidfd_open(process)
        except OSError:
            return None

    def _close_descriptors(self) -> None:
        """Close our copies; bubblewrap has its own by now."""
        while self.descriptors:
            os.close(self.descriptors.pop())


@asynccontextmanager
async def _open_guard(home: Path) -> AsyncIterator[_BubblewrapGuard]:
    reading, writing = os.pipe()
    status = asyncio.StreamReader()
    guard = _BubblewrapGuard(status)
    guard.pass_descriptor("--json-status-fd", writing)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(status),
        open(reading, "rb", buffering=0),  # noqa: ASYNC230, PTH123, SIM115  # a pipe, closed with its transport
    )
    try:
        user, group = (os.getuid(), os.getgid()) if os.getuid() else (_USER, _USER)
        guard.pass_descriptor("--seccomp", _make_memfd(seccomp_filter(platform.machine(), namespaces=True)))
        for place, text in FILES.items():
            guard.pass_descriptor(
                "--ro-bind-data", _make_memfd(text.format(user=user, group=group, home=home).encode()), place
            )
        yield guard
    finally:
        guard.close()
        transport.close()


def _make_memfd(data: bytes) -> int:
    descriptor = os.memfd_create("callboard")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _wait_readable(descriptor: int) -> None:
    """Wait until a descriptor is readable, as a pidfd is when its process has ended."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)

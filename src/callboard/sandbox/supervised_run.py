"""Run commands under a supervisor process, without namespaces: for Landlock, and for no confinement at all.

Law: the supervisor ends, and all processes with it, when we close its lifeline, which also happens when we die.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from callboard.errors import SandboxUnavailable
from callboard.sandbox.mount_points import make_links
from callboard.sandbox.policy import Confinement, Outcome
from callboard.sandbox.process import build_environment, gate_command, observe_commands, run_guarded
from callboard.sandbox.readable_paths import resolve_writable_places

PROGRAM = [os.path.realpath(sys.executable), "-I", "-S", str(Path(__file__).with_name("supervisor.py"))]


class _SupervisorGuard:
    own_processes = 1  # the supervisor

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.lifeline = self._theirs.fileno()
        self.descriptors = [self.lifeline, *descriptors]

    async def attach(self, process: Process) -> None:
        self._theirs.close()

    async def kill_all(self, process: Process) -> None:
        self._theirs.close()
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def read_error(self) -> str:
        """Return the reason why the command could not be started, "" if it was."""
        self._ours.setblocking(False)
        with suppress(OSError):
            return self._ours.recv(4096).decode(errors="replace")
        return ""

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@contextmanager
def private_directories() -> Iterator[tuple[Path, Path]]:
    """Temporary directories: a home, and one for temporary files."""
    directory = Path(os.path.realpath(tempfile.mkdtemp(prefix="callboard-")))
    try:
        home, temporary = directory / "home", directory / "tmp"
        home.mkdir()
        temporary.mkdir()
        yield home, temporary
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def run_supervised(
    command: Sequence[str],
    confinement: Confinement,
    *,
    home: Path,
    temporary: Path,
    stdin: bytes,
    restrictions: Sequence[str] = (),
    descriptors: Sequence[int] = (),
) -> Outcome:
    """Run a command; the supervisor inherits `descriptors`, which the restrictions name. Raises SandboxUnavailable."""
    guard = _SupervisorGuard(descriptors)
    try:
        processes = await asyncio.to_thread(_process_limit, confinement)
        gated = gate_command(command, confinement.limits, processes=processes, stdin=stdin)
        outcome = await run_guarded(
            [*PROGRAM, str(guard.lifeline), *restrictions, "--", *gated],
            guard,
            directory=confinement.workspace,
            environment=build_environment(confinement, home, TMPDIR=str(temporary)),
            stdin=stdin,
            limits=confinement.limits,
            writable=[confinement.workspace, home, temporary],
            output_file=confinement.output_file,
        )
        error = guard.read_error()
    finally:
        guard.close()
    if error:
        raise SandboxUnavailable(f"this machine refuses: {error}")
    return outcome


def _process_limit(confinement: Confinement) -> int | None:
    """The kernel's limit counts all processes and threads of a user, so those that run already are added. Root has none."""
    user = os.getuid()
    if user == 0 or not sys.platform.startswith("linux"):
        return None
    running = 0
    for process in Path("/proc").glob("[0-9]*/task"):
        with suppress(OSError):
            status = process.stat()
            # Two of a directory's links are its own.
            running += (status.st_nlink - 2) * (status.st_uid == user)
    return running + confinement.limits.processes


class Unconfined:
    """No confinement: for a machine that is a sandbox itself. Limits and the end of all processes hold."""

    name = "none"
    notice = "no sandbox: commands can read, change and reach whatever you can"
    open = ("everything that you can change",)
    visible = ("everything that you can read",)

    @observe_commands
    async def run(self, command: Sequence[str], confinement: Confinement, *, stdin: bytes = b"") -> Outcome:
        confined = resolve_writable_places(confinement)
        with make_links(confined.workspace, confined.bind_mounts), private_directories() as (home, temporary):
            return await run_supervised(command, confined, home=confined.home or home, temporary=temporary, stdin=stdin)

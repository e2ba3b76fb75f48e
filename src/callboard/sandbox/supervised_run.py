"""Run commands without namespaces: for Landlock, and for no confinement at all."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from callboard.sandbox.mount_points import make_links
from callboard.sandbox.policy import Confinement, Outcome
from callboard.sandbox.process import build_environment, gate_command, observe_commands, run_guarded
from callboard.sandbox.readable_paths import resolve_writable_places
from callboard.sandbox.supervised_process import FIRST_DESCRIPTOR


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
    seccomp: bytes = b"",
) -> Outcome:
    """Run a command, if `seccomp` is not empty with this filter and these restrictions. Raises SandboxUnavailable."""
    processes = await asyncio.to_thread(_process_limit, confinement)
    descriptors = []
    if seccomp:
        reading, writing = os.pipe()
        os.write(writing, seccomp)
        os.close(writing)
        descriptors.append(reading)
        restrictions = [*restrictions, f"seccomp={FIRST_DESCRIPTOR}"]
    return await run_guarded(
        gate_command(command, confinement.limits, processes=processes, stdin=stdin),
        [f"directory={confinement.workspace}", *restrictions],
        descriptors=descriptors,
        own_processes=1,  # the supervisor
        environment=build_environment(confinement, home, TMPDIR=str(temporary)),
        stdin=stdin,
        limits=confinement.limits,
        writable=[confinement.workspace, home, temporary],
        output_file=confinement.output_file,
    )


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

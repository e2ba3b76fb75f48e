"""Find the sandbox of this machine, and report all available sandboxes and their limits.

A sandbox counts only if it has run a command: bubblewrap may be installed while user namespaces are forbidden, and
Landlock may be turned off in the kernel.
Law: we run only a bubblewrap that root alone can have written, or whose SHA-256 is known. PATH is not searched.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from callboard.errors import CallerError, SandboxUnavailable
from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.bundled_bubblewrap import PROGRAM as BUNDLED
from callboard.sandbox.bundled_bubblewrap import VERIFIED, bundled_bubblewrap
from callboard.sandbox.landlock import Landlock
from callboard.sandbox.policy import Confinement, Sandbox
from callboard.sandbox.supervised_process import PROGRAM
from callboard.sandbox.supervised_run import Unconfined

SYSTEM_BUBBLEWRAPS: Final = tuple(
    Path(directory, "bwrap")
    for directory in ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin", "/run/wrappers/bin")
)
"""Paths at which systems install it. PATH is not searched: it may include a repository or relative directories."""

INSTALL: Final = "apt install bubblewrap, or pip install 'callboard[coding]', which brings one"

_NAMES = ("", "bubblewrap", "landlock", "none")

# Opening a setting for appending does not change it.
_VERIFY_SCRIPT = """
echo > "$1"
for setting in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do
    (: >> "$setting") 2>/dev/null && echo "$setting is writable"
done
echo ran
"""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One of the sandboxes that a machine may have.

    `origin` is the path or the wheel. Either `sandbox` is set, or `reason` says why it is unavailable.
    """

    label: str
    origin: str = ""
    sandbox: Sandbox | None = None
    reason: str = ""


_candidates: dict[str, Candidate] = {}


async def find_sandbox(
    *, unconfined: bool = False, prefer: str = "", unattended: bool = False, allow_weaker: bool = False
) -> Sandbox:
    """Return the best sandbox of this machine: bubblewrap, otherwise Landlock. The choice holds for the process.

    Args:
        unconfined: Take one that confines nothing; only on this request.
        prefer: The name of the only one to try; "" for any.
        unattended: Nobody looks at the commands before they run. Then a sandbox is refused that lets commands change
            something outside of the workspace.
        allow_weaker: Take such a sandbox all the same.

    Raises:
        SandboxUnavailable: There is none, or none that is good enough; the hint says what to install.
    """
    if prefer not in _NAMES:
        raise CallerError("no such sandbox", path=prefer, hint=f"it is one of {', '.join(_NAMES[1:])}")
    if sys.platform == "win32":
        raise SandboxUnavailable("commands are run on Linux and macOS only")
    if unconfined or prefer == "none":
        return Unconfined()
    reasons = []
    async for candidate in try_candidates():
        if prefer and not candidate.label.startswith(prefer):
            continue
        if candidate.sandbox is None:
            reasons.append(f"{candidate.label}: {candidate.reason}")
        elif unattended and not allow_weaker and candidate.sandbox.open:
            reasons.append(f"{candidate.label} leaves open: {'; '.join(candidate.sandbox.open)}")
        else:
            return candidate.sandbox
    if any(" leaves open: " in reason for reason in reasons):
        raise SandboxUnavailable(
            "; ".join(["no sandbox here is good enough for work that nobody watches", *reasons]),
            hint=f"{INSTALL}; or accept the weaker one with --allow-weaker-sandbox",
        )
    raise SandboxUnavailable(
        "; ".join(["commands cannot be confined on this machine", *reasons]),
        hint=f"{INSTALL}; or pass --no-sandbox where the machine itself is a sandbox",
    )


async def try_candidates() -> AsyncIterator[Candidate]:
    """Every sandbox that this machine may have, best first; each is tried once in this process."""
    if sys.platform != "linux":
        return
    for label, make in (
        ("bubblewrap (system)", _find_system_bubblewrap),
        ("bubblewrap (bundled)", _find_bundled_bubblewrap),
        ("landlock", _find_landlock),
    ):
        if label not in _candidates:
            try:
                sandbox = await make()
                await verify(sandbox)
            except SandboxUnavailable as error:
                _candidates[label] = Candidate(label=label, origin=error.path or "", reason=error.message)
            else:
                origin = "the kernel's"
                if isinstance(sandbox, Bubblewrap):
                    origin = VERIFIED if sandbox.is_bundled else str(sandbox.program)
                _candidates[label] = Candidate(label=label, origin=origin, sandbox=sandbox)
        yield _candidates[label]


async def _find_system_bubblewrap() -> Bubblewrap:
    for program in SYSTEM_BUBBLEWRAPS:
        if program.exists():  # one system call
            return Bubblewrap(check_owner(program))
    raise SandboxUnavailable("is not installed")


async def _find_bundled_bubblewrap() -> Bubblewrap:
    tree = await asyncio.to_thread(bundled_bubblewrap)
    if tree is None:
        raise SandboxUnavailable("the extra `coding` is not installed")
    return Bubblewrap(tree / BUNDLED, tree=tree)


async def _find_landlock() -> Landlock:
    process = await asyncio.create_subprocess_exec(*PROGRAM, "abi", stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    version, _ = await process.communicate()
    if not version.isdigit() or not int(version):
        raise SandboxUnavailable("the kernel has none, or has it turned off")
    return Landlock(int(version))


def check_owner(program: Path) -> Path:
    """Return the program's real path, if only root can have written it. Raises SandboxUnavailable."""
    place = Path(os.path.realpath(program))
    for each in (place, *place.parents):
        status = each.stat()
        others = stat.S_IWGRP | stat.S_IWOTH
        # In a directory with the sticky bit, such as the Nix store, other users cannot replace root's files.
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or (status.st_mode & others and not is_sticky):
            raise SandboxUnavailable("can be changed by others than root, and is not run", path=str(each))
    if not stat.S_ISREG(place.stat().st_mode) or not os.access(place, os.X_OK):
        raise SandboxUnavailable("is no program", path=str(place))
    return place


async def verify(sandbox: Sandbox) -> None:
    """Run a command that tries to write outside, and to the kernel's settings. Raises SandboxUnavailable if it can."""
    with tempfile.TemporaryDirectory(prefix="callboard-") as directory:
        workspace, outside = Path(directory, "workspace"), Path(directory, "outside")
        workspace.mkdir()  # noqa: ASYNC240  # one system call
        outcome = await sandbox.run(["sh", "-c", _VERIFY_SCRIPT, "sh", str(outside)], Confinement(workspace=workspace))
        lines = outcome.output.decode(errors="replace").splitlines()
        if outside.exists():  # noqa: ASYNC240  # as above
            raise SandboxUnavailable(f"{sandbox.name} does not confine: a file outside was written")
        wrong = [line for line in lines if line.endswith(" is writable")]
        if wrong or lines[-1:] != ["ran"]:
            message = "; ".join(wrong or lines) or f"exit code {outcome.code}"
            raise SandboxUnavailable(f"{sandbox.name} does not confine: {message}")


class SandboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that a machine may have.

    `state` is `used`, `works` (a fallback for the used sandbox), `unavailable`, or `weaker` (jobs use it only if the
    user allows it). `reason` says why it is unavailable, `origin` where it comes from. `way` is how bubblewrap is
    started. `open` is what a command can change outside of the workspace, `visible` what else it can see or do.
    """

    name: str
    state: Literal["used", "works", "weaker", "unavailable"]
    origin: str = ""
    way: str = ""
    reason: str = ""
    open: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()


class SandboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """`used` is the name of the sandbox of jobs, "" if they cannot run commands; `attended` is the sandbox of chats.

    `summary` says why in a sentence, `hint` what to install ("" if nothing is missing).
    """

    used: str
    attended: str
    unattended: bool
    summary: str
    hint: str
    sandboxes: tuple[SandboxRow, ...]


async def examine_sandboxes() -> SandboxReport:
    """Try every sandbox of this machine.

    Returns:
        The result for each sandbox, best first, and the sandbox that commands use.
    """
    tried = [candidate async for candidate in try_candidates()]
    working = [each for each in tried if each.sandbox]
    holding = [each for each in working if each.sandbox and not each.sandbox.open]
    used = holding[0] if holding else None
    rows = tuple(_row(candidate, used) for candidate in tried)
    return SandboxReport(
        used=used.label if used else "",
        attended=working[0].label if working else "",
        unattended=used is not None,
        summary=_summary(tried, used, working),
        hint="" if used else INSTALL,
        sandboxes=rows,
    )


def _row(candidate: Candidate, used: Candidate | None) -> SandboxRow:
    sandbox = candidate.sandbox
    if sandbox is None:
        return SandboxRow(name=candidate.label, state="unavailable", origin=candidate.origin, reason=candidate.reason)
    return SandboxRow(
        name=candidate.label,
        state="used" if candidate is used else "weaker" if sandbox.open else "works",
        origin=candidate.origin,
        way=sandbox.way if isinstance(sandbox, Bubblewrap) else "",
        open=tuple(sandbox.open),
        visible=(*sandbox.visible, *([sandbox.notice] if isinstance(sandbox, Bubblewrap) and sandbox.notice else [])),
    )


def _summary(tried: list[Candidate], used: Candidate | None, working: list[Candidate]) -> str:
    if used:
        before = [each.label for each in tried[: tried.index(used)]]
        why = f"{' and '.join(before)} cannot be had" if before else "it is the first choice"
        if any(each.sandbox for each in tried[: tried.index(used)]):
            why = f"{' and '.join(before)} cannot be had, or does not hold"
        return f"commands run in {used.label}: {why}"
    if working:
        return f"jobs run no commands without --allow-weaker-sandbox; a chat runs them in {working[0].label}"
    return "no commands are run without --no-sandbox"

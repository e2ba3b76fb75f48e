"""Report which sandboxes this machine has, which one is used, why, and what it does not prevent."""

from __future__ import annotations

from typing import Literal

import msgspec

from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.detect import INSTALL, Candidate, try_candidates


class SandboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of the sandboxes that a machine may have.

    `state` is `used`, `works` for one that comes after the one that is used, `unavailable`, or `weaker` for one that
    jobs do not run in unless the user allows it. `reason` says why it is unavailable, `origin` where it comes from. `way` is how bubblewrap is
    started. `open` is what a command can change outside of the workspace, `visible` what it can see or do besides.
    """

    name: str
    state: Literal["used", "works", "weaker", "unavailable"]
    origin: str = ""
    way: str = ""
    reason: str = ""
    open: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()


class SandboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """`used` is the name of the sandbox of jobs, "" if they run no command; `attended` that of a chat.

    `summary` says why in a sentence, `hint` what to install, "" where nothing is missing.
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
        What came of each, best first, and which of them commands run in.
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

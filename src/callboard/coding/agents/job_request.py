"""What a command asks of a coding agent.

Owns the assignment, and what is wrong with one. Knows nothing of how it is done.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from callboard.coding.agents.phases import Form
from callboard.coding.jobs.store import JobType
from callboard.configuration import Settings
from callboard.configuration.coding import Rights
from callboard.errors import CallerError

RIGHTS: Final[tuple[Rights, ...]] = get_args(Rights)
MAX_LOGS: Final = 20_000
"""Characters of a file of logs that are read: its end."""

_BLOCK = 64 * 1024
_BLOCKS = 1024


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, where and how. `given` is what the command was called with."""

    kind: JobType
    directory: Path
    given: dict[str, Any]
    settings: Settings
    logs: str = ""
    rights: Rights = "full"
    form: Form | None = None
    rounds: int | None = None
    without_sandbox: bool = False
    allow_weaker_sandbox: bool = False
    keep: bool = False


def rights_of(name: str, path: str) -> Rights:
    """The rights of this name; `path` says where it comes from. Raises CallerError for a name that is none."""
    for each in RIGHTS:
        if each == name:
            return each
    raise CallerError(f"no rights {name!r}", path=path, hint=f"there are {', '.join(RIGHTS)}")


def assign(
    kind: JobType,
    given: dict[str, Any],
    directory: Path,
    settings: Settings,
    *,
    rights: str = "",
    form: str = "",
    rounds: int | None = None,
    without_sandbox: bool = False,
    allow_weaker_sandbox: bool = False,
    keep: bool = False,
    standard_input: Any = None,
) -> Assignment:
    """An assignment from what a command was called with. Raises CallerError that says what is missing or wrong."""
    mode = settings.coding.modes.get(kind)
    may = rights_of(rights or (mode and mode.rights) or "full", "--rights")
    if form not in ("", "phased", "short"):
        raise CallerError(f"no form {form!r}", path="--form", hint="there are phased and short")
    if kind in ("build", "debug") and may == "read-only":
        raise CallerError(
            f"{kind} changes files", path="--rights read-only", hint="ask with callboard triage or review"
        )
    given = {**given}
    for name in ("description", "symptoms"):
        if given.get(name) == "-" and standard_input is not None:
            given[name] = standard_input.read().decode("utf-8", "replace")
    asked = {"build": "description", "debug": "symptoms", "triage": "description", "review": "branch"}[kind]
    other = "number" if kind == "review" else "issue"
    if not str(given.get(asked) or "").strip() and not given.get(other):
        option = {"number": "--pr"}.get(other, f"--{other}")
        hint = f'write callboard {kind} "...", or give --{asked} or {option}'
        raise CallerError(f"missing {asked!r} in input", path=f"--{asked}", hint=hint)
    logs = ""
    if given.get("logs"):
        try:
            logs = _end_of(Path(given["logs"]))
        except OSError as error:
            raise CallerError(error.strerror or str(error), path=str(given["logs"])) from None
        given["logs"] = str(given["logs"])
    return Assignment(
        kind=kind,
        directory=directory,
        given=given,
        settings=settings,
        logs=logs,
        rights=may,
        form=form or None,  # type: ignore[arg-type]  # checked above
        rounds=rounds,
        without_sandbox=without_sandbox,
        allow_weaker_sandbox=allow_weaker_sandbox,
        keep=keep,
    )


def _end_of(file: Path) -> str:
    """The last of a file's text, however long it is; of what has no end, such as a device, of its beginning."""
    kept = b""
    with file.open("rb") as opened:
        # What is shorter, and a pipe, is read from where it begins.
        with suppress(OSError):
            opened.seek(-4 * MAX_LOGS, os.SEEK_END)
        for _ in range(_BLOCKS):
            block = opened.read(_BLOCK)
            kept = (kept + block)[-4 * MAX_LOGS :]
            if not block:
                break
    return kept.decode("utf-8", "replace")[-MAX_LOGS:]

"""What the turns of a chat changed, and the way back.

Owns the rule by which changes are taken back. Knows nothing of models, and of states only that they can be compared.
Law: only files that a turn changed are put back, and none that somebody else has changed since.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from callboard.coding.repository import shown
from callboard.coding.snapshots import Snapshots
from callboard.errors import CallerError

_Content: TypeAlias = str
"""Mode and object of a file in a state."""

_PUT_BACK: Final = ("restore", "--quiet", "--staged", "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul")


class Turn(msgspec.Struct, frozen=True):
    """A turn that changed files: the states before and after it. `after` is "" if its process died in it."""

    before: str
    after: str = ""
    files: tuple[str, ...] = ()
    undone: bool = False


def turns_of(output: dict[str, Any]) -> list[Turn]:
    """The turns that a chat's job has on record."""
    return msgspec.convert(output.get("turns", []), list[Turn])


async def changed(snapshots: Snapshots, before: str, after: str) -> tuple[str, ...]:
    """The files that differ between two states."""
    return tuple(await _differences(snapshots, before, after))


async def take_back(snapshots: Snapshots, turns: Sequence[Turn]) -> tuple[str, ...]:
    """Puts the files that these turns changed back as they were before, and gives them.

    The tree as it is now is kept first. Raises CallerError, and changes nothing, where a file was changed since by
    somebody else.
    """
    now = await snapshots.take("before going back")
    stands: dict[str, _Content] = {}
    target: dict[str, str] = {}
    foreign: set[str] = set()
    for turn in reversed(turns):
        after = turn.after or now
        moved = await _differences(snapshots, after, now) if after != now else {}
        for path, (old, new) in (await _differences(snapshots, turn.before, after)).items():
            if stands[path] != new if path in stands else path in moved:
                foreign.add(path)
            stands[path], target[path] = old, turn.before
    if foreign:
        raise CallerError(
            f"changed since by somebody else: {shown(sorted(foreign), 20)}",
            path=str(_repository(snapshots).root),
            hint="nothing was taken back; git diff shows what is there",
        )
    for state in dict.fromkeys(target.values()):
        await _put_back(snapshots, state, [path for path, of in target.items() if of == state])
    await snapshots.take("after going back")
    return tuple(sorted(target))


# What `Snapshots` does not do yet: it restores whole states.


def _repository(snapshots: Snapshots) -> Any:
    return snapshots._own  # noqa: SLF001  # until it can compare states and restore single files itself


async def _differences(snapshots: Snapshots, before: str, after: str) -> dict[str, tuple[_Content, _Content]]:
    """The files that differ, each with what it is in both states."""
    items = (await _repository(snapshots).git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)).items
    found = {}
    for about, path in zip(items[::2], items[1::2], strict=True):
        old_mode, new_mode, old, new, _ = about.removeprefix(":").split(" ")
        found[path] = (f"{old_mode} {old}", f"{new_mode} {new}")
    return found


async def _put_back(snapshots: Snapshots, state: str, paths: Collection[str]) -> None:
    told = b"".join([os.fsencode(path) + b"\0" for path in paths])
    environment = {"GIT_LITERAL_PATHSPECS": "1"}
    await _repository(snapshots).git(*_PUT_BACK, f"--source={state}", stdin=told, environment=environment)

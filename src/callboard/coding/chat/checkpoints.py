"""What the turns of a chat changed, and the way back.

Owns their snapshots, and the rule by which changes are taken back. Knows nothing of models.
Law: only files that a turn changed are put back, and none that somebody else has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from callboard.coding.git.snapshots import Snapshots, open_snapshots
from callboard.errors import CallerError
from callboard.text.display import display_names


class Turn(msgspec.Struct, frozen=True):
    """A turn that changed files: the states before and after it. `after` is "" if its process died in it."""

    before: str
    after: str = ""
    files: tuple[str, ...] = ()
    undone: bool = False


class Turns:
    """The turns of a chat in `directory` that changed files, its states kept in `folder`; `kept` as `record` gives it."""

    def __init__(self, directory: Path, folder: Path, kept: Iterable[Any] = ()) -> None:
        self._directory = directory
        self._folder = folder
        self._turns = msgspec.convert([*kept], list[Turn])
        self._open: Turn | None = None
        self._states: Snapshots | None = None

    def __bool__(self) -> bool:
        """Whether there is something to take back."""
        return any(not turn.undone for turn in self._turns)

    @property
    def record(self) -> list[Any]:
        """All that is to be known of them, as JSON has it; the one under way among them."""
        made: list[Any] = msgspec.to_builtins([*self._turns, *([self._open] if self._open else [])])
        return made

    @property
    def files(self) -> list[str]:
        """What they changed, without what is taken back."""
        return sorted({path for turn in self._turns if not turn.undone for path in turn.files})

    async def begin(self, label: str) -> None:
        """Keeps the tree as it is before the first change of a turn. Raises CallerError where it cannot be kept."""
        if self._open is None:
            self._open = Turn(await (await self._snapshots()).take(label))

    async def end(self) -> None:
        """The turn is over; one that changed no file is forgotten. Raises CallerError."""
        turn, self._open = self._open, None
        if turn is None:
            return
        states = await self._snapshots()
        after = await states.take("after the turn")
        files = tuple(await states.differences(turn.before, after))
        if files:
            self._turns.append(Turn(turn.before, after, files))

    async def take_back(self, *, all_: bool = False) -> tuple[str, ...]:
        """Takes back what the last turn changed, or `all_` of them, that is not taken back yet; gives the files.

        Raises CallerError, and changes nothing, where somebody else has changed one of these files since.
        """
        left = [turn for turn in self._turns if not turn.undone]
        if not left:
            raise CallerError("there is nothing to take back")
        chosen = left if all_ else left[-1:]
        files = await _take_back(await self._snapshots(), chosen)
        self._turns = [msgspec.structs.replace(turn, undone=turn.undone or turn in chosen) for turn in self._turns]
        return files

    async def diff(self) -> str:
        """What the files differ in from those before the first turn that changed some, as a patch."""
        return await (await self._snapshots()).diff(self._turns[0].before) if self._turns else ""

    async def _snapshots(self) -> Snapshots:
        if self._states is None:
            self._states = await open_snapshots(self._directory, self._folder)
        return self._states


async def _take_back(states: Snapshots, turns: Sequence[Turn]) -> tuple[str, ...]:
    now = await states.take("before going back")
    stands: dict[str, str] = {}
    foreign: set[str] = set()
    following = now
    for turn in reversed(turns):
        after, following = turn.after or following, turn.before
        moved = await states.differences(after, now)
        for path, (old, new) in (await states.differences(turn.before, after)).items():
            if stands[path] != new if path in stands else path in moved:
                foreign.add(path)
            stands[path] = old
    if foreign:
        raise CallerError(
            f"changed since by somebody else: {display_names(sorted(foreign), 20)}", hint="nothing was taken back"
        )
    await states.restore(stands, now)
    await states.take("after going back")
    return tuple(sorted(stands))

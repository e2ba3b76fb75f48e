"""Snapshots before and after each turn of a chat that changed files, and undoing turns.

Law: only files that a turn changed are restored, and none that somebody else has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from callboard.coding.git.snapshots import Snapshots, open_snapshots
from callboard.coding.output import Checkpoint
from callboard.errors import CallerError
from callboard.text.display import display_names, escape


class Checkpoints:
    """The turns of a chat in `directory` that changed files; their snapshots are in `folder`. False if none is to undo."""

    def __init__(self, directory: Path, folder: Path, turns: Iterable[Checkpoint] = ()) -> None:
        self._directory = directory
        self._folder = folder
        self._turns = [*turns]
        self._open: Checkpoint | None = None
        self._states: Snapshots | None = None

    def __bool__(self) -> bool:
        return any(not turn.undone for turn in self._turns)

    @property
    def turns(self) -> tuple[Checkpoint, ...]:
        """For the record; the one under way among them."""
        return (*self._turns, *([self._open] if self._open else []))

    @property
    def files(self) -> tuple[str, ...]:
        """The files that they changed, without what was undone."""
        return tuple(sorted({path for turn in self._turns if not turn.undone for path in turn.files}))

    async def begin(self, label: str) -> None:
        """Keeps the tree as it is before the first change of a turn. Raises CallerError where it cannot be kept."""
        if self._open is None:
            self._open = Checkpoint(await (await self._snapshots()).take(label))

    async def end(self) -> None:
        """The turn is over; one that changed no file is forgotten. Raises CallerError."""
        turn, self._open = self._open, None
        if turn is None:
            return
        states = await self._snapshots()
        after = await states.take("after the turn")
        files = tuple(await states.diff_files(turn.before, after))
        if files:
            self._turns.append(Checkpoint(turn.before, after, files))

    async def restore(self, *, all_: bool = False) -> tuple[str, ...]:
        """Undoes the last turn that is not undone yet, or `all_` of them; gives the files that were restored.

        Raises CallerError, and changes nothing, where somebody else has changed one of these files since.
        """
        undoable = [turn for turn in self._turns if not turn.undone]
        if not undoable:
            raise CallerError("there is nothing to take back")
        chosen = undoable if all_ else undoable[-1:]
        files = await _restore(await self._snapshots(), chosen)
        self._turns = [replace(turn, undone=turn.undone or turn in chosen) for turn in self._turns]
        return files

    async def diff(self) -> str:
        """What the files differ in from those before the first turn that changed some, as a patch."""
        return await (await self._snapshots()).diff(self._turns[0].before) if self._turns else ""

    async def _snapshots(self) -> Snapshots:
        if self._states is None:
            self._states = await open_snapshots(self._directory, self._folder)
        return self._states


async def _restore(states: Snapshots, turns: Sequence[Checkpoint]) -> tuple[str, ...]:
    now = await states.take("before going back")
    originals: dict[str, str] = {}
    foreign: set[str] = set()
    following = now
    for turn in reversed(turns):
        after, following = turn.after or following, turn.before
        moved = await states.diff_files(after, now)
        for path, (old, new) in (await states.diff_files(turn.before, after)).items():
            if originals[path] != new if path in originals else path in moved:
                foreign.add(path)
            originals[path] = old
    if foreign:
        raise CallerError(
            f"changed since by somebody else: {display_names(sorted(foreign), 20)}", hint="nothing was taken back"
        )
    await states.restore(originals, now)
    await states.take("after going back")
    return tuple(sorted(originals))


def restored_note(files: Iterable[str]) -> str:
    """What the model reads of files that were taken back."""
    names = ", ".join(map(escape, files))
    return f"(The user took your changes back. These files are again as they were before: {names}.)"

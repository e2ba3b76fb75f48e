"""Snapshots of the user's own tree before and after each turn of a chat that changed files, and undoing turns.

They are commits of a private repository in the job's folder whose working tree is the user's.

Laws: the user's `.git` is never written; files are restored byte for byte. Snapshots skip ignored files, other
repositories inside, and files of more than 50 MB; these are never changed. Only files that a turn changed are restored,
unless somebody else has changed them since.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from callboard.coding.git.files import MAX_FILE, NEW_FILES
from callboard.coding.git.repository import MAX_DIFF, Repository, create_repository, find_repository
from callboard.coding.job import Checkpoint
from callboard.errors import CallerError
from callboard.text.display import display_names, escape

MAX_FILES: Final = 200_000
_REPOSITORY: Final = "snapshots.git"


class Snapshots:
    """The snapshots of a tree. Made by `open_snapshots`."""

    def __init__(self, repository: Repository, source: Repository | None) -> None:
        self._repository = repository
        self._source = source
        """The user's repository, which says what is ignored."""

    async def take(self, label: str) -> str:
        """Keep the tree as it is; return the snapshot's id, the last one's if nothing changed. Raises CallerError."""
        git = self._repository.git
        last = await self._repository.head()
        tree = await self._write_tree()
        if last and tree == (await git("rev-parse", f"{last}^{{tree}}")).text.strip():
            return last
        parents = ["-p", last] if last else []
        message = (" ".join(label.split()) or "state").encode("utf-8", "replace")
        identity = await self._repository.committer_variables()
        commit = await git("commit-tree", *parents, "-F", "-", tree, stdin=message, environment=identity)
        identifier = commit.text.strip()
        await git("update-ref", "HEAD", identifier)
        return identifier

    async def diff(self, identifier: str) -> str:
        """Return a patch of the changes since a snapshot. Raises CallerError."""
        commit = await self._repository.commit_id(identifier) if identifier.isalnum() else ""
        if not commit:
            raise CallerError(f"no state {identifier!r}", path=str(self._repository.root))
        outcome = await self._repository.git("diff", commit, await self._write_tree(), "--", limit=MAX_DIFF)
        return outcome.output.decode("utf-8", "replace")

    async def diff_files(self, before: str, after: str) -> dict[str, tuple[str, str]]:
        """Return the files that differ between two snapshots, each with its mode and object in both."""
        raw = (await self._repository.git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)).items
        differences = {}
        for fields, path in zip(raw[::2], raw[1::2], strict=True):
            old_mode, new_mode, old, new, _ = fields.removeprefix(":").split(" ")
            differences[path] = (f"{old_mode} {old}", f"{new_mode} {new}")
        return differences

    async def restore(self, files: Mapping[str, str], now: str) -> None:
        """Put these files back, by mode and object as `differences` gives them.

        The tree must be as in the snapshot `now`; no other file changes. Raises CallerError.
        """
        git = self._repository.git
        scratch = {"GIT_INDEX_FILE": str(self._repository.git_directory / "going-back")}
        await git("read-tree", now, environment=scratch)
        # Deletions first: one may be a file where another's folder was.
        entries = sorted([(entry, path) for path, entry in files.items()])
        lines = b"".join([entry.encode() + b"\t" + os.fsencode(path) + b"\0" for entry, path in entries])
        await git("update-index", "-z", "--index-info", stdin=lines, environment=scratch)
        tree = (await git("write-tree", environment=scratch)).text.strip()
        await git("read-tree", "--reset", "-u", tree)

    async def _write_tree(self) -> str:
        """Return the tree as it is, as an object of our repository."""
        own = self._repository
        known = set((await own.git("ls-files", "-z")).items)
        listing = await (self._source or own).git("ls-files", "-z", "--cached", *NEW_FILES)
        names = known | {name for name in listing.items if not name.endswith("/")}
        if listing.cut or len(names) > MAX_FILES:
            hint = "let git ignore what is made by programs"
            raise CallerError(f"there are more than {MAX_FILES:,} files", path=str(own.root), hint=hint)
        await own.update_index(await asyncio.to_thread(_select_files, own.root, sorted(names), known))
        return (await own.git("write-tree")).text.strip()


async def open_snapshots(root: Path, folder: Path) -> Snapshots:
    """Return the snapshots of a tree; those that were taken in the folder before are there. Raises CallerError."""
    source = await find_repository(root)
    root, folder = [await asyncio.to_thread(each.resolve) for each in (root, folder)]
    own = Repository(source.root if source else root, folder / _REPOSITORY)
    if not (own.git_directory / "info" / "attributes").is_file():
        await create_repository(own.root, own.git_directory, source)
    return Snapshots(own, source)


def _select_files(root: Path, names: Iterable[str], known: Collection[str]) -> list[str]:
    """Without files that are too large, pipes and the like; a folder only where a known file was."""
    selected = []
    for name in names:
        with suppress(OSError):
            status = (root / name).lstat()
            if stat.S_ISREG(status.st_mode):
                if status.st_size > MAX_FILE:
                    continue
            elif not stat.S_ISLNK(status.st_mode) and not (stat.S_ISDIR(status.st_mode) and name in known):
                continue
        selected.append(name)
    return selected


class Checkpoints:
    """The turns of a chat in `directory` that changed files, with snapshots in `folder`. False without any."""

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
        """Save the tree before the first change of a turn. Raises CallerError if it cannot be saved."""
        if self._open is None:
            self._open = Checkpoint(await (await self._snapshots()).take(label))

    async def end(self) -> None:
        """End the turn; forget it if it changed no file. Raises CallerError."""
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

        Raises CallerError, and changes nothing, if somebody else has changed one of these files since.
        """
        undoable = [turn for turn in self._turns if not turn.undone]
        if not undoable:
            raise CallerError("there is nothing to take back")
        chosen = undoable if all_ else undoable[-1:]
        files = await _restore(await self._snapshots(), chosen)
        self._turns = [replace(turn, undone=turn.undone or turn in chosen) for turn in self._turns]
        return files

    async def diff(self) -> str:
        """Return a patch of all changes since before the first turn that changed files."""
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
    """Return the note for the model about restored files."""
    names = ", ".join(map(escape, files))
    return f"(The user took your changes back. These files are again as they were before: {names}.)"

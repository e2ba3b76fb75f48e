"""A tree of files that a job works in, which is not the user's.

There are two kinds: a worktree of the user's repository (`worktree.py`), and, where git has no commit of the folder, a
copy with a private repository (`copied_tree.py`). `open_tree.py` chooses. What they share is here: the record on disk,
what changed since the job began, and committing it.

Law: the record is on disk before anything is made, so a job can be undone whenever its process dies.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from callboard.coding.git.process import GitOutcome
from callboard.coding.git.repository import MAX_DIFF, Commit, NothingToCommit, Repository
from callboard.coding.git.tree_state import compute_state, find_objects, restore_state
from callboard.errors import CallerError
from callboard.storage.atomic_file import write_private
from callboard.text.display import display_names

MAX_PATCH: Final = 64 * 1024 * 1024
"""Bytes of a patch of what was not committed."""
INSTALLED: Final = (".venv", "venv", "node_modules")
"""Folders of installed packages: read where they are instead of copied."""
SLOW_SECONDS: Final = 0.5
"""If making a tree takes longer, waiting for `settle_index` pays off."""

TREE: Final = "tree"
"""The folder of the tree, in the job's."""
_SCRATCH: Final = "digest"
_STATES: Final = "states"
_PATCH: Final = "changes.patch"
_RECORD: Final = "tree.json"
_MAX_PACKAGES = 100


class TreeChanges(msgspec.Struct, frozen=True):
    """What differs from where the job began."""

    files: tuple[str, ...]
    diff: str
    commits: tuple[Commit, ...]
    cut: bool = False
    """Whether the patch is longer than `diff`."""


class TreeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What undoing a job's tree needs: JSON in the job's folder."""

    kind: Literal["worktree", "copy"]
    job: str
    """The job's folder."""
    directory: str
    """Where the user was."""
    branch: str
    base: str
    """The commit that the branch begins at, "" while a copy is made."""
    repository: str = ""
    common: str = ""
    head: str = ""
    """The commit that the job left the branch at, "" while it works."""

    @classmethod
    def load(cls, job: Path) -> TreeRecord | None:
        """The record in a job's folder, None if it has none. Raises CallerError."""
        try:
            return msgspec.json.decode((job / _RECORD).read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CallerError(f"not the record of a tree: {error}", path=str(job / _RECORD)) from None

    def save(self) -> None:
        write_private(Path(self.job) / _RECORD, msgspec.json.format(msgspec.json.encode(self), indent=2))

    @property
    def root(self) -> Path:
        """The top of the tree."""
        return Path(self.job) / TREE

    @property
    def scratch(self) -> Path:
        """The folder for what is computed of the tree."""
        return Path(self.job) / _SCRATCH

    @staticmethod
    def states_in(job: Path) -> Path:
        """The folder in a job's for the files as they were earlier."""
        return job / _STATES

    @property
    def states(self) -> Path:
        """As `states_in`."""
        return self.states_in(Path(self.job))

    @property
    def patch(self) -> Path:
        """The file for what changed in a copy, and for what was not committed in a worktree."""
        return Path(self.job) / _PATCH


class Tree(ABC):
    """A tree that a job works in. Made by `open_tree`.

    Args:
        record: How it is undone.
        repository: With the tree as its working tree.
        borrowed: Folders of the user's tree that are read in this one, by their path in it.
        notices: What the user should know.
    """

    def __init__(
        self, record: TreeRecord, repository: Repository, borrowed: Mapping[str, Path], notices: Sequence[str] = ()
    ) -> None:
        self._record = record
        self.repository = repository
        self.root = repository.root
        self.base = record.base
        self.branch = record.branch
        self.borrowed = dict(borrowed)
        self.notices = tuple(notices)
        self.patch = record.patch
        # There is one scratch folder.
        self._computing = asyncio.Lock()
        self._differing: dict[str, tuple[str, ...]] = {}
        """By git tree: the files that differ from the base in it."""

    @property
    def record(self) -> dict[str, Any]:
        """The record that `undo_tree` needs, as JSON has it."""
        record: dict[str, Any] = msgspec.to_builtins(self._record)
        return record

    @property
    @abstractmethod
    def result_patch(self) -> Path | None:
        """The file that the result is in when the tree is closed; None where the branch is the result."""

    @abstractmethod
    async def push(self, remote: str = "origin") -> None:
        """Push the branch. Raises CallerError."""

    async def inspect(self) -> tuple[str, tuple[str, ...]]:
        """The digest, and the files that differ from the base, whether that is committed or not."""
        variables: dict[str, str] = {}
        async with self._computing:
            state = await compute_state(self.repository, self._record.scratch, variables)
            return state.digest, await self._differing_files(state.tree, variables)

    async def changes(self) -> TreeChanges:
        """What differs from the base, whether it is committed or not."""
        variables: dict[str, str] = {}
        async with self._computing:
            tree = (await compute_state(self.repository, self._record.scratch, variables)).tree
            patch = await self._diff(self.base, tree, variables, MAX_DIFF)
            files = await self._differing_files(tree, variables)
        return TreeChanges(
            files=files,
            diff=patch.output.decode("utf-8", "replace"),
            commits=await self.repository.log(1000, since=self.base),
            cut=patch.cut,
        )

    async def keep(self) -> str:
        """Keep the files as they are, also when the tree is gone; return the id by which `fork_tree` finds them."""
        async with self._computing:
            return (await compute_state(self.repository, self._record.states)).tree

    async def restore(self, state: str) -> None:
        """Make the files what they were when `keep` gave this; nothing of it is committed. Raises CallerError."""
        async with self._computing:
            await restore_state(self.repository, self._record.states, state)

    async def tree_of(self, commit: str) -> str:
        """The id of the files in a commit, also one of what was kept. Raises CallerError."""
        variables = await find_objects(self.repository, self._record.states)
        return (await self.repository.git("rev-parse", f"{commit}^{{tree}}", environment=variables)).text.strip()

    async def commit(self, message: str) -> str | None:
        """Commit all that changed; return the commit's id, None if nothing did.

        A notice names the files that `Repository.stage` leaves out.
        """
        if left_out := await self.repository.stage():
            why = "of more than 50 MB, or for a filter or in a repository of its own"
            self.notices = (*self.notices, f"not committed ({why}): {display_names(left_out)}")
        try:
            return await self.repository.commit(message, files=())
        except NothingToCommit:
            return None

    async def close(self, *, keep: bool) -> None:
        """End the work. Unless it is to be kept, the tree is removed, and its branch if it has no commits.

        What was not committed, and all that changed in a copy, is in `patch`.
        """
        # Git works in the folder, which may be gone.
        gone = not await asyncio.to_thread(_ensure_folder, self.root)
        head = await self.repository.head()
        if not gone:
            await self._save_patch(self.base if self.result_patch else head)
        self._record = replace(self._record, head=head)
        self._record.save()
        if not keep:
            await self._remove()

    @abstractmethod
    async def _remove(self) -> None: ...

    async def _differing_files(self, tree: str, environment: Mapping[str, str]) -> tuple[str, ...]:
        if tree not in self._differing:
            arguments = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self.base or "HEAD", tree)
            self._differing[tree] = tuple((await self.repository.git(*arguments, environment=environment)).items)
        return self._differing[tree]

    async def _diff(
        self, base: str, tree: str, environment: Mapping[str, str], limit: int, flags: Sequence[str] = ()
    ) -> GitOutcome:
        commit = base or self.base or "HEAD"
        return await self.repository.git("diff", *flags, commit, tree, "--", limit=limit, environment=environment)

    async def _save_patch(self, base: str) -> None:
        variables: dict[str, str] = {}
        async with self._computing:
            tree = (await compute_state(self.repository, self._record.scratch, variables)).tree
            patch = await self._diff(base, tree, variables, MAX_PATCH, ("--binary", "--full-index"))
        if patch.cut:
            raise CallerError(
                f"what changed is more than {MAX_PATCH} bytes as a patch",
                path=str(self.root),
                hint="the tree stays: take what you need from it",
            )
        if patch.output:
            write_private(self.patch, patch.output)


async def find_installed(root: Path, repository: Repository | None) -> dict[str, Path]:
    """The folders of installed packages that git ignores: at the top, where the user was, and beside a package.json."""
    folders = await asyncio.to_thread(_installed_folders, root, repository.folder if repository else "")
    if repository is not None and folders:
        lines = b"".join([os.fsencode(name) + b"\0" for name in folders])
        ignored = await repository.git("check-ignore", "-z", "--stdin", stdin=lines, check=False)
        folders = {name: folders[name] for name in ignored.items}
    return folders


def _installed_folders(root: Path, folder: str) -> dict[str, Path]:
    names = {*INSTALLED, *(f"{folder}/{name}" for name in INSTALLED if folder)}
    with suppress(OSError):
        packages = sorted(root.glob("*/package.json"))[:_MAX_PACKAGES]
        names |= {f"{package.parent.name}/node_modules" for package in packages}
    return {name: root / name for name in sorted(names) if (root / name).is_dir() and not (root / name).is_symlink()}


async def delete_folders(*folders: Path | None) -> None:
    """Delete folders, also where some of them may not be read or written to."""
    for folder in folders:
        if folder is not None:
            await asyncio.to_thread(_delete, folder)


def _delete(folder: Path) -> None:
    def allow(retry: Callable[..., Any], path: str, _error: Any) -> None:
        for each in (Path(path).parent, Path(path)):
            with suppress(OSError):
                if not each.is_symlink() and each.is_dir():
                    each.chmod(each.stat().st_mode | stat.S_IRWXU)
        with suppress(FileNotFoundError):
            if Path(path).is_dir() and not Path(path).is_symlink():
                shutil.rmtree(path)
            else:
                retry(path)

    with suppress(FileNotFoundError):
        shutil.rmtree(folder, onerror=allow)


def _ensure_folder(folder: Path) -> bool:
    """Make a folder; return whether it was there."""
    try:
        folder.mkdir()
    except FileExistsError:
        return True
    return False

"""A job's own tree of files, apart from the user's tree: a separate repository in the job's folder.

There are two kinds. A clone begins at a commit of the user's repository, whose objects it reads; its branch is fetched
into that repository when the job ends. If git has no commit of the folder, the tree is a copy of the files, and its
result is a patch. `open_tree.py` makes both kinds.

Laws: we write the configuration of the job's repository, and it has no hooks. The user's repository gets only files of
git-lfs, and at the end the branch and its objects. The record is on disk before the tree is made, so a job can be
undone whenever its process dies.
"""

from __future__ import annotations

import asyncio
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from callboard.coding.git.process import GitFailed
from callboard.coding.git.repository import MAX_DIFF, Commit, NothingToCommit, Repository
from callboard.coding.git.tree_state import compute_state, restore_state
from callboard.errors import CallerError
from callboard.storage.atomic_file import StoredFile, write_private
from callboard.text.display import display_names

MAX_PATCH: Final = 64 * 1024 * 1024
"""Bytes of a patch of what was not committed."""
TREE: Final = "tree"
"""The folder of the tree, in the job's."""
_REPOSITORY: Final = "tree.git"
_PATCH: Final = "changes.patch"
_RECORD: Final = "tree.json"


class TreeChanges(msgspec.Struct, frozen=True):
    """The changes since the job began."""

    files: tuple[str, ...]
    diff: str
    commits: tuple[Commit, ...]
    cut: bool = False
    """Whether the patch is longer than `diff`."""


class TreeRecord(StoredFile, frozen=True, kw_only=True):
    """The facts for undoing a job's tree: JSON in the job's folder."""

    kind: Literal["clone", "copy"]
    job: str
    """The job's folder."""
    directory: str
    """The user's directory."""
    branch: str
    base: str = ""
    """The commit that the branch begins at, "" while the tree is made."""
    common: str = ""
    """The user's repository; "" for a copy."""
    head: str = ""
    """The commit that the job left the branch at, "" while it works."""

    @classmethod
    def load(cls, job: Path) -> TreeRecord | None:
        """Return the record in a job's folder, None if it has none. Raises CallerError."""
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
    def git_directory(self) -> Path:
        """The job's repository; it stays until the job is undone."""
        return Path(self.job) / _REPOSITORY

    @property
    def patch(self) -> Path:
        """The file for what changed in a copy, and for what was not committed in a clone."""
        return Path(self.job) / _PATCH

    def open_repository(self) -> Repository:
        """Return the job's repository."""
        lfs = Path(self.common) / "lfs" if self.common else None
        return Repository(self.root, self.git_directory, only_branch=self.branch, lfs=lfs)

    def users_repository(self) -> Repository:
        """Return the user's repository, without a working tree."""
        return Repository(Path(self.common), Path(self.common))


class Tree:
    """A job's tree. Made by `open_tree`.

    Args:
        record: The facts for undoing the tree.
        repository: The repository that has the tree as its working tree.
        borrowed: Folders of the user's tree that can be read in this one, by their path in it.
        notices: Sentences for the user.
    """

    def __init__(
        self, record: TreeRecord, repository: Repository, borrowed: Mapping[str, Path], notices: Sequence[str] = ()
    ) -> None:
        self._record = record
        self.repository = repository
        self.root = repository.root
        self.base = record.base
        self.borrowed = dict(borrowed)
        self.notices = tuple(notices)
        self.patch = record.patch

    @property
    def branch(self) -> str:
        return self._record.branch

    @property
    def record(self) -> dict[str, Any]:
        """The record that `undo_tree` needs, as JSON has it."""
        record: dict[str, Any] = msgspec.to_builtins(self._record)
        return record

    @property
    def result_patch(self) -> Path | None:
        """The file with the result when the tree is closed; None if the branch is the result."""
        return None if self._record.common else self.patch

    @property
    def readable(self) -> tuple[Path, ...]:
        """Return paths outside the tree that git reads, for commands that use git."""
        objects = [Path(self._record.common) / "objects"] if self._record.common else []
        return (self._record.git_directory, *objects)

    async def deliver(self) -> None:
        """Fetch the branch into the user's repository, if it has commits. Raises CallerError, also if checked out.

        If somebody else has a branch of this name by now, ours gets a number.
        """
        commits = (await self.repository.git("rev-list", f"{self.base}..HEAD")).text.split()
        if not self._record.common or not commits:
            return
        user = self._record.users_repository()
        # In the job's repository: `reopen_tree` removes the lock that a killed git leaves there.
        bundle = self._record.git_directory / "branch.bundle"
        await self.repository.git("bundle", "create", "--quiet", str(bundle), "HEAD", f"^{self.base}")
        fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(bundle))
        first, number = self.branch, 1
        while (tip := (await user.branches()).get(self.branch, "")) != commits[0]:
            if tip and tip not in commits:
                number += 1
                self._record = replace(self._record, branch=f"{first}-{number}")
                continue
            await user.check_not_checked_out(self.branch)
            self._record.save()
            into = f"HEAD:refs/heads/{self.branch}"
            try:
                await user.git(*fetch, into, environment={"GIT_ALLOW_PROTOCOL": "file"})
            except GitFailed:
                if (await user.branches()).get(self.branch, "") == tip:
                    raise
        bundle.unlink()

    async def push(self, remote: str = "origin") -> None:
        """Push the branch. Raises CallerError."""
        if not self._record.common:
            raise CallerError("there is no repository to push from", path=self._record.directory)
        await self.deliver()
        await self._record.users_repository().push(self.branch, remote)

    async def inspect(self) -> tuple[str, tuple[str, ...]]:
        """Return the digest, and the files that differ from the base, whether that is committed or not."""
        state = await compute_state(self.repository, stores=True)
        return state.digest, await self._differing_files(state.tree)

    async def changes(self) -> TreeChanges:
        """Return the differences from the base, committed or not."""
        tree = await self.keep()
        patch = await self.repository.git("diff", self.base, tree, "--", limit=MAX_DIFF)
        return TreeChanges(
            files=await self._differing_files(tree),
            diff=patch.output.decode("utf-8", "replace"),
            commits=await self.repository.log(1000, since=self.base),
            cut=patch.cut,
        )

    async def keep(self) -> str:
        """Keep the files as they are, also when the tree is gone; return the id by which `fork_tree` finds them."""
        return (await compute_state(self.repository, stores=True)).tree

    async def restore(self, state: str) -> None:
        """Make the files what they were when `keep` gave this; nothing of it is committed. Raises CallerError."""
        await restore_state(self.repository, state)

    async def tree_of(self, commit: str) -> str:
        """Return the id of the files in a commit. Raises CallerError."""
        return (await self.repository.git("rev-parse", f"{commit}^{{tree}}")).text.strip()

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
        """End the work: fetch the branch into the user's repository and, without `keep`, delete the tree.

        `patch` has the uncommitted changes, or all changes of a copy.
        """
        # Git works in the folder, which may be gone.
        if await asyncio.to_thread(self.root.is_dir):
            await self._save_patch()
        else:
            await asyncio.to_thread(self.root.mkdir)
        await self.deliver()
        self._record = replace(self._record, head=await self.repository.head())
        self._record.save()
        if not keep:
            await delete_folders(self.root)

    async def _differing_files(self, tree: str) -> tuple[str, ...]:
        arguments = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self.base, tree)
        return tuple((await self.repository.git(*arguments)).items)

    async def _save_patch(self) -> None:
        base = self.base if self.result_patch else "HEAD"
        arguments = ("diff", "--binary", "--full-index", base, await self.keep(), "--")
        patch = await self.repository.git(*arguments, limit=MAX_PATCH)
        if patch.cut:
            raise CallerError(
                f"what changed is more than {MAX_PATCH} bytes as a patch",
                path=str(self.root),
                hint="the tree stays: take what you need from it",
            )
        if patch.output:
            write_private(self.patch, patch.output)


async def delete_folders(*folders: Path) -> None:
    """Delete folders, also where some of them may not be read or written to."""
    for folder in folders:
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

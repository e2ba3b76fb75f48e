"""A git worktree for a job, on a branch of its own in the user's repository.

Laws: of the user's repository, only the job's branch and its entry among the worktrees are written, besides objects;
the user's files, index, stash, HEAD and other branches are as they were, whenever the process dies. A branch is deleted
only where the job left it, and only if nothing else rests on it; the message names its commit.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import stat
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec.structs import replace

from callboard.coding.git.process import GitFailed, git_error
from callboard.coding.git.repository import Repository
from callboard.coding.git.settings import allowed_settings, format_settings, runs_lfs
from callboard.coding.git.tree import SLOW_SECONDS, TREE, Tree, TreeRecord, delete_folders, find_installed
from callboard.coding.git.tree_state import settle_index
from callboard.errors import CallerError
from callboard.text.display import display_names

_CHECK_OUT: Final = ("reset", "--hard", "--quiet", "--no-recurse-submodules")
_SPARSE: Final = frozenset({"core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse"})
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"


class Worktree(Tree):
    """The files of a commit, checked out for a job."""

    @property
    def result_patch(self) -> None:
        return None

    async def push(self, remote: str = "origin") -> None:
        await self.repository.push(self.branch, remote)

    async def _remove(self) -> None:
        await _remove(self._record)
        if self._record.head == self.base:
            await _delete_branch(self._record)


async def make_worktree(
    repository: Repository, directory: Path, job: Path, branch: str, base: str, *, fetch: bool
) -> Worktree:
    """Make a branch and check it out into the job's folder; see `open_tree`."""
    record = TreeRecord(
        kind="worktree",
        job=str(job),
        directory=str(directory),
        branch=branch,
        base=base,
        repository=str(repository.git_directory),
        common=str(repository.common),
    )
    record = await _make_branch(repository, record)
    own = await _add_worktree(repository, record)
    borrowed = await find_installed(repository.root, repository)
    own.hidden = frozenset(borrowed)
    began = monotonic()
    try:
        missing = await _check_out(own, record, fetch=fetch)
    except CallerError:
        await _remove(record)
        await _delete_branch(record)
        raise
    if monotonic() - began > SLOW_SECONDS:
        await settle_index(own)
    notices = await _describe_source(repository)
    if missing:
        notices.append(f"git-lfs has not fetched these here (git lfs pull does): {display_names(missing)}")
    return Worktree(record, own, borrowed, notices)


async def reopen_worktree(repository: Repository, record: TreeRecord, *, fetch: bool) -> Worktree:
    """Open the worktree of a job whose process died, with all that was not committed; see `reopen_tree`.

    What is not whole, since the process died while it was made or taken away, is checked out from the branch.
    """
    if str(repository.common) != record.common or not await repository.commit_id(record.base):
        raise CallerError("this is not the repository that the job began in", path=record.directory)
    entry = _find_entry(record)
    if entry is not None and ((entry / "locked").exists() or not (record.root / ".git").is_file()):
        entry = None
    if record.branch not in await repository.branches():
        if entry is not None:
            raise CallerError(f"the branch {record.branch} is gone", path=record.directory)
        await repository.create_branch(record.branch, record.base)
    if entry is not None:
        _delete_locks(entry, repository.common / "refs" / "heads" / f"{record.branch}.lock")
        await delete_folders(record.scratch)
        own = Repository(record.root, entry, repository.common, folder=repository.folder, only_branch=record.branch)
    else:
        await _remove(record)
        own = await _add_worktree(repository, record)
    borrowed = await find_installed(repository.root, repository)
    own.hidden = frozenset(borrowed)
    if entry is None:
        await _check_out(own, record, fetch=fetch)
    record = replace(record, head="")
    record.save()
    return Worktree(record, own, borrowed)


def _delete_locks(entry: Path, branch: Path) -> None:
    """Delete the locks of a git that was killed: what they lock is the job's, so nobody else can hold them."""
    for lock in (*entry.glob("*.lock"), branch):
        lock.unlink(missing_ok=True)


async def _make_branch(repository: Repository, record: TreeRecord) -> TreeRecord:
    """Make the first branch that is free of `name`, `name-2`, ...; the record is on disk before it."""
    number = 1
    while True:
        name = record.branch if number == 1 else f"{record.branch}-{number}"
        if name not in await repository.branches():
            planned = replace(record, branch=name)
            planned.save()
            try:
                await repository.create_branch(name, record.base)
            except GitFailed:
                if name not in await repository.branches():
                    raise
            else:
                return planned
        number += 1


async def _add_worktree(repository: Repository, record: TreeRecord) -> Repository:
    """Add the worktree, without a file in it; git has it locked until they are there."""
    root = record.root
    (repository.common / "worktrees").mkdir(exist_ok=True)
    arguments = ("worktree", "add", "--lock", "--no-checkout", "--quiet", str(root), record.branch)
    await repository.git(*arguments, writable=[root.parent])
    entry = _find_entry(record)
    if entry is None:
        raise CallerError("git made no working tree", path=str(root))
    # Some releases of git write the common directory that they were given, and ours is temporary.
    (root / ".git").write_text(f"gitdir: {entry}\n")
    # Git copies the patterns of a sparse checkout, but cannot read that it is one: that is in a file we keep from it.
    sparse = [each for each in await repository.settings() if each.scope == "worktree" and each.key in _SPARSE]
    if sparse:
        (entry / "config.worktree").write_text(format_settings(sparse))
    return Repository(root, entry, repository.common, folder=repository.folder, only_branch=record.branch)


async def _check_out(own: Repository, record: TreeRecord, *, fetch: bool) -> list[str]:
    """Check out the files, and fetch what is missing if `fetch` allows it; return those that git-lfs has not fetched.

    Raises CallerError.
    """
    outcome = await own.git(*_CHECK_OUT, check=False)
    missing = await _find_lfs_pointers(own)
    if fetch and (outcome.code or missing):
        for path in missing:
            (own.root / path).unlink()
        outcome = await own.git(*_CHECK_OUT, check=False, online=True)
        missing = await _find_lfs_pointers(own)
    if outcome.code:
        error = git_error(outcome, _CHECK_OUT, record.directory)
        if fetch or not await own.is_partial():
            raise error
        raise CallerError(
            f"this is a partial clone, and not all of {record.base[:12]} is here: {error.message}",
            path=record.directory,
            hint=f"git -C {shlex.quote(record.directory)} archive {record.base} > /dev/null fetches it; "
            "or let jobs fetch: git.fetch = true under [coding] in your own settings",
        )
    (own.git_directory / "locked").unlink()
    return missing


async def _find_lfs_pointers(repository: Repository) -> list[str]:
    """The files of git-lfs that are in the tree as git stores them: as a pointer to their content."""
    if not runs_lfs(allowed_settings(await repository.settings(), online=False)):
        return []
    listing = await repository.git("ls-files", "-z", ":(attr:filter=lfs)")
    return await asyncio.to_thread(lambda: [name for name in listing.items if _is_pointer(repository.root / name)])


def _is_pointer(path: Path) -> bool:
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                return file.read(len(_LFS_POINTER)) == _LFS_POINTER
    return False


async def _describe_source(repository: Repository) -> list[str]:
    """What the user should know of the tree that the job's is made from."""
    notices = []
    if changes := (await repository.status()).changes:
        names = display_names([each.path for each in changes])
        notices.append(f"the working tree has changes that are not in it: {names}")
    if operation := repository.operation:
        notices.append(f"a {operation} is under way here; the job begins at the last commit")
    elif not await repository.branch():
        notices.append(f"HEAD is detached; the job begins at {(await repository.head())[:12]}")
    if (repository.root / ".gitmodules").is_file():
        notices.append("submodules are empty in it")
    return notices


async def undo_worktree(record: TreeRecord) -> str:
    """Remove a job's worktree and its branch; see `undo_tree`."""
    repository = _users_repository(record)
    if not await asyncio.to_thread(repository.common.is_dir):
        await _remove(record)
        return f"The repository {record.directory} is gone, and so is the job's tree."
    tip = (await repository.branches()).get(record.branch, "")
    if not tip:
        await _remove(record)
        return "The job's tree is gone; it left no branch."
    pushed = await _check_untouched(repository, record, tip)
    await _remove(record)
    await _delete_branch(record)
    back = "." if tip == record.base else f"; git branch {record.branch} {tip} brings it back."
    return f"The branch {record.branch} is gone{back}" + "".join([f" It is still at {each}." for each in pushed])


async def _check_untouched(repository: Repository, record: TreeRecord, tip: str) -> list[str]:
    """The remote branches that hold the job's. Raises CallerError where somebody built upon it."""
    entry = _find_entry(record)
    if tip != record.head and (record.head or entry is None) and tip != record.base:
        raise CallerError(
            f"the branch {record.branch} is not where the job left it", path=record.directory, hint="delete it yourself"
        )
    listing = (await repository.git("worktree", "list", "--porcelain")).text
    for number, block in enumerate(listing.split("\n\n")):
        lines = block.splitlines()
        if f"branch refs/heads/{record.branch}" in lines and f"worktree {record.root}" not in lines:
            # The first is the main one, of which git is not told where it is.
            path = lines[0].removeprefix("worktree ") if number else str(repository.common.parent)
            raise CallerError(
                f"the branch {record.branch} is checked out", path=path, hint="check another branch out first"
            )
    if tip == record.base:
        return []
    arguments = ("for-each-ref", "--format=%(refname:short)", f"--contains={tip}", "refs/heads", "refs/remotes")
    names = (await repository.git(*arguments)).text.splitlines()
    others = [name for name in names if name != record.branch]
    pushed = [name for name in others if name.endswith(f"/{record.branch}")]
    if merged := [name for name in others if name not in pushed]:
        raise CallerError(
            f"the branch {record.branch} is part of {display_names(merged)}",
            path=record.directory,
            hint="git revert undoes it",
        )
    return pushed


async def _delete_branch(record: TreeRecord) -> None:
    repository = _users_repository(record)
    tip = (await repository.branches()).get(record.branch)
    if tip:
        # Only if it has not moved since.
        await repository.git("update-ref", "-d", f"refs/heads/{record.branch}", tip)
        # What a push wrote; where there is nothing, the file is not touched.
        section = f"branch.{record.branch}"
        if (await repository.configure("--get-regexp", f"^{re.escape(section)}[.]", check=False)).output:
            await repository.configure("--remove-section", section, check=False)


async def _remove(record: TreeRecord) -> None:
    await delete_folders(record.root, record.scratch, _find_entry(record))


async def prune_worktrees(repository: Repository, jobs: Path) -> None:
    """Delete the entries of worktrees whose job's folder is gone."""
    for entry in _entries(repository.common):
        root = _root_of(entry)
        if root is not None and root.name == TREE and root.parent.parent == jobs and not root.parent.exists():
            await delete_folders(entry)


def _find_entry(record: TreeRecord) -> Path | None:
    """The repository's own folder for the job's worktree."""
    return next((entry for entry in _entries(Path(record.common)) if _root_of(entry) == record.root), None)


def _entries(common: Path) -> list[Path]:
    with suppress(OSError):
        return sorted((common / "worktrees").iterdir())
    return []


def _root_of(entry: Path) -> Path | None:
    with suppress(OSError, ValueError):
        return Path((entry / "gitdir").read_text().rstrip("\n")).parent
    return None


def _users_repository(record: TreeRecord) -> Repository:
    """The user's repository, without a working tree."""
    return Repository(Path(record.common), Path(record.common))

"""Open a tree for a job, open it again where the job goes on, fork it, and undo it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from callboard.coding.git.copied_tree import link_objects, make_copy, reopen_copy, undo_copy
from callboard.coding.git.repository import Repository, find_repository
from callboard.coding.git.tree import Tree, TreeRecord
from callboard.coding.git.worktree import make_worktree, prune_worktrees, reopen_worktree, undo_worktree
from callboard.errors import CallerError
from callboard.storage.confined_directory import remove_unfinished
from callboard.text.truncate import truncate


async def open_tree(directory: Path, job: Path, branch: str, at: str = "HEAD", *, fetch: bool = False) -> Tree:
    """Make a worktree of the repository that `directory` is in, or a copy where git has no commit of it.

    Args:
        directory: Where the user is.
        job: The job's folder.
        branch: The name of the branch that is made; if it is taken, it gets a number.
        at: The commit that the branch begins at.
        fetch: Whether what the commit lacks here, in a partial clone or of git-lfs, is fetched.

    Raises:
        CallerError: The repository cannot be used, or the commit is not whole here.
    """
    directory, job = _absolute(directory), _absolute(job)
    if TreeRecord.load(job) is not None:
        raise CallerError("the job has a tree already", path=str(job))
    repository = await find_repository(directory)
    if repository is not None:
        await repository.check_branch(branch)
        await prune_worktrees(repository, job.parent)
        base = await repository.commit_id(at)
        if not base and at != "HEAD":
            raise CallerError(f"{at!r} is no commit", path=str(repository.root))
        if base and await _has_folder(repository, base):
            return await make_worktree(repository, directory, job, branch, base, fetch=fetch)
    return await make_copy(directory, job, branch, in_repository=repository is not None)


async def reopen_tree(directory: Path, job: Path, branch: str, at: str = "HEAD", *, fetch: bool = False) -> Tree:
    """Open the tree of a job whose process died; make it where the process died before that.

    Who calls it holds the job's lock. The arguments are those of `open_tree`.

    Raises:
        CallerError: The repository, the branch or the copy is gone.
    """
    directory, job = _absolute(directory), _absolute(job)
    record = TreeRecord.load(job)
    if record is None:
        return await open_tree(directory, job, branch, at, fetch=fetch)
    repository = await find_repository(directory)
    if record.kind == "copy":
        tree: Tree = await reopen_copy(directory, record, in_repository=repository is not None)
    elif repository is None:
        raise CallerError("the repository that the job began in is gone", path=str(directory))
    else:
        tree = await reopen_worktree(repository, record, fetch=fetch)
    await asyncio.to_thread(remove_unfinished, str(tree.root))
    return tree


async def describe_change(directory: Path, job: Path, limit: int) -> str:
    """What a job has changed since it began, as the beginning of a patch; "" before it has a tree. Raises CallerError."""
    if TreeRecord.load(job) is None:
        return ""
    tree = await reopen_tree(directory, job, "")
    return truncate((await tree.changes()).diff, limit)


def is_closed(job: Path) -> bool:
    """Whether the work in a job's tree ended. Raises CallerError."""
    record = TreeRecord.load(job)
    return record is not None and bool(record.head)


async def undo_tree(record: Mapping[str, Any], job: Path) -> str:
    """Remove what a job made: its tree and its branch.

    Args:
        record: `Tree.record`; the file in the job's folder is newer, and counts.
        job: The job's folder.

    Returns:
        What was done, in a sentence or two.

    Raises:
        CallerError: Somebody built upon the branch: it was moved, checked out or merged.
    """
    current = TreeRecord.load(job)
    if current is None:
        if not record:
            return "The job made no tree."
        current = msgspec.convert(record, TreeRecord)
    # Nothing is deleted but beneath the job's own folder, whatever its record says.
    current = msgspec.structs.replace(current, job=str(await asyncio.to_thread(job.resolve)))
    return await (undo_copy if current.kind == "copy" else undo_worktree)(current)


def _absolute(path: Path) -> Path:
    return path.resolve()


async def _has_folder(repository: Repository, commit: str) -> bool:
    """Whether a commit knows the folder that the repository was found from."""
    if not repository.folder:
        return True
    outcome = await repository.git("rev-parse", "--verify", "--quiet", f"{commit}:{repository.folder}", check=False)
    return outcome.code == 0


async def fork_tree(source: Path, state: str, directory: Path, job: Path, branch: str, *, fetch: bool = False) -> Tree:
    """Make a tree with the files that another job's tree had earlier.

    Where the process died while the tree was made, another call makes it whole. Laws: the new tree begins at the commit,
    or at the files, that the other job's began at, so its change is the whole one; of the other job nothing is changed,
    and the new one needs nothing of it when its tree is made.

    Args:
        source: The folder of the other job.
        state: What `Tree.keep` gave there.
        directory: As of `open_tree`, and so are those that follow.
        job: The folder of the job that gets the tree.
        branch: The name of its branch.
        fetch: Whether what is not here of the commit is fetched.

    Raises:
        CallerError: The other job's files are gone, or the folder that it copied has changed since.
    """
    other = TreeRecord.load(source)
    if other is None or not other.states.is_dir():
        raise CallerError("the files of the job that it is a fork of are gone", path=str(source))
    is_copy = other.kind == "copy"
    states = TreeRecord.states_in(job)
    await link_objects(other.states / "objects", states / "objects")
    if is_copy:
        await link_objects(Path(other.repository) / "objects", states / "objects")
    tree = await reopen_tree(directory, job, branch, "HEAD" if is_copy else other.base, fetch=fetch)
    if await tree.tree_of(tree.base) != await tree.tree_of(other.base):
        raise CallerError("its files have changed since the job began, so no fork of it can begin", path=str(directory))
    await tree.restore(state)
    return tree

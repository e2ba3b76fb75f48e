"""The record of a job's tree, and the way back.

Owns what has to be known to undo a tree, where git keeps what it knows of it, and undoing. Knows nothing of how a
tree is made or worked in.
Law: a branch is deleted only where the job left it, and only if nothing else rests on it; its commit is told.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.coding.git.repository import Repository
from callboard.errors import CallerError
from callboard.storage.atomic_file import write_private
from callboard.text.display import display_names

Kind: TypeAlias = Literal["worktree", "copy", "place"]

TREE: Final = "tree"
"""The folder of the tree, in the job's."""
OWN: Final = "tree.git"
"""The repository of a copy."""
SCRATCH: Final = "digest"
"""What was computed of the tree."""
PATCH: Final = "changes.patch"
"""What changed in a copy, and what was not committed in a worktree."""

_FILE = "tree.json"


class TreeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known to undo a job's tree: JSON in the job's folder, written before the tree is made.

    `directory` is the user's, `repository` and `common` the folders of the repository that the branch is in, `head`
    the commit that the branch was left at, "" while the job works.
    """

    kind: Kind
    job: str
    directory: str
    branch: str
    base: str
    repository: str = ""
    common: str = ""
    head: str = ""


def tree_record(job: Path) -> TreeRecord | None:
    """What a job's folder says of its tree, None if it has none. Raises CallerError."""
    try:
        return msgspec.json.decode((job / _FILE).read_bytes(), type=TreeRecord)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not the record of a tree: {error}", path=str(job / _FILE)) from None


async def undo(record: Mapping[str, Any], job: Path) -> str:
    """Takes back what a job made: its tree and its branch. Gives what was done, in a sentence or two.

    `record` is what `Tree.record` gave; what is in the job's folder is newer, and counts. Raises CallerError where
    somebody built upon the branch: it was moved, checked out or merged.
    """
    known = tree_record(job)
    if known is None:
        if not record:
            return "The job made no tree."
        known = msgspec.convert(record, TreeRecord)
    # Nothing is deleted but beneath the job's own folder, whatever its record says.
    known = msgspec.structs.replace(known, job=str(await asyncio.to_thread(job.resolve)))
    if known.kind == "place":
        raise CallerError("the work was in your own tree", path=known.directory, hint="its snapshots take it back")
    return await (_undo_copy if known.kind == "copy" else _undo_worktree)(known)


async def _undo_copy(record: TreeRecord) -> str:
    await remove(record)
    kept = Path(record.job) / PATCH
    also = f" The changes are still in {kept}." if kept.exists() else ""
    return f"The copy is gone; {record.directory} is as it was.{also}"


async def _undo_worktree(record: TreeRecord) -> str:
    repository = _of_user(record)
    if not _is_there(repository):
        await remove(record)
        return f"The repository {record.directory} is gone, and so is the job's tree."
    tip = (await repository.branches()).get(record.branch, "")
    if not tip:
        await remove(record)
        return "The job's tree is gone; it left no branch."
    pushed = await _check_untouched(repository, record, tip)
    await remove(record)
    await delete_branch(record)
    back = "." if tip == record.base else f"; git branch {record.branch} {tip} brings it back."
    return f"The branch {record.branch} is gone{back}" + "".join([f" It is still at {each}." for each in pushed])


async def _check_untouched(repository: Repository, record: TreeRecord, tip: str) -> list[str]:
    """Raises CallerError where somebody built upon the branch; gives where it was pushed to."""
    entry = entry_of(record)
    if tip != record.head and (record.head or entry is None) and tip != record.base:
        raise CallerError(
            f"the branch {record.branch} is not where the job left it", path=record.directory, hint="delete it yourself"
        )
    listed = (await repository.git("worktree", "list", "--porcelain")).text
    own = str(Path(record.job) / TREE)
    for number, block in enumerate(listed.split("\n\n")):
        lines = block.splitlines()
        if f"branch refs/heads/{record.branch}" in lines and f"worktree {own}" not in lines:
            # The first is the main one, of which git is not told where it is.
            where = lines[0].removeprefix("worktree ") if number else str(repository.common.parent)
            raise CallerError(
                f"the branch {record.branch} is checked out", path=where, hint="check another branch out first"
            )
    if tip == record.base:
        return []
    format_ = "--format=%(refname:short)"
    holding = await repository.git("for-each-ref", format_, f"--contains={tip}", "refs/heads", "refs/remotes")
    others = [name for name in holding.text.splitlines() if name != record.branch]
    pushed = [name for name in others if name.endswith(f"/{record.branch}")]
    if merged := [name for name in others if name not in pushed]:
        raise CallerError(
            f"the branch {record.branch} is part of {display_names(merged)}",
            path=record.directory,
            hint="git revert undoes it",
        )
    return pushed


async def delete_branch(record: TreeRecord) -> None:
    """Deletes the branch, only if it is where it was seen."""
    repository = _of_user(record)
    tip = (await repository.branches()).get(record.branch)
    if tip:
        await repository.git("update-ref", "-d", f"refs/heads/{record.branch}", tip)
        # What a push left there; where there is nothing the file is not written.
        section = f"branch.{record.branch}"
        if (await repository.configure("--get-regexp", f"^{re.escape(section)}[.]", check=False)).output:
            await repository.configure("--remove-section", section, check=False)


async def remove(record: TreeRecord) -> None:
    """The job's tree, what git knows of it, and what was computed of it."""
    job = Path(record.job)
    entry = entry_of(record) if record.kind == "worktree" else None
    for folder in (job / TREE, job / SCRATCH, *((job / OWN,) if record.kind == "copy" else ()), entry):
        if folder is not None:
            await asyncio.to_thread(_delete, folder)


async def prune(repository: Repository, jobs: Path) -> None:
    """Takes away what git knows of trees whose job's folder is gone."""
    for entry in _entries(repository.common):
        root = _root_of(entry)
        if root is not None and root.name == TREE and root.parent.parent == jobs and not root.parent.exists():
            await asyncio.to_thread(_delete, entry)


def entry_of(record: TreeRecord) -> Path | None:
    """The repository's own folder for the job's working tree."""
    root = Path(record.job) / TREE
    return next((entry for entry in _entries(Path(record.common)) if _root_of(entry) == root), None)


def _entries(common: Path) -> list[Path]:
    with suppress(OSError):
        return sorted((common / "worktrees").iterdir())
    return []


def _root_of(entry: Path) -> Path | None:
    """Where the working tree of an entry is."""
    with suppress(OSError, ValueError):
        return Path((entry / "gitdir").read_text().rstrip("\n")).parent
    return None


def _is_there(repository: Repository) -> bool:
    return repository.common.is_dir()


def _of_user(record: TreeRecord) -> Repository:
    """The user's repository, of which only branches are asked."""
    return Repository(Path(record.common), Path(record.common))


def write_record(record: TreeRecord) -> None:
    write_private(Path(record.job) / _FILE, msgspec.json.format(msgspec.json.encode(record), indent=2))


def _delete(folder: Path) -> None:
    def allow(again: Callable[..., Any], path: str, _error: Any) -> None:
        # A folder that may not be read or written to.
        for each in (Path(path).parent, Path(path)):
            with suppress(OSError):
                if not each.is_symlink() and each.is_dir():
                    each.chmod(each.stat().st_mode | stat.S_IRWXU)
        with suppress(FileNotFoundError):
            if Path(path).is_dir() and not Path(path).is_symlink():
                shutil.rmtree(path)
            else:
                again(path)

    with suppress(FileNotFoundError):
        shutil.rmtree(folder, onerror=allow)

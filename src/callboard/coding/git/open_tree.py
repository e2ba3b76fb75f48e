"""Open a tree for a job, open it again when the job resumes, fork it, and undo it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.coding.git.files import copy_files, link_objects
from callboard.coding.git.process import git_error
from callboard.coding.git.repository import Repository, create_repository, find_repository
from callboard.coding.git.settings import Setting, allowed_settings, format_settings, runs_lfs, unused_filters
from callboard.coding.git.tree import Tree, TreeRecord, delete_folders
from callboard.coding.git.tree_state import settle_index
from callboard.errors import CallerError
from callboard.storage.confined_directory import remove_unfinished
from callboard.text.display import display_names
from callboard.text.truncate import truncate

INSTALLED: Final = (".venv", "venv", "node_modules")
"""Folders of installed packages: read where they are instead of copied."""
SLOW_SECONDS: Final = 0.5
"""If making a tree takes longer, waiting for `settle_index` pays off."""

_MAX_PACKAGES: Final = 100
_FIRST_COMMIT: Final = "As it was"
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_COPIED: Final = ("shallow", "info/exclude", "info/attributes", "info/sparse-checkout")
"""Files of a repository that say which commits and files it has, and how they are written."""
_OUR_OWN: Final = frozenset({"extensions.refstorage"})


async def open_tree(directory: Path, job: Path, branch: str, at: str = "HEAD", *, fetch: bool = False) -> Tree:
    """Make a clone of the repository that contains `directory`, or a copy if git has no commit of it.

    Args:
        directory: The user's directory.
        job: The job's folder.
        branch: The name of the new branch; if it is taken, it gets a number.
        at: The commit at which the branch begins.
        fetch: True to fetch missing objects of the commit, in a partial clone or of git-lfs.

    Raises:
        CallerError: The repository cannot be used, or objects of the commit are missing.
    """
    if TreeRecord.load(job) is not None:
        raise CallerError("the job has a tree already", path=str(job))
    return await _make(directory, job, branch, at, fetch=fetch)


async def _make(directory: Path, job: Path, branch: str, at: str, *, fetch: bool) -> Tree:
    directory, job = [await asyncio.to_thread(each.resolve) for each in (directory, job)]
    repository = await find_repository(directory)
    record = TreeRecord(kind="copy", job=str(job), directory=str(directory), branch=branch)
    if repository is not None:
        await repository.check_branch(branch)
        base = await repository.commit_id(at)
        if not base and at != "HEAD":
            raise CallerError(f"unknown commit {at!r}", path=str(repository.root))
        if base and await _has_folder(repository, base):
            record = replace(record, kind="clone", common=str(repository.common))
            try:
                return await _clone(repository, record, base, fetch=fetch)
            except CallerError:
                await delete_folders(record.root, record.git_directory)
                raise
    return await _copy(record, in_repository=repository is not None)


async def _has_folder(repository: Repository, commit: str) -> bool:
    """Return whether a commit knows the folder that the repository was found from."""
    if not repository.folder:
        return True
    outcome = await repository.git("rev-parse", "--verify", "--quiet", f"{commit}:{repository.folder}", check=False)
    return outcome.code == 0


async def _clone(repository: Repository, record: TreeRecord, base: str, *, fetch: bool) -> Tree:
    """Make the job's repository with a branch at a commit of the user's, and its files."""
    branches = await repository.branches()
    branch, number = record.branch, 1
    while branch in branches:
        number += 1
        branch = f"{record.branch}-{number}"
    record = replace(record, branch=branch)
    record.save()
    record.root.mkdir()
    own = record.open_repository()
    await create_repository(own.root, own.git_directory, repository)
    await _copy_configuration(repository, own)
    began = monotonic()
    missing = await _check_out(repository, own, base, fetch=fetch)
    if monotonic() - began > SLOW_SECONDS:
        await settle_index(own)
    await own.create_branch(branch, base)
    await own.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    record = replace(record, base=base)
    notices = await _describe_source(repository)
    if missing:
        notices.append(f"git-lfs has not fetched these here (git lfs pull does): {display_names(missing)}")
    return await _open(record, own, repository, notices)


async def _copy_configuration(source: Repository, own: Repository) -> None:
    """Copy from the user's repository the settings that are data, the names of its commits, and its list of files."""
    settings = [each for each in await source.settings() if not each.is_of_user]
    allowed = [each for each in allowed_settings(settings, online=False) if each.key not in _OUR_OWN]
    # Files with such a filter are not committed, so its name is needed.
    filters = [Setting("local", "filter", name, "clean", "false") for name in unused_filters(settings)]
    references = await source.git("for-each-ref", "--format=%(objectname) %(refname)")

    def write() -> None:
        with (own.git_directory / "config").open("ab") as configuration:
            configuration.write(os.fsencode(format_settings([*allowed, *filters])))
        (own.git_directory / "packed-refs").write_bytes(references.output)
        (own.git_directory / "info" / "attributes").unlink()
        for name in _COPIED:
            for folder in (source.common, source.git_directory):
                with suppress(OSError):
                    (own.git_directory / name).write_bytes((folder / name).read_bytes())

    await asyncio.to_thread(write)


async def _check_out(repository: Repository, own: Repository, base: str, *, fetch: bool) -> list[str]:
    """Write the files, and fetch what is missing if `fetch` allows it; return those that git-lfs has not fetched.

    The user's repository does it, for only there is it known where missing files are. Raises CallerError.
    """
    arguments = ("read-tree", "--reset", "-u", base)
    location = {"GIT_WORK_TREE": str(own.root), "GIT_INDEX_FILE": str(own.git_directory / "index")}
    outcome = await repository.git(*arguments, check=False, environment=location, writable=[own.root])
    missing = await _find_lfs_pointers(own)
    if fetch and (outcome.code or missing):
        for path in missing:
            (own.root / path).unlink()
        outcome = await repository.git(*arguments, check=False, environment=location, online=True)
        missing = await _find_lfs_pointers(own)
    if not outcome.code:
        return missing
    error, path = git_error(outcome, arguments, str(repository.root)), str(repository.root)
    if fetch or not await repository.is_partial():
        raise error
    raise CallerError(
        f"this is a partial clone, and not all of {base[:12]} is here: {error.message}",
        path=path,
        hint=f"git -C {shlex.quote(path)} archive {base} > /dev/null fetches it; "
        "or let jobs fetch: git.fetch = true under [coding] in your own settings",
    )


async def _find_lfs_pointers(repository: Repository) -> list[str]:
    """Return the files of git-lfs that are in the tree as git stores them: as a pointer to their content."""
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
    """Return notices about the user's tree, from which the job's tree is made."""
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


async def _copy(record: TreeRecord, *, in_repository: bool) -> Tree:
    """Copy the user's folder into the job's, and commit it there."""
    record.save()
    directory, own = Path(record.directory), record.open_repository()
    left_out = await copy_files(directory, own.root, without=Path(record.job))
    own.hidden = frozenset(await _find_installed(directory, None))
    await create_repository(own.root, own.git_directory)
    await own.check_branch(record.branch)
    await own.git("symbolic-ref", "HEAD", f"refs/heads/{record.branch}")
    await own.configure("core.autocrlf", "false")
    began = monotonic()
    large = [name for name in await own.stage() if not name.endswith("/")]
    lines = [b"/" + re.sub(rb"([\\*?\[ ])", rb"\\\1", os.fsencode(name)) + b"\n" for name in large]
    (own.git_directory / "info" / "exclude").write_bytes(b"".join(lines))
    if monotonic() - began > SLOW_SECONDS:
        await settle_index(own)
    identity = await own.committer_variables()
    await own.git("commit", "--quiet", "--allow-empty", f"--message={_FIRST_COMMIT}", environment=identity)
    record = replace(record, base=await own.head())
    why = "is in no commit yet" if in_repository else "is no git repository"
    notices = [f"{directory} {why}: the job works on a copy, and its result is a patch"]
    if left_out:
        notices.append(f"not in the copy: {display_names(left_out)}")
    if large:
        notices.append(f"no part of the result, since they have more than 50 MB: {display_names(large)}")
    return await _open(record, own, None, notices)


async def _open(record: TreeRecord, own: Repository, source: Repository | None, notices: list[str]) -> Tree:
    """Return the finished tree; the user's git finds its repository, and the record says that it is complete."""
    borrowed = await _find_installed(source.root if source else Path(record.directory), source, record.base)
    own.hidden = frozenset(borrowed)
    own.folder = source.folder if source else ""
    pointer = own.root / ".git"
    if not pointer.is_file():
        # Exclusively: a link would lead elsewhere, also one that leads nowhere yet.
        with pointer.open("x") as file:
            file.write(f"gitdir: {own.git_directory}\n")
    record.save()
    return Tree(record, own, borrowed, notices)


async def _find_installed(root: Path, repository: Repository | None, base: str = "") -> dict[str, Path]:
    """Return ignored folders of installed packages, and virtual environments that are not in the commit `base`.

    They are at the top, in the user's folder, and beside a package.json.
    """
    folders = await asyncio.to_thread(_installed_folders, root, repository.folder if repository else "")
    if repository is not None and folders:
        lines = b"".join([os.fsencode(name) + b"\0" for name in folders])
        ignored = await repository.git("check-ignore", "-z", "--stdin", stdin=lines, check=False)
        committed = await repository.git("ls-tree", "--full-tree", "-z", "--name-only", base, "--", *folders)
        environments = await asyncio.to_thread(_find_environments, folders)
        names = {*ignored.items, *({*environments} - {*committed.items})}
        folders = {name: path for name, path in folders.items() if name in names}
    return folders


def _find_environments(folders: Mapping[str, Path]) -> list[str]:
    """Return the folders that are virtual environments. Before Python 3.13 they have no .gitignore of their own."""
    return [name for name, path in folders.items() if (path / "pyvenv.cfg").is_file()]


def _installed_folders(root: Path, folder: str) -> dict[str, Path]:
    names = {*INSTALLED, *(f"{folder}/{name}" for name in INSTALLED if folder)}
    with suppress(OSError):
        packages = sorted(root.glob("*/package.json"))[:_MAX_PACKAGES]
        names |= {f"{package.parent.name}/node_modules" for package in packages}
    return {name: root / name for name in sorted(names) if (root / name).is_dir() and not (root / name).is_symlink()}


async def reopen_tree(directory: Path, job: Path, branch: str, at: str = "HEAD", *, fetch: bool = False) -> Tree:
    """Open the tree of a job whose process died; make it if the process had not made it.

    The caller holds the job's lock. The arguments are as in `open_tree`.

    Raises:
        CallerError: The user's repository or the job's is gone.
    """
    record = TreeRecord.load(job)
    if record is None or not record.base:
        if record is not None:
            await delete_folders(record.root, record.git_directory)
        return await _make(directory, job, branch or (record.branch if record else ""), at, fetch=fetch)
    repository = await find_repository(directory)
    if record.kind == "clone":
        if repository is None:
            raise CallerError("the repository that the job began in is gone", path=str(directory))
        if str(repository.common) != record.common or not await repository.commit_id(record.base):
            why = "this is not the repository that the job began in, or the commit that the job began at was pruned"
            raise CallerError(why, path=str(directory))
    own = record.open_repository()
    if not await asyncio.to_thread(own.git_directory.is_dir):
        raise CallerError("the repository that the job worked in is gone", path=str(own.git_directory))
    # Locks of a killed git: the repository is the job's, so no other process can hold them.
    for lock in (*own.git_directory.glob("*.lock"), *(own.git_directory / "refs").rglob("*.lock")):
        lock.unlink(missing_ok=True)
    if not await asyncio.to_thread((own.root / ".git").is_file):
        await delete_folders(own.root)
        await asyncio.to_thread(own.root.mkdir)
        await own.git("reset", "--hard", "--quiet", "--no-recurse-submodules")
    tree = await _open(replace(record, head=""), own, repository if record.kind == "clone" else None, [])
    await asyncio.to_thread(remove_unfinished, str(tree.root))
    return tree


async def describe_change(directory: Path, job: Path, limit: int) -> str:
    """Return the start of a patch of the job's changes; "" before the job has a tree. Raises CallerError."""
    if TreeRecord.load(job) is None:
        return ""
    tree = await reopen_tree(directory, job, "")
    return truncate((await tree.changes()).diff, limit)


def is_closed(job: Path) -> bool:
    """Return whether the work in a job's tree has ended. Raises CallerError."""
    record = TreeRecord.load(job)
    return record is not None and bool(record.head)


async def fork_tree(source: Path, state: str, directory: Path, job: Path, branch: str, *, fetch: bool = False) -> Tree:
    """Make a tree with the files that another job's tree had earlier.

    If the process dies meanwhile, another call completes the tree. Laws: the new tree has the same base as the other
    job's tree, so its diff is the whole change. The other job is not changed, and the new tree does not depend on it.

    Args:
        source: The folder of the other job.
        state: The result of `Tree.keep` for that tree.
        directory: The user's directory, as in `open_tree`.
        job: The folder of the job that gets the tree.
        branch: The name of its branch.
        fetch: True to fetch missing objects of the commit.

    Raises:
        CallerError: The other job's files are gone, or the folder that it copied has changed since.
    """
    other = TreeRecord.load(source)
    if other is None or not other.git_directory.is_dir():
        raise CallerError("the files of the job that it is a fork of are gone", path=str(source))
    at = other.base if other.kind == "clone" else "HEAD"
    tree = await reopen_tree(directory, job, branch, at, fetch=fetch)
    await asyncio.to_thread(link_objects, other.git_directory / "objects", tree.repository.common / "objects")
    if await tree.tree_of(tree.base) != await tree.tree_of(other.base):
        raise CallerError("its files have changed since the job began, so no fork of it can begin", path=str(directory))
    await tree.restore(state)
    return tree


async def undo_tree(record: Mapping[str, Any], job: Path) -> str:
    """Remove a job's tree and branch.

    Args:
        record: `Tree.record`; the newer file in the job's folder takes precedence.
        job: The job's folder.

    Returns:
        A sentence or two for the user about the removal.

    Raises:
        CallerError: Somebody built upon the branch: it was moved, checked out or merged.
    """
    current = TreeRecord.load(job)
    if current is None:
        if not record:
            return "The job made no tree."
        current = msgspec.convert(record, TreeRecord)
    # Nothing is deleted but beneath the job's own folder, whatever its record says.
    current = replace(current, job=str(await asyncio.to_thread(job.resolve)))
    if current.kind == "clone":
        done = await _undo_branch(current)
    else:
        done = f"The copy is gone; {current.directory} is as it was."
        if await asyncio.to_thread(current.patch.exists):
            done += f" The changes are still in {current.patch}."
    await delete_folders(current.root, current.git_directory)
    return done


async def _undo_branch(record: TreeRecord) -> str:
    """Delete a job's branch from the user's repository, if it is there and as the job left it."""
    user = record.users_repository()
    if not await asyncio.to_thread(user.common.is_dir):
        return f"The repository {record.directory} is gone, and so is the job's tree."
    tip = (await user.branches()).get(record.branch, "")
    commits: list[str] = []
    if bool(record.base) and await asyncio.to_thread(record.git_directory.is_dir):
        await asyncio.to_thread(record.root.mkdir, exist_ok=True)
        # Git fails if the commit that the job began at was pruned; the job can still be undone.
        commits = (await record.open_repository().git("rev-list", f"{record.base}..HEAD", check=False)).text.split()
    if not tip or (tip not in commits and not record.head):
        return f"The job's tree is gone; it left no branch{', and its commits are deleted' if commits else ''}."
    pushed = await _check_untouched(user, record, tip, commits)
    # Only if it has not moved since.
    await user.git("update-ref", "-d", f"refs/heads/{record.branch}", tip)
    # A push wrote this section; without the section, the file is not touched.
    section = f"branch.{record.branch}"
    if (await user.configure("--get-regexp", f"^{re.escape(section)}[.]", check=False)).output:
        await user.configure("--remove-section", section, check=False)
    back = f"The branch {record.branch} is gone; git branch {record.branch} {tip} brings it back."
    return " ".join([back, *[f"It is still at {each}." for each in pushed]])


async def _check_untouched(user: Repository, record: TreeRecord, tip: str, commits: list[str]) -> list[str]:
    """Return the remote branches that contain the job's branch. Raises CallerError if somebody built upon it."""
    branch, path = record.branch, record.directory
    if tip not in commits:
        raise CallerError(f"the branch {branch} is not where the job left it", path=path, hint="delete it yourself")
    await user.check_not_checked_out(branch)
    arguments = ("for-each-ref", "--format=%(refname:short)", f"--contains={tip}", "refs/heads", "refs/remotes")
    others = [name for name in (await user.git(*arguments)).text.split("\n")[:-1] if name != branch]
    pushed = [name for name in others if name.endswith(f"/{branch}")]
    if merged := [name for name in others if name not in pushed]:
        raise CallerError(
            f"the branch {branch} is part of {display_names(merged)}", path=path, hint="git revert undoes it"
        )
    return pushed

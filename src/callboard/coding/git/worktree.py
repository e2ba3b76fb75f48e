"""Where a job works: in a tree of files that is not the user's.

Owns how such a tree is made, what changed in it, how it ends and how it is undone. Knows nothing of jobs but their
folder. How files are copied is `copying`'s business.
Law: of the user's repository, only the job's own branch and its own entry among the working trees are written, besides
objects; their files, index, stash, HEAD and other branches are as they were, whenever the process dies. What will be
made is on disk before it is made, so that it can be undone.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.coding.git.copy_tree import BORROWED, copy_tree
from callboard.coding.git.process import GitFailed, GitOutcome, failed, run_git
from callboard.coding.git.repository import MAX_DIFF, Commit, Repository, find_repository
from callboard.coding.git.settings import allowed_settings, format_settings, runs_lfs
from callboard.coding.git.tree_state import settle, state_of
from callboard.coding.git.undo_worktree import (
    OWN,
    PATCH,
    SCRATCH,
    TREE,
    Kind,
    TreeRecord,
    delete_branch,
    entry_of,
    prune,
    remove,
    tree_record,
    undo,
    write_record,
)
from callboard.errors import CallerError
from callboard.storage.atomic_file import write_private
from callboard.text.display import display_names

__all__ = ["Changes", "Kind", "Tree", "TreeRecord", "open_place", "open_tree", "reopen_tree", "tree_record", "undo"]

MAX_PATCH: Final = 64 * 1024 * 1024
"""Bytes of a patch that is kept of what was not committed."""

_MAX_PACKAGES = 100
_LARGE = 0.5
"""Seconds that it takes to make a tree for which it is worth waiting for the next second."""
_CHECK_OUT = ("reset", "--hard", "--quiet", "--no-recurse-submodules")
_SPARSE = frozenset({"core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse"})
_POINTER = b"version https://git-lfs.github.com/spec/"
_COPIED = "As it was"
# Of a copy the bytes count: its patch is for the files as they are.
_EXACTLY = "* -text -filter -ident -working-tree-encoding\n"


class Changes(msgspec.Struct, frozen=True):
    """What differs from where the job began: files, the patch, the commits. `cut` says that the patch is longer."""

    files: tuple[str, ...]
    diff: str
    commits: tuple[Commit, ...]
    cut: bool = False


class Tree:
    """A worktree on a branch of its own, a copy with a repository of its own, or the user's own tree (`place`).

    Made by `open_tree`, `open_place` and `reopen_tree`. `borrowed` are folders of the user's tree, by their place in
    this one, that are read there; `notices` is what the user should know. `patch` is where the result of a copy is
    when it is closed.
    """

    def __init__(
        self,
        record: TreeRecord,
        repository: Repository,
        borrowed: Mapping[str, Path] | None = None,
        notices: tuple[str, ...] = (),
    ) -> None:
        self._record = record
        self.repository = repository
        self.root = repository.root
        self.base = record.base
        self.branch = record.branch
        self.kind = record.kind
        self.borrowed = dict(borrowed or {})
        self.notices = notices
        self.patch = Path(record.job) / PATCH
        # What is computed of the tree has one place.
        self._computing = asyncio.Lock()
        self._differing: dict[str, tuple[str, ...]] = {}
        """By git tree: the files that differ from the base in it."""

    @property
    def record(self) -> dict[str, Any]:
        """What `undo` and `reopen_tree` need, as JSON has it."""
        told: dict[str, Any] = msgspec.to_builtins(self._record)
        return told

    async def look(self) -> tuple[str, tuple[str, ...]]:
        """The digest, and the files that differ from the base, whether that is committed or not."""
        found: dict[str, str] = {}
        async with self._computing:
            state = await state_of(self.repository, self._scratch, found)
            return state.name, await self._files(state.tree, found)

    async def changes(self) -> Changes:
        """What differs from the base, whether it is committed or not."""
        found: dict[str, str] = {}
        async with self._computing:
            state = (await state_of(self.repository, self._scratch, found)).tree
            patch = await self._patch(self.base, state, found, MAX_DIFF)
            files = await self._files(state, found)
        return Changes(
            files=files,
            diff=patch.output.decode("utf-8", "replace"),
            commits=await self.repository.log(1000, since=self.base),
            cut=patch.cut,
        )

    async def commit(self, message: str) -> str | None:
        """Commits all that changed, and gives the id; None if nothing did.

        Files that are too large, and those that a filter is for which is not run, are left out, and named in the
        notices.
        """
        left_out = await self.repository.stage()
        if left_out:
            why = "of more than 50 MB, or for a filter or in a repository of its own"
            self.notices = (*self.notices, f"not committed ({why}): {display_names(left_out)}")
        try:
            return await self.repository.commit(message, files=())
        except GitFailed as error:
            if error.message.startswith("nothing to commit"):
                return None
            raise

    async def close(self, *, keep: bool) -> None:
        """Ends the work: the tree goes unless it is to be kept, its branch stays if it has commits.

        What was not committed, and all that changed in a copy, is in `patch`.
        """
        if self.kind == "place":
            return
        # Git works in the folder, which may be gone.
        gone = not await asyncio.to_thread(_made_sure, self.root)
        head = await self.repository.head()
        if not gone:
            await self._keep_patch(self.base if self.kind == "copy" else head)
        self._record = replace(self._record, head=head)
        write_record(self._record)
        if keep:
            return
        await remove(self._record)
        if self.kind == "worktree" and head == self.base:
            await delete_branch(self._record)

    async def push(self, remote: str = "origin") -> str:
        """Pushes the branch; see `Repository.push`."""
        return await self.repository.push(self.branch, remote)

    @property
    def _scratch(self) -> Path:
        return Path(self._record.job) / SCRATCH

    async def _files(self, state: str, environment: Mapping[str, str]) -> tuple[str, ...]:
        if state not in self._differing:
            names = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self.base or "HEAD", state)
            self._differing[state] = tuple((await self.repository.git(*names, environment=environment)).items)
        return self._differing[state]

    async def _patch(
        self, base: str, state: str, environment: Mapping[str, str], limit: int, flags: Sequence[str] = ()
    ) -> GitOutcome:
        return await self.repository.git(
            "diff", *flags, base or self.base or "HEAD", state, "--", limit=limit, environment=environment
        )

    async def _keep_patch(self, base: str) -> None:
        found: dict[str, str] = {}
        async with self._computing:
            state = (await state_of(self.repository, self._scratch, found)).tree
            patch = await self._patch(base, state, found, MAX_PATCH, ("--binary", "--full-index"))
        if patch.cut:
            raise CallerError(
                f"what changed is more than {MAX_PATCH} bytes as a patch",
                path=str(self.root),
                hint="the tree stays: take what you need from it",
            )
        if patch.output:
            write_private(self.patch, patch.output)


async def open_tree(directory: Path, job: Path, branch: str, at: str = "HEAD", *, fetch: bool = False) -> Tree:
    """Make a tree for a job on the repository that `directory` is in, or on a copy where git has no commit of it.

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
    if tree_record(job) is not None:
        raise CallerError("the job has a tree already", path=str(job))
    repository = await find_repository(directory)
    if repository is not None:
        await repository.check_branch(branch)
        await prune(repository, job.parent)
        base = await repository.commit_id(at)
        if not base and at != "HEAD":
            raise CallerError(f"{at!r} is no commit", path=str(repository.root))
        if base and await _has_folder(repository, base):
            return await _worktree(repository, directory, job, branch, base, fetch=fetch)
    return await _copy(directory, job, branch, repository)


async def open_place(directory: Path, job: Path) -> Tree | None:
    """The user's own tree, for work that the user looks at; None where there is no repository."""
    repository = await find_repository(directory)
    if repository is None:
        return None
    record = TreeRecord(
        kind="place",
        job=str(_absolute(job)),
        directory=str(_absolute(directory)),
        branch=await repository.branch(),
        base=await repository.head(),
        repository=str(repository.git_directory),
        common=str(repository.common),
    )
    return Tree(record, repository, notices=await _notices(repository))


async def reopen_tree(record: TreeRecord) -> Tree:
    """The tree of a job that was interrupted. Nobody else may work in it. Raises CallerError if it is not whole."""
    root = Path(record.job) / TREE
    own = Path(record.repository) if record.kind == "copy" else entry_of(record)
    if own is None or not root.is_dir():
        raise CallerError("the job's tree is gone", path=str(root))
    # Git takes its lock away when all files are there; ours is written then.
    if not record.base or (own / "locked").exists():
        raise CallerError("the job's tree was not finished", path=str(root), hint="undo the job, and begin again")
    with suppress(FileNotFoundError):
        (own / "index.lock").unlink()
    repository = Repository(root, own, Path(record.common), only_branch=record.branch)
    source = await find_repository(Path(record.directory))
    borrowed = await _borrowed(source.root if source else Path(record.directory), source)
    repository.hidden = frozenset(borrowed)
    return Tree(record, repository, borrowed)


def _made_sure(folder: Path) -> bool:
    """Whether a folder was there; it is then."""
    try:
        folder.mkdir()
    except FileExistsError:
        return True
    return False


def _absolute(path: Path) -> Path:
    return path.resolve()


# How it is made


async def _worktree(repository: Repository, directory: Path, job: Path, branch: str, base: str, *, fetch: bool) -> Tree:
    record = TreeRecord(
        kind="worktree",
        job=str(job),
        directory=str(directory),
        branch=branch,
        base=base,
        repository=str(repository.git_directory),
        common=str(repository.common),
    )
    record = await _new_branch(repository, record)
    own = await _entered(repository, record)
    borrowed = await _borrowed(repository.root, repository)
    own.hidden = frozenset(borrowed)
    began = monotonic()
    try:
        missing = await _check_out(own, record, fetch=fetch)
    except CallerError:
        await remove(record)
        await delete_branch(record)
        raise
    if monotonic() - began > _LARGE:
        await settle(own)
    notices = await _notices(repository)
    if missing:
        notices = (*notices, f"git-lfs has not fetched these here (git lfs pull does): {display_names(missing)}")
    return Tree(record, own, borrowed, notices)


async def _entered(repository: Repository, record: TreeRecord) -> Repository:
    """The job's working tree as git knows it, without a file in it; it is locked until they are there."""
    root = Path(record.job) / TREE
    (repository.common / "worktrees").mkdir(exist_ok=True)
    arguments = ("worktree", "add", "--lock", "--no-checkout", "--quiet", str(root), record.branch)
    await repository.git(*arguments, writable=[root.parent])
    entry = entry_of(record)
    if entry is None:
        raise CallerError("git made no working tree", path=str(root))
    # Some releases of git write the place by which they were told of it, which is nowhere for long.
    (root / ".git").write_text(f"gitdir: {entry}\n")
    # Git copies which files are wanted, but not from the file that we keep from it that only some are.
    sparse = [each for each in await repository.settings() if each.scope == "worktree" and each.key in _SPARSE]
    if sparse:
        (entry / "config.worktree").write_text(format_settings(sparse))
    return Repository(root, entry, repository.common, folder=repository.folder, only_branch=record.branch)


async def _check_out(own: Repository, record: TreeRecord, *, fetch: bool) -> list[str]:
    """Put the files of its branch into a job's tree; gives those that git-lfs has not fetched.

    Nothing is fetched, unless something is missing and `fetch` allows it. Raises CallerError.
    """
    made = await own.git(*_CHECK_OUT, check=False)
    missing = await _pointers(own)
    if fetch and (made.code or missing):
        for path in missing:
            (own.root / path).unlink()
        made = await own.git(*_CHECK_OUT, check=False, online=True)
        missing = await _pointers(own)
    if made.code:
        error = failed(made, _CHECK_OUT, record.directory)
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


async def _pointers(repository: Repository) -> list[str]:
    """The files of git-lfs that stand in the tree as git has them: as the name of their content."""
    if not runs_lfs(allowed_settings(await repository.settings(), online=False)):
        return []
    listed = await repository.git("ls-files", "-z", ":(attr:filter=lfs)")
    return await asyncio.to_thread(lambda: [name for name in listed.items if _is_pointer(repository.root / name)])


def _is_pointer(path: Path) -> bool:
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                return file.read(len(_POINTER)) == _POINTER
    return False


async def _new_branch(repository: Repository, record: TreeRecord) -> TreeRecord:
    """Makes the first branch that is free of `name`, `name-2`, ...; the record is on disk before it."""
    number = 1
    while True:
        name = record.branch if number == 1 else f"{record.branch}-{number}"
        if name not in await repository.branches():
            planned = replace(record, branch=name)
            write_record(planned)
            try:
                await repository.create_branch(name, record.base)
            except GitFailed:
                if name not in await repository.branches():
                    raise
            else:
                return planned
        number += 1


async def _copy(directory: Path, job: Path, branch: str, repository: Repository | None) -> Tree:
    own = Repository(job / TREE, job / OWN, folder="", only_branch=branch)
    record = TreeRecord(
        kind="copy",
        job=str(job),
        directory=str(directory),
        branch=branch,
        base="",
        repository=str(own.git_directory),
        common=str(own.common),
    )
    write_record(record)
    left_out = await copy_tree(directory, own.root, without=job)
    borrowed = await _borrowed(directory, None)
    own.hidden = frozenset(borrowed)
    # The first branch gets its name through the environment of no repository: it is made here.
    made = {"GIT_DIR": str(own.git_directory), "GIT_WORK_TREE": str(own.root)}
    await run_git(["init", "--quiet", "--template="], own.root, environment=made, writable=[job])
    info = own.git_directory / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text(_EXACTLY)
    await own.check_branch(branch)
    await own.git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    await own.configure("core.autocrlf", "false")
    # Only what is made here: a link would lead elsewhere, also one that leads nowhere yet.
    with (own.root / ".git").open("x") as pointer:
        pointer.write(f"gitdir: {own.git_directory}\n")
    began = monotonic()
    large = [name for name in await own.stage() if not name.endswith("/")]
    (info / "exclude").write_bytes(b"".join([_excluded(name) for name in large]))
    if monotonic() - began > _LARGE:
        await settle(own)
    await own.git("commit", "--quiet", "--allow-empty", f"--message={_COPIED}", environment=await own.identity())
    record = replace(record, base=await own.head())
    write_record(record)
    why = "is in no commit yet" if repository else "is no git repository"
    notices = [f"{directory} {why}: the job works on a copy, and its result is a patch"]
    if left_out:
        notices.append(f"not in the copy: {display_names(left_out)}")
    if large:
        notices.append(f"no part of the result, since they have more than 50 MB: {display_names(large)}")
    return Tree(record, own, borrowed, tuple(notices))


def _excluded(path: str) -> bytes:
    """A line of git's exclude file that means this path alone."""
    return b"/" + re.sub(rb"([\\*?\[ ])", rb"\\\1", os.fsencode(path)) + b"\n"


async def _has_folder(repository: Repository, commit: str) -> bool:
    """Whether a commit knows the folder that the repository was found from."""
    if not repository.folder:
        return True
    outcome = await repository.git("rev-parse", "--verify", "--quiet", f"{commit}:{repository.folder}", check=False)
    return outcome.code == 0


async def _borrowed(root: Path, repository: Repository | None) -> dict[str, Path]:
    """Folders of what is installed, which git does not know: at the top, and packages' own one folder down."""
    found = await asyncio.to_thread(_installed, root, repository.folder if repository else "")
    if repository is not None and found:
        told = b"".join([os.fsencode(name) + b"\0" for name in found])
        ignored = await repository.git("check-ignore", "-z", "--stdin", stdin=told, check=False)
        found = {name: found[name] for name in ignored.items}
    return found


def _installed(root: Path, folder: str) -> dict[str, Path]:
    places = {*BORROWED, *(f"{folder}/{name}" for name in BORROWED if folder)}
    with suppress(OSError):
        packages = sorted(root.glob("*/package.json"))[:_MAX_PACKAGES]
        places |= {f"{package.parent.name}/node_modules" for package in packages}
    return {
        place: root / place for place in sorted(places) if (root / place).is_dir() and not (root / place).is_symlink()
    }


async def _notices(repository: Repository) -> tuple[str, ...]:
    """What the user should know of the tree that the job's is made from."""
    told = []
    status = await repository.status()
    if status.changes:
        told.append(
            f"the working tree has changes that are not in it: {display_names([each.path for each in status.changes])}"
        )
    if operation := repository.operation:
        told.append(f"a {operation} is under way here; the job begins at the last commit")
    elif not await repository.branch():
        told.append(f"HEAD is detached; the job begins at {(await repository.head())[:12]}")
    if (repository.root / ".gitmodules").is_file():
        told.append("submodules are empty in it")
    return tuple(told)

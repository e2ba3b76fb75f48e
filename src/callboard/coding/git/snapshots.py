"""States of the user's own tree, to go back to.

Owns a repository in the job's folder whose working tree is the user's. Knows nothing of what changed it.
Law: nothing of the user's `.git` is written; files come back byte for byte. What git ignores there, other
repositories inside, and files of more than 50 MB are no part of a state, and are left as they are.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from callboard.coding.git.process import run_git
from callboard.coding.git.repository import MAX_DIFF, Repository, find_repository
from callboard.coding.git.tree_state import NEW_FILES, put
from callboard.errors import CallerError

MAX_FILES: Final = 200_000
MAX_FILE: Final = 50 * 1024 * 1024
"""Bytes of a file that is kept."""

_REPOSITORY = "snapshots.git"
# No line ending, filter or keyword is changed on the way.
_EXACTLY = "* -text -filter -ident -working-tree-encoding\n"
_BEFORE = "before going back"


class Snapshot(msgspec.Struct, frozen=True):
    """A state: what it is called by, what it was taken for, and when, as ISO 8601."""

    id: str
    label: str
    at: str


class Snapshots:
    """The states of the tree `root`, kept in `folder`. Made by `open_snapshots`."""

    def __init__(self, repository: Repository, source: Repository | None) -> None:
        self._own = repository
        self._source = source

    async def take(self, label: str) -> str:
        """Keeps the tree as it is; gives the state's id, the last one's if nothing changed. Raises CallerError."""
        last = await self._own.head()
        state = await self._state()
        if last and state == (await self._own.git("rev-parse", f"{last}^{{tree}}")).text.strip():
            return last
        parents = ["-p", last] if last else []
        told = (" ".join(label.split()) or "state").encode("utf-8", "replace")
        environment = await self._own.identity()
        made = await self._own.git("commit-tree", *parents, "-F", "-", state, stdin=told, environment=environment)
        identifier = made.text.strip()
        await self._own.git("update-ref", "HEAD", identifier)
        return identifier

    async def diff(self, identifier: str) -> str:
        """What changed in the tree since a state, as a patch. Raises CallerError."""
        commit = await self._known(identifier)
        state = await self._state()
        outcome = await self._own.git("diff", commit, state, "--", limit=MAX_DIFF)
        return outcome.output.decode("utf-8", "replace")

    async def restore(self, identifier: str) -> tuple[str, ...]:
        """Makes the tree what it was in a state, and gives the files that changed by it.

        The tree as it is now is kept first, so this can be taken back too. Raises CallerError.
        """
        commit = await self._known(identifier)
        now = await self.take(_BEFORE)
        files = await self.differences(now, commit)
        if files:
            await self._own.git("read-tree", "--reset", "-u", commit)
            await self.take(f"as in {commit[:12]}")
        return tuple(files)

    async def differences(self, before: str, after: str) -> dict[str, tuple[str, str]]:
        """The files that differ between two states, each with its mode and content in both, as git names them."""
        items = (await self._own.git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)).items
        found = {}
        for about, path in zip(items[::2], items[1::2], strict=True):
            old_mode, new_mode, old, new, _ = about.removeprefix(":").split(" ")
            found[path] = (f"{old_mode} {old}", f"{new_mode} {new}")
        return found

    async def put_back(self, files: Mapping[str, str], now: str) -> None:
        """Makes these files what is given, by mode and content as `differences` gives them.

        The tree must be as in the state `now`, which no other files leave. Raises CallerError.
        """
        scratch = {"GIT_INDEX_FILE": str(self._own.git_directory / "going-back")}
        await self._own.git("read-tree", now, environment=scratch)
        # First those that go: one may be a file where another's folder was.
        entries = sorted([(content, path) for path, content in files.items()])
        told = b"".join([content.encode() + b"\t" + os.fsencode(path) + b"\0" for content, path in entries])
        await self._own.git("update-index", "-z", "--index-info", stdin=told, environment=scratch)
        tree = (await self._own.git("write-tree", environment=scratch)).text.strip()
        await self._own.git("read-tree", "--reset", "-u", tree)

    async def list(self) -> tuple[Snapshot, ...]:
        """The states, the newest first."""
        if not await self._own.head():
            return ()
        said = await self._own.git("log", "-z", "--format=%H %cI %s", "HEAD", "--")
        found = [item.split(" ", 2) for item in said.text.split("\0") if item]
        return tuple([Snapshot(each[0], each[2] if len(each) > 2 else "", each[1]) for each in found])

    async def _known(self, identifier: str) -> str:
        commit = await self._own.commit_id(identifier) if identifier.isalnum() else ""
        if not commit:
            raise CallerError(f"no state {identifier!r}", path=str(self._own.root))
        return commit

    async def _state(self) -> str:
        """The tree as it is, as an object of our repository."""
        known = set((await self._own.git("ls-files", "-z")).items)
        listed = await (self._source or self._own).git("ls-files", "-z", "--cached", *NEW_FILES)
        names = known | {name for name in listed.items if not name.endswith("/")}
        if listed.cut or len(names) > MAX_FILES:
            hint = "let git ignore what is made by programs"
            raise CallerError(f"there are more than {MAX_FILES:,} files", path=str(self._own.root), hint=hint)
        kept = await asyncio.to_thread(_kept, self._own.root, sorted(names), known)
        await put(self._own, kept)
        return (await self._own.git("write-tree")).text.strip()


async def open_snapshots(root: Path, folder: Path) -> Snapshots:
    """The states of a tree; those that were taken in the folder before are there. Raises CallerError."""
    source = await find_repository(root)
    own = Repository(source.root if source else _absolute(root), _absolute(folder) / _REPOSITORY)
    if not await asyncio.to_thread(_is_there, own.git_directory):
        place = {"GIT_DIR": str(own.git_directory), "GIT_WORK_TREE": str(own.root)}
        writable = [own.git_directory.parent]
        await run_git(["init", "--quiet", "--template="], own.root, environment=place, writable=writable)
        await asyncio.to_thread(_prepare, own.git_directory, source)
    return Snapshots(own, source)


def _prepare(directory: Path, source: Repository | None) -> None:
    info = directory / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text(_EXACTLY)
    if source is not None:
        # What the user's repository holds is not held twice.
        (directory / "objects" / "info").mkdir(exist_ok=True)
        (directory / "objects" / "info" / "alternates").write_text(f"{source.common / 'objects'}\n")


def _kept(root: Path, names: Iterable[str], known: Collection[str]) -> list[str]:
    """Without files that are too large, pipes and the like; a folder only if it is where a known file was."""
    found = []
    for name in names:
        with suppress(OSError):
            about = (root / name).lstat()
            if stat.S_ISREG(about.st_mode):
                if about.st_size > MAX_FILE:
                    continue
            elif not stat.S_ISLNK(about.st_mode) and not (stat.S_ISDIR(about.st_mode) and name in known):
                continue
        found.append(name)
    return found


def _is_there(directory: Path) -> bool:
    return (directory / "info" / "attributes").is_file()


def _absolute(path: Path) -> Path:
    return path.resolve()

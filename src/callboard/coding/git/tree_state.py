"""What is in a working tree, as git names it.

Owns the state of a tree, which is a git tree of what is there, and what an index is told of it. Which repository it is,
and how git is asked, is `repository`'s business.
Law: finding a state out changes nothing: index and objects are its own, in a folder of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from callboard.errors import CallerError

if TYPE_CHECKING:
    from callboard.coding.git.repository import Repository

MAX_FILE: Final = 50 * 1024 * 1024
"""Bytes of a file that is put into the repository."""

GENERATED: Final = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage", ".tox", ".nox"),
        *("node_modules", ".venv", ".gradle", ".DS_Store"),
    }
)
"""Names of files and folders that programs make and nobody commits. Not every repository tells git to ignore them."""
_COMPILED: Final = (".pyc", ".pyo")
NEW_FILES: Final = (
    *("--others", "--exclude-standard"),
    *(f"--exclude={name}" for name in (*sorted(GENERATED), *(f"*{suffix}" for suffix in _COMPILED))),
)
"""How `git ls-files` is asked for the files that git does not know, without those that are ignored or generated."""


class State(msgspec.Struct, frozen=True):
    """A working tree: `tree` is the id of a git tree. New or changed files of more than 50 MB are in it as they were
    before; what is known of these is in `large`, by path.
    """

    tree: str
    large: Mapping[str, str]

    @property
    def name(self) -> str:
        if not self.large:
            return self.tree
        return f"{self.tree}-{hashlib.sha256(repr(sorted(self.large.items())).encode()).hexdigest()[:16]}"


async def digest_of(repository: Repository, scratch: Path | None = None) -> str:
    """A name for the content of the working tree: the same for the same files, new ones among them."""
    return (await state_of(repository, scratch)).name


async def state_of(
    repository: Repository, scratch: Path | None = None, environment: dict[str, str] | None = None
) -> State:
    """The working tree as it is, without what git ignores.

    The objects of its git tree are put into `scratch` and nowhere else; with the `environment` that is filled in, git
    finds them. Takes time by the files that changed.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-") as made:
        own = {} if environment is None else environment
        own |= await asyncio.to_thread(_scratch, repository, scratch or Path(made))
        arguments = ("ls-files", "-z", "--modified", "--deleted", *NEW_FILES)
        listed = await repository.git(*arguments, environment=own)
        if listed.cut:
            raise CallerError(
                "too many files are new or changed", path=str(repository.root), hint="let git ignore them"
            )
        paths = [
            each for each in dict.fromkeys(listed.items) if not each.endswith("/") and not repository.is_hidden(each)
        ]
        large = await asyncio.to_thread(large_files, repository.root, paths)
        await put(repository, [path for path in paths if path not in large], own)
        return State((await repository.git("write-tree", environment=own)).text.strip(), large)


async def put(repository: Repository, paths: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Makes the index say of these paths what is in the working tree: their content, or that they are gone."""
    there, gone = await asyncio.to_thread(_sorted_out, repository.root, paths)
    for some, how in ((gone, ("--force-remove",)), (there, ("--add", "--remove", "--replace"))):
        if some:
            told = b"".join([os.fsencode(path) + b"\0" for path in some])
            await repository.git("update-index", *how, "-z", "--stdin", stdin=told, environment=environment)


async def settle(repository: Repository) -> None:
    """Makes git believe the index from now on; nobody else may work in the tree yet, and all in it is committed.

    Git keeps times in seconds, and reads every file anew that is not older than the index (racy-git of its
    documentation): of a large tree that was just written, each time. Takes a second.
    """
    index = repository.git_directory / "index"
    now = time.time()
    # The clock of file systems is some milliseconds behind.
    await asyncio.sleep(1.05 - now % 1)
    with suppress(FileNotFoundError):
        await asyncio.to_thread(os.utime, index)


def is_generated(path: str) -> bool:
    """Whether a path is of a kind that programs make and nobody commits."""
    return path.endswith(_COMPILED) or not GENERATED.isdisjoint(path.split("/"))


def large_files(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The files that are too large, and what is known of each without reading it."""
    found = {}
    for path in paths:
        with suppress(OSError):
            about = (root / path).lstat()
            if stat.S_ISREG(about.st_mode) and about.st_size > MAX_FILE:
                found[path] = f"{about.st_size} {about.st_mtime_ns} {about.st_mode}"
    return found


def _scratch(repository: Repository, folder: Path) -> dict[str, str]:
    """An index of its own, and objects that lie in no repository."""
    objects = folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    index = folder / "index"
    with suppress(FileNotFoundError):
        index.unlink()
    with suppress(FileNotFoundError):
        # With its time: git reads the files that are not older, since what is in them may have changed unseen.
        shutil.copy2(repository.git_directory / "index", index)
    return {
        "GIT_INDEX_FILE": str(index),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(repository.common / "objects"),
    }


def _sorted_out(root: Path, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """The paths that are there and those that are not; what lies behind a link is not."""
    folders = {"": True}

    def is_folder(name: str) -> bool:
        if name not in folders:
            folders[name] = is_folder(name.rpartition("/")[0]) and _is(root / name, stat.S_ISDIR)
        return folders[name]

    there: list[str] = []
    gone: list[str] = []
    for path in paths:
        present = is_folder(path.rpartition("/")[0]) and _is(root / path, lambda _: True)
        (there if present else gone).append(path)
    return there, gone


def _is(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(path.lstat().st_mode)
    except OSError:
        return False


def _quoted(path: Path) -> str:
    """A path in a list that `:` separates, as git reads it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

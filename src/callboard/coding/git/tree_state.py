"""The content of a working tree, named as git names it.

Law: computing a state does not change the index; without `stores` it changes nothing in the repository.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from callboard.coding.git.files import NEW_FILES, large_files
from callboard.coding.git.repository import Repository
from callboard.errors import CallerError


class TreeState(msgspec.Struct, frozen=True):
    """The content of a working tree."""

    tree: str
    """The id of a git tree. Files that are too large are in it as the last commit has them."""
    large: Mapping[str, str]
    """The size, time and mode of the files that are too large, by path."""

    @property
    def digest(self) -> str:
        """A name for the content: the same for the same files, new ones among them."""
        if not self.large:
            return self.tree
        return f"{self.tree}-{hashlib.sha256(repr(sorted(self.large.items())).encode()).hexdigest()[:16]}"


async def compute_digest(repository: Repository) -> str:
    """Return the digest of a working tree as it is; see `TreeState.digest`."""
    return (await compute_state(repository)).digest


async def compute_state(repository: Repository, *, stores: bool = False) -> TreeState:
    """Compute the state of a working tree without ignored files, in time proportional to the changed files.

    With `stores`, only for a repository of ours, the objects stay in it.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-") as temporary:
        variables = await asyncio.to_thread(_prepare_index, repository, Path(temporary))
        if not stores:
            # A list that `:` separates, so the path is quoted as git reads it.
            path = str(repository.common / "objects").replace("\\", "\\\\").replace('"', '\\"')
            variables |= {"GIT_OBJECT_DIRECTORY": temporary, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{path}"'}
        arguments = ("ls-files", "-z", "--modified", "--deleted", *NEW_FILES)
        listing = await repository.git(*arguments, environment=variables)
        if listing.cut:
            raise CallerError(
                "too many files are new or changed", path=str(repository.root), hint="let git ignore them"
            )
        paths = [
            each for each in dict.fromkeys(listing.items) if not each.endswith("/") and not repository.is_hidden(each)
        ]
        large = await asyncio.to_thread(large_files, repository.root, paths)
        await repository.update_index([path for path in paths if path not in large], variables)
        return TreeState((await repository.git("write-tree", environment=variables)).text.strip(), large)


async def restore_state(repository: Repository, tree: str) -> None:
    """Restore the files of a working tree from a stored state; the index stays as it is."""
    with tempfile.TemporaryDirectory(prefix="callboard-") as temporary:
        variables = await asyncio.to_thread(_prepare_index, repository, Path(temporary))
        await repository.git("read-tree", "--reset", "-u", tree, environment=variables)


async def settle_index(repository: Repository) -> None:
    """Wait until git trusts the index of a tree that was just written; nobody else may work in the tree yet.

    Git stores times in seconds, and rereads every file that is not older than the index ("racy git" in its
    documentation). In a large new tree that would be every file at each call. The wait takes a second.
    """
    index = repository.git_directory / "index"
    # The clock of file systems is some milliseconds late.
    await asyncio.sleep(1.05 - time.time() % 1)
    with suppress(FileNotFoundError):
        await asyncio.to_thread(os.utime, index)


def _prepare_index(repository: Repository, folder: Path) -> dict[str, str]:
    """Return the variables for a copy of the index, in this folder."""
    index = folder / "index"
    with suppress(FileNotFoundError):
        # With its time: git reads the files that are not older, since they may have changed unseen.
        shutil.copy2(repository.git_directory / "index", index)
    return {"GIT_INDEX_FILE": str(index)}

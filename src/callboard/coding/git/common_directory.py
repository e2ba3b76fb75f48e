"""Private directories for `GIT_COMMON_DIR`: a repository's objects and branches, but a configuration of ours.

Git takes its configuration, and its hooks, from the directory that `GIT_COMMON_DIR` names. In ours, `config` is the
one we write, there are no hooks, and links lead to the rest of the repository: objects, branches, the other working
trees. HEAD and the index are not there, so git reads and writes those of the repository itself. `git-new-workdir` in
git's own sources does the same the other way round. The alternative, to override each key that a repository sets,
would need to know the keys of the next release of git.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from callboard.errors import CallerError

_FILES: Final = ("HEAD", "packed-refs", "shallow")
_FOLDERS: Final = ("objects", "refs", "reftable", "logs", "info", "worktrees")
_MADE: Final = ("logs",)
_WRITTEN: Final = frozenset({"refs", "reftable", "logs", "info"})
_PREFIX: Final = "callboard-git-"
_STALE: Final = 3600.0
"""Seconds after which the folder of a process that we do not see is taken for stale; it may be another container's."""
_UNUSED: Final = frozenset({"hooks", "lfs", "modules", "svn", "description"})


class PrivateCommonDirectories:
    """Makes the directories that replace `common`. Cached ones are deleted with this object."""

    def __init__(self, common: Path) -> None:
        self._common = common
        self._cached: dict[tuple[str, ...], Path] = {}

    @contextmanager
    def open(self, configuration: str, *, keep: bool) -> Iterator[Path]:
        """A directory with this configuration; without `keep`, for secrets, it is deleted after use."""
        parts = self._parts()
        if not keep:
            folder = self._make(configuration, parts)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
        key = (configuration, *parts)
        # A folder of temporary files may be cleared while we work.
        if key not in self._cached or not (self._cached[key] / "config").exists():
            self._cached[key] = self._make(configuration, parts)
            weakref.finalize(self, shutil.rmtree, self._cached[key], ignore_errors=True)
        yield self._cached[key]

    def _parts(self) -> list[str]:
        """The folders of the repository that are there now."""
        for name in _MADE:
            # Git makes it where it is missing, but not at the end of a link.
            with suppress(OSError):
                (self._common / name).mkdir()
        return [name for name in _FOLDERS if (self._common / name).is_dir()]

    def _make(self, configuration: str, parts: Iterable[str]) -> Path:
        remove_stale()
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        (folder / "config").write_bytes(os.fsencode(configuration))
        # Also to a file that is not there: git makes it where the link leads.
        for name in (*parts, *_FILES):
            (folder / name).symlink_to(self._common / name)
        return folder


@cache
def remove_stale() -> None:
    """Remove the folders that processes of this user left when they were killed; once in a process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            status = folder.lstat()
            ours = pid.isdecimal() and status.st_uid == os.geteuid()
            if ours and status.st_mtime < time.time() - _STALE and not _is_running(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        pass
    return True


def check_location(directory: Path, root: Path, git_directory: Path, common: Path) -> None:
    """Check that a repository is where its `.git` says, and that what it holds lies in it.

    Args:
        directory: Where it was looked for.
        root: The top of its working tree, as git says.
        git_directory: Its folder for this working tree.
        common: The folder that all of its working trees share.

    Raises:
        CallerError: It is a bare repository that lies in the folder as files do, its working tree is elsewhere, or its
            parts are links that lead out of it.
    """
    if not _leads_to(root / ".git", git_directory) or not directory.resolve().is_relative_to(root.resolve()):
        raise CallerError(
            "the repository that git finds here is not that of a .git in a folder above",
            path=str(git_directory),
            hint="it may be an embedded one, or core.worktree may lead elsewhere; work in a clone of it",
        )
    inside = common.resolve()
    for folder in {git_directory, common}:
        for link in _links(folder):
            if not link.resolve().is_relative_to(inside):
                raise CallerError(
                    "a part of this repository is a link that leads out of it",
                    path=str(link),
                    hint="clone it, and work in the clone",
                )


def _links(folder: Path) -> Iterator[Path]:
    """The links in a repository's folder, where git writes by name; the names of objects say what is in them."""
    for top, folders, files in os.walk(folder):
        names = [name for name in (*folders, *files) if top != str(folder) or name not in _UNUSED]
        yield from [path for name in names if (path := Path(top, name)).is_symlink()]
        if top == str(folder):
            folders[:] = [name for name in folders if name in _WRITTEN]


def _leads_to(pointer: Path, git_directory: Path) -> bool:
    """Whether the `.git` of a working tree is, or names, this folder."""
    with suppress(OSError, ValueError):
        if pointer.is_dir():
            return pointer.samefile(git_directory)
        named = pointer.read_bytes().removeprefix(b"gitdir:").strip()
        return (pointer.parent / os.fsdecode(named)).samefile(git_directory)
    return False

"""Private directories for `GIT_COMMON_DIR`: a repository's objects and branches, but a configuration of ours.

Git takes its configuration, and its hooks, from the directory that `GIT_COMMON_DIR` names. In ours, `config` is the
one we write, there are no hooks, and links lead to the rest of the repository: objects, branches, the other working
trees. HEAD and the index are not there, so git reads and writes those of the repository itself. `git-new-workdir` in
git's own sources does the same the other way round. The alternative, to override each key that a repository sets,
would need to know the keys of the next release of git.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from callboard.errors import CallerError

_FILES: Final = ("HEAD", "packed-refs", "shallow")
_FOLDERS: Final = ("objects", "refs", "reftable", "logs", "info", "worktrees")
_MADE: Final = "logs"
_WRITTEN: Final = frozenset({"refs", "reftable", "logs", "info"})
_UNUSED: Final = frozenset({"hooks", "lfs", "modules", "svn", "description"})


@contextmanager
def private_common_directory(common: Path, configuration: str) -> Iterator[Path]:
    """A directory that replaces `common` and has this configuration; it is deleted after use."""
    # Git makes it where it is missing, but not at the end of a link.
    with suppress(OSError):
        (common / _MADE).mkdir()
    with tempfile.TemporaryDirectory(prefix="callboard-git-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "config").write_bytes(os.fsencode(configuration))
        # Also to a file that is not there: git makes it where the link leads.
        for part in (*[each for each in _FOLDERS if (common / each).is_dir()], *_FILES):
            (folder / part).symlink_to(common / part)
        yield folder


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

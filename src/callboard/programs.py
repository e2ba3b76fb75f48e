"""Find the programs that we start outside of any sandbox.

Law: no program is taken from a directory that depends on the current one, nor from a repository that this process works in:
an activated `.venv/bin` or `node_modules/.bin` may hold whatever the repository, its packages or a model put there. Commands
in the sandbox have the user's whole PATH.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Set as AbstractSet
from pathlib import Path

_repositories: set[str] = set()


def exclude_repository(directory: Path) -> None:
    """Take no program from the repository of a directory from now on, or from the directory if it is in none.

    The repository of the current directory is always excluded. Home directories and system directories do not count as repositories.
    """
    _repositories.update(_find_repository(directory))


def absolute_search_path(path: str | None = None) -> str:
    """Return the absolute directories of a search path, by default of PATH, for programs that the user names.

    If no directory remains, return the system's path, because an empty search path means the current directory.
    """
    path_text = os.environ.get("PATH", os.defpath) if path is None else path
    return _join([each for each in path_text.split(os.pathsep) if os.path.isabs(each)])  # noqa: PTH117


def trusted_search_path() -> str:
    """The directories of PATH that we take programs from, as one search path.

    Symlinks of PATH are resolved once: a user who can change them can put programs into these directories too.
    """
    return _list_outside(absolute_search_path(), _working_repositories())


def find_program(name: str) -> str | None:
    """The path of a program; None where no allowed directory has it. A symlink into a repository is refused too."""
    import shutil  # noqa: PLC0415  # not for --help

    repositories = _working_repositories()
    for directory in _list_outside(absolute_search_path(), repositories).split(os.pathsep):
        path = shutil.which(name, path=directory)
        # Windows looks into the current directory first, whatever the path is.
        if path and os.path.isabs(path) and not _is_beneath(path, repositories):  # noqa: PTH117
            return path
    return None


def _join(directories: list[str]) -> str:
    return os.pathsep.join(directories) or os.defpath


@functools.lru_cache(maxsize=16)
def _list_outside(path: str, repositories: frozenset[str]) -> str:
    return _join([each for each in path.split(os.pathsep) if not _is_beneath(each, repositories)])


def _working_repositories() -> frozenset[str]:
    try:
        return frozenset({*_repositories, *_find_repository(Path.cwd())})
    except FileNotFoundError:
        # The current directory is gone.
        return frozenset(_repositories)


def _find_repository(directory: Path) -> set[str]:
    real = os.path.realpath(directory)
    above = (real, *map(str, Path(real).parents))
    root = next((each for each in above if os.path.lexists(os.path.join(each, ".git"))), real)  # noqa: PTH118
    everybodys = (os.path.expanduser("~"), *os.defpath.split(os.pathsep))  # noqa: PTH111  # pathlib's raises
    return set() if any(_is_beneath(each, {root}) for each in everybodys if each) else {root}


def _is_beneath(path: str, places: AbstractSet[str]) -> bool:
    spellings = (Path(os.path.abspath(path)), Path(os.path.realpath(path)))  # noqa: PTH100
    return any(str(each) in places for way in spellings for each in (way, *way.parents))

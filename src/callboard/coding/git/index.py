"""Which files of a working tree go into an index: not too large, not generated, and still there."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_FILE: Final = 50 * 1024 * 1024
"""Bytes of a file that is put into a repository."""

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
"""Arguments with which `git ls-files` lists untracked files, without those that are ignored or generated."""


def is_generated(path: str) -> bool:
    """Whether a path is of a kind that programs make and nobody commits."""
    return path.endswith(_COMPILED) or not GENERATED.isdisjoint(path.split("/"))


def large_files(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The files that are too large, each with its size, time and mode."""
    large = {}
    for path in paths:
        with suppress(OSError):
            status = (root / path).lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size > MAX_FILE:
                large[path] = f"{status.st_size} {status.st_mtime_ns} {status.st_mode}"
    return large


def split_deleted(root: Path, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """The paths that exist, and those that do not; a path behind a link does not exist for git."""
    folders = {"": True}

    def is_folder(name: str) -> bool:
        if name not in folders:
            folders[name] = is_folder(name.rpartition("/")[0]) and _has_mode(root / name, stat.S_ISDIR)
        return folders[name]

    existing: list[str] = []
    deleted: list[str] = []
    for path in paths:
        exists = is_folder(path.rpartition("/")[0]) and _has_mode(root / path, lambda _: True)
        (existing if exists else deleted).append(path)
    return existing, deleted


def _has_mode(path: Path, test: Callable[[int], bool]) -> bool:
    try:
        return test(path.lstat().st_mode)
    except OSError:
        return False

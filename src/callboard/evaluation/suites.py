"""Find the tasks of a suite: by its name, or in a file or folder of one of the forms that we read.

What a name stands for is a row of `SUITES`; a path is recognised by the files that are there, never by its contents.

Why nothing here is a coroutine: inside one, Ctrl-C would wait for the end of a long file, and then be forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from callboard.errors import CallerError
from callboard.evaluation.bfcl import CATEGORIES, find_categories, load_bfcl
from callboard.evaluation.bfcl_wheel import pull_bfcl
from callboard.evaluation.own_tasks import load_own_tasks
from callboard.evaluation.records import evaluation_directory
from callboard.evaluation.task import Task, decode_tasks
from callboard.evaluation.when2call import FILES, load_when2call
from callboard.text.suggest import suggest

MAX_FILE: Final = 256 * 1024 * 1024
"""Bytes of a file of tasks."""

Load: TypeAlias = Callable[[Sequence[str]], list[Task]]
"""Loads the tasks of a suite; the categories are a hint about which are wanted, none for all."""


def recorded_path() -> Path:
    """The file of the tasks that `callboard eval add` made."""
    return evaluation_directory() / "tasks.jsonl"


def load_suite(suite: str, categories: Sequence[str] = ()) -> list[Task]:
    """The tasks of a suite.

    Args:
        suite: A name of `SUITES`, a file of tasks, or a folder or file of BFCL or When2Call.
        categories: Those that are wanted, by default all. Others may come as well.

    Raises:
        CallerError: There is no such suite, or its files are not as they should be.
    """
    if suite in SUITES:
        return SUITES[suite](categories)
    return _load_path(suite, categories)


def _load_path(suite: str, categories: Sequence[str]) -> list[Task]:
    path = Path(suite).expanduser()
    if not path.exists():
        raise CallerError("no such suite", path=f"--suite {path}", hint=suggest(str(path), SUITES))
    if path.name in FILES or any((path / name).is_file() for name in FILES):
        return load_when2call(path)
    if path.is_dir():
        return load_bfcl(path, categories or find_categories(path) or CATEGORIES)
    return load_file(path)


def load_file(path: Path) -> list[Task]:
    """The tasks of a file, one JSON object a line. Raises CallerError."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise CallerError(f"a file of {size} bytes is too large", path=str(path), hint=f"at most {MAX_FILE}")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CallerError(error.strerror or "cannot be read", path=str(path)) from None
    tasks = [*decode_tasks(lines, path=str(path))]
    if not tasks:
        raise CallerError("it holds no task", path=str(path))
    return [msgspec.structs.replace(task, suite=task.suite or path.stem) for task in tasks]


def _load_bfcl(categories: Sequence[str]) -> list[Task]:
    return load_bfcl(asyncio.run(pull_bfcl()), categories or CATEGORIES)


def _load_own(_: Sequence[str]) -> list[Task]:
    return load_own_tasks()


def _load_recorded(_: Sequence[str]) -> list[Task]:
    path = recorded_path()
    if not path.is_file():
        raise CallerError("no task is recorded yet", path=str(path), hint="make one: callboard eval add --help")
    return load_file(path)


SUITES: Final[Mapping[str, Load]] = {"bfcl": _load_bfcl, "own": _load_own, "recorded": _load_recorded}
"""The suites by their names."""

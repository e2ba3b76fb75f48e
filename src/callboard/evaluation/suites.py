"""Find the tasks of a suite by its name, or in a file or folder in a known format.

BFCL's tasks come from the wheel of its package. pip downloads the wheel and does not install it, so none of its code
runs. Only the simulated APIs of the tasks of several turns run, in a process of their own.

Laws: a wheel with another hash is refused, because other tasks would give other figures. The folder is complete or does
not exist, even if several processes download it at the same time. The right answers to our own tasks pass the checker,
and fit the schemas of the tools. docs/evaluation.md lists their categories.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from callboard.errors import CallerError, ModelFileError
from callboard.evaluation.bfcl import (
    CATEGORIES,
    DOCUMENTS,
    FILES,
    MULTI_TURN,
    check_category,
    find_categories,
    load_bfcl,
    load_when2call,
)
from callboard.evaluation.records import evaluation_directory
from callboard.evaluation.task import Task, decode_tasks
from callboard.providers.local.sources import download_wheel
from callboard.storage.directories import data_directory
from callboard.text.suggest import suggest

SUITE: Final = "callboard"
_FILE: Final = "data/tasks.jsonl"


def load_own_tasks() -> list[Task]:
    """Return all of our own tasks, in the order of the file."""
    text = files("callboard.evaluation").joinpath(_FILE).read_text("utf-8")
    return [*decode_tasks(text.split("\n"), path=_FILE)]


REQUIREMENT: Final = "bfcl-eval==2026.3.23"
SHA256: Final = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
MULTI_TURN_WHEELS: Final[Mapping[str, str]] = {
    REQUIREMENT: SHA256,
    "mpmath==1.3.0": "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c",
}
"""Hashes of the wheels with the simulated APIs and what they import."""
_DATA: Final = "bfcl_eval/data/"
_SIZE: Final = 64 * 1024 * 1024
_ONE_TURN: Final = re.compile(rf"{_DATA}((?:possible_answer/)?BFCL_v4_(?:{'|'.join(CATEGORIES)})\.json)")
_SEVERAL_TURNS: Final = re.compile(
    rf"({_DATA}(?:possible_answer/)?BFCL_v4_(?:{'|'.join(MULTI_TURN)})\.json|{_DATA}multi_turn_func_doc/\w+\.json"
    r"|bfcl_eval/(?:constants/|eval_checker/|eval_checker/multi_turn_eval/)?__init__\.py"
    r"|bfcl_eval/constants/executable_backend_config\.py"
    r"|bfcl_eval/eval_checker/multi_turn_eval/multi_turn_(?:checker|utils)\.py"
    rf"|bfcl_eval/eval_checker/multi_turn_eval/func_source_code/(?:__init__|long_context|{'|'.join(DOCUMENTS.values())})\.py"
    r"|mpmath/(?!tests/)(?:\w+/)*\w+\.py)"
)
"""Files of wheels that are unpacked, with their new paths as a group. No path leaves the folder."""


async def pull_bfcl(directory: Path | None = None, *, sha256: str = SHA256, python: str = sys.executable) -> Path:
    """Return the folder with BFCL's files of one turn for `load_bfcl`. Download it (2 MB) if it does not exist.

    Args:
        directory: The folder. The default is `evaluation/bfcl-eval-2026.3.23` in Callboard's data directory.
        sha256: The hash of the wheel.
        python: The Python interpreter that runs pip.

    Raises:
        ModelFileError: pip is missing or fails, or the wheel has another hash.
    """
    return await _pull(directory or _default_directory(), {REQUIREMENT: sha256}, _ONE_TURN, python)


async def pull_multi_turn(
    directory: Path | None = None, *, wheels: Mapping[str, str] = MULTI_TURN_WHEELS, python: str = sys.executable
) -> Path:
    """Return the folder with BFCL's tasks of several turns and the modules of their simulated APIs.

    The arguments and errors are as in `pull_bfcl`. `wheels` has the hashes of the wheels.
    """
    directory = directory or _default_directory().with_name(f"{_default_directory().name}-multi-turn")
    return await _pull(directory, wheels, _SEVERAL_TURNS, python)


def _default_directory() -> Path:
    return data_directory() / "evaluation" / REQUIREMENT.replace("==", "-")


async def _pull(directory: Path, wheels: Mapping[str, str], files: re.Pattern[str], python: str) -> Path:
    if await asyncio.to_thread(directory.is_dir):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".bfcl-", dir=directory.parent) as scratch:
        for requirement, sha256 in wheels.items():
            (downloads := Path(scratch, requirement)).mkdir()
            wheel = await download_wheel(requirement, downloads, python)
            await asyncio.to_thread(_unpack, wheel, sha256, files, Path(scratch, "data"))
        with suppress(OSError):  # another process was first
            await asyncio.to_thread(Path(scratch, "data").rename, directory)
    return directory


def _unpack(wheel: Path, sha256: str, files: re.Pattern[str], folder: Path) -> None:
    """Unpack the files into the folder."""
    import zipfile  # noqa: PLC0415 - costs 5 ms, on first use

    with wheel.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise ModelFileError(f"has the hash {actual}, not {sha256}", path=wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if match := files.fullmatch(member.filename):
                if member.file_size > _SIZE:
                    raise ModelFileError(f"{member.filename} is larger than {_SIZE} bytes", path=wheel.name)
                path = folder / match[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(member))


MAX_FILE: Final = 256 * 1024 * 1024
"""Maximum bytes of a file of tasks."""

Load: TypeAlias = Callable[[Sequence[str]], list[Task]]
"""Loads the tasks of a suite. The categories are a hint; an empty sequence means all categories."""


def recorded_path() -> Path:
    """Return the file of the tasks that `callboard eval add` made."""
    return evaluation_directory() / "tasks.jsonl"


def load_suite(suite: str, categories: Sequence[str] = ()) -> list[Task]:
    """Return the tasks of a suite.

    Args:
        suite: A name of `SUITES`, a file of tasks, or a folder or file of BFCL or When2Call.
        categories: The wanted categories. The default is all. The result may have other categories, too.

    Raises:
        CallerError: There is no such suite, or its files are in another format.
    """
    if suite in SUITES:
        return SUITES[suite](categories)
    path = Path(suite).expanduser()
    if not path.exists():
        raise CallerError("no such suite", path=f"--suite {path}", hint=suggest(str(path), SUITES))
    if path.name in FILES or any((path / name).is_file() for name in FILES):
        return load_when2call(path)
    if path.is_dir():
        return load_bfcl(path, categories or find_categories(path) or CATEGORIES)
    return load_file(path)


def load_file(path: Path) -> list[Task]:
    """Return the tasks of a file with one JSON object per line. Raises CallerError."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise CallerError(f"a file of {size} bytes is too large", path=str(path), hint=f"at most {MAX_FILE}")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CallerError(error.strerror or "cannot be read", path=str(path)) from None
    tasks = [*decode_tasks(lines, path=str(path))]
    if not tasks:
        raise CallerError("the file has no tasks", path=str(path))
    return [msgspec.structs.replace(task, suite=task.suite or path.stem) for task in tasks]


def _load_recorded(_: Sequence[str]) -> list[Task]:
    path = recorded_path()
    if not path.is_file():
        raise CallerError("no task is recorded yet", path=str(path), hint="make one: callboard eval add --help")
    return load_file(path)


def _load_published(categories: Sequence[str]) -> list[Task]:
    """Download and load BFCL's tasks. By default, all that have one turn."""
    tasks: list[Task] = []
    for category in categories or CATEGORIES:
        check_category(category)
        has_turns = category in MULTI_TURN
        tasks += load_bfcl(
            asyncio.run(pull_multi_turn()) / _DATA if has_turns else asyncio.run(pull_bfcl()), [category]
        )
    return tasks


SUITES: Final[Mapping[str, Load]] = {
    "bfcl": _load_published,
    "own": lambda _: load_own_tasks(),
    "recorded": _load_recorded,
}
"""Suites by their names."""

"""Detect which runner tests a folder, by the files in it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from callboard.coding.test_runners.cargo import CARGO
from callboard.coding.test_runners.go import GO
from callboard.coding.test_runners.javascript import NPM
from callboard.coding.test_runners.make import MAKE
from callboard.coding.test_runners.python import PYTEST
from callboard.coding.test_runners.runner import ProjectFolder, Runner
from callboard.storage.confined_directory import ConfinedDirectory

RUNNERS: Final[tuple[Runner, ...]] = (GO, PYTEST, CARGO, NPM, MAKE)
"""In the order in which they are tried; a folder may fit several."""

_MANIFESTS: Final = tuple(dict.fromkeys(name for runner in RUNNERS for name in runner.manifests))
_TESTS: Final = ("tests", "test")
_MAX_NAMES = 20_000
_MAX_MANIFEST = 256 * 1024


def read_folder(files: ConfinedDirectory, place: str = "", borrowed: Sequence[str] = ()) -> ProjectFolder:
    """Read what detection needs of a folder beneath the root; `borrowed` folders count as if they were in it.

    Raises OSError for one that is not there.
    """
    names = {*_names(files, place or "."), *(f"{each}/" for each in borrowed if "/" not in each)}
    tests: set[str] = set()
    for each in _TESTS:
        if f"{each}/" in names:
            tests |= set(_names(files, _join(place, each)))
    texts = {}
    for each in _MANIFESTS:
        if each in names:
            with suppress(OSError):
                texts[each] = files.read(_join(place, each), _MAX_MANIFEST).decode("utf-8", "replace")
    return ProjectFolder(names=frozenset(names), texts=texts, tests=frozenset(tests))


def detect_runner(folder: ProjectFolder, kind: str = "") -> Runner | None:
    """The runner of a folder, of a kind if given; None if nothing there says how it is tested."""
    if kind:
        return next((each for each in RUNNERS if each.kind == kind), None)
    return next((each for each in RUNNERS if each.matches(folder)), None)


def _names(files: ConfinedDirectory, place: str) -> list[str]:
    try:
        return files.names(place, _MAX_NAMES)
    except OSError as error:
        # Too many to be looked at: a folder of data, not of manifests.
        if error.errno == errno.EFBIG:
            return []
        raise


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name

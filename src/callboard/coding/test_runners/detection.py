"""Detect which runner tests a folder, by the files in it.

A target of make may run anything: if the output has the summary of a runner that is known, that is read; else the whole run
counts as one test, by make's exit code.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from callboard.coding.test_runners.cargo import CARGO, read_cargo
from callboard.coding.test_runners.go import GO, read_go
from callboard.coding.test_runners.javascript import NPM, read_npm
from callboard.coding.test_runners.python import PYTEST, read_pytest, read_unittest
from callboard.coding.test_runners.report import Failure, ProjectFolder, Runner, Selection, Tally, format_location
from callboard.storage.confined_directory import ConfinedDirectory

MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")

_TARGET = re.compile(r"^(test|check)\s*:", re.MULTILINE)
_AT = re.compile(r"(?:\S+: )?([^\s:]+\.\w+):(\d+)(?::\d+)?: (.*)")
_SAYS = re.compile(r"error|assert|fail|expected|not ok", re.IGNORECASE)
_STOPPED = re.compile(r"make(?:\[\d+\])?: \*\*\* (.*)")
_READERS = (read_pytest, read_unittest, read_cargo, read_go, read_npm)


def target(folder: ProjectFolder) -> str:
    """The target that runs tests, "" for none."""
    targets = {match for name in MAKEFILES for match in _TARGET.findall(folder.texts.get(name, ""))}
    return "test" if "test" in targets else "check" if targets else ""


def _command(selection: Selection, folder: ProjectFolder) -> list[str]:
    where = ["-C", selection.package] if selection.package else []
    return ["make", "--no-print-directory", *where, selection.script or selection.module or target(folder) or "test"]


def read_make(output: str, code: int | None, folder: ProjectFolder) -> Tally:
    for read in _READERS:
        tally = read(output, code, folder)
        if tally.complete and tally.total:
            return tally
    if code == 0:
        return Tally(passed=1, complete=True)
    lines = output.splitlines()
    matches = [(line, match) for line in lines if (match := _AT.fullmatch(line)) and _SAYS.search(line)]
    failures = [Failure("make", format_location(match[1], match[2], folder.root), match[3]) for _, match in matches]
    failures += [Failure("make", "", match[1]) for line in lines if (match := _STOPPED.fullmatch(line))]
    return Tally(failed=1, failures=tuple(failures), complete=code is not None)


MAKE: Final = Runner(
    name="make",
    kind="make",
    matches=lambda folder: bool(target(folder)),
    command=_command,
    parse=read_make,
    options=frozenset({"package", "script", "module", "count"}),
    manifests=MAKEFILES,
)


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

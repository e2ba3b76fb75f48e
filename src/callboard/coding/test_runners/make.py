"""make, with a target for tests.

A target may run anything: if the output has the summary of a runner that is known, that is read; else the whole run
counts as one test, by make's exit code.
"""

from __future__ import annotations

import re
from typing import Final

from callboard.coding.test_runners.cargo import read_cargo
from callboard.coding.test_runners.go import read_go
from callboard.coding.test_runners.javascript import read_npm
from callboard.coding.test_runners.python import read_pytest, read_unittest
from callboard.coding.test_runners.report import Failure, Tally, format_location
from callboard.coding.test_runners.runner import ProjectFolder, Runner, Selection

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

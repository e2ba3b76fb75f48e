"""A target of a makefile. If it starts pytest, pytest's report counts its tests; else make's exit code decides."""

from __future__ import annotations

import re
from typing import Final, get_args

from msgspec.structs import replace

from callboard.coding.test_runners.python import read_nested, record_pytest
from callboard.coding.test_runners.report import (
    MAX_LINE,
    Failure,
    Kind,
    ProjectFolder,
    Runner,
    Selection,
    Tally,
    TestOutput,
    format_location,
)

MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")

_TARGET = re.compile(r"^(test|check)\s*:", re.MULTILINE)
_AT = re.compile(r"(?:\S+: )?([^\s:]+\.[A-Za-z]\w*):(\d+)(?::\d+)?: (.*)")
_SAYS = re.compile(r"error|assert|fail|expected|not ok", re.IGNORECASE)
_STOPPED = re.compile(r"make(?:\[\d+\])?: \*\*\* (.*)")


def find_target(folder: ProjectFolder) -> str:
    """Return the target that runs tests, "" for none."""
    targets = {match for name in MAKEFILES for match in _TARGET.findall(folder.texts.get(name, ""))}
    return "test" if "test" in targets else "check" if targets else ""


def _command(selection: Selection, folder: ProjectFolder) -> list[str]:
    where = ["-C", selection.package] if selection.package else []
    target = selection.script or selection.module or find_target(folder) or "test"
    return ["make", "--no-print-directory", *where, target]


def read_make(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read pytest's report files, else make's exit code; the output names the places of errors."""
    tally = read_nested(output, folder)
    if tally.failures or not tally.failed:
        return tally
    lines = [line[:MAX_LINE] for line in output.text.splitlines()]
    matches = [match for line in lines if _SAYS.search(line) and (match := _AT.fullmatch(line))]
    failures = [Failure("make", format_location(match[1], match[2], folder.root), match[3]) for match in matches]
    failures += [Failure("make", "", match[1]) for line in lines if (match := _STOPPED.fullmatch(line))]
    return replace(tally, failures=tuple(failures))


def _find_missing(output: TestOutput, _tally: Tally, _folder: ProjectFolder) -> str:
    is_missing = output.code == 127 and not output.reports
    return "make is not installed; apt install make installs it" if is_missing else ""


MAKE: Final = Runner(
    name="make",
    kind="make",
    matches=lambda folder: bool(find_target(folder)),
    command=_command,
    record=record_pytest,
    parse=read_make,
    find_missing=_find_missing,
    options=frozenset({"package", "script", "module", "count"}),
    manifests=MAKEFILES,
    covers=lambda _: frozenset(get_args(Kind)),
)

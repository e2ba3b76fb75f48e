"""cargo test: each test binary ends its output with a line `test result: ...`."""

from __future__ import annotations

import re
from typing import Final

from callboard.coding.test_runners.report import (
    Failure,
    ProjectFolder,
    Runner,
    Selection,
    Tally,
    format_location,
    join_message,
)

_RESULT = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored; .*")
_BEGUN = re.compile(r"\s+(?:Running|Doc-tests) \S.*")
_SECTION = re.compile(r"---- (.+?) (?:stdout|stderr) ----")
_PANIC = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at (?:'(.*)', )?([^':]\S*?):(\d+):\d+:?")
_ERROR = re.compile(r"error(?:\[E\d+\])?: (.+)")
_ARROW = re.compile(r"\s+--> (\S.*?):(\d+):\d+")
_MOST = 400
_NO_FAULT = ("could not compile", "test failed", "aborting due to")


def _command(selection: Selection, _folder: ProjectFolder) -> list[str]:
    command = ["cargo", "test", "--color=never", "--no-fail-fast"]
    if selection.package:
        command.append(f"--package={selection.package}")
    if selection.module:
        command.append(f"--test={selection.module}")
    if selection.verbose:
        command.append("--verbose")
    return [*command, *([selection.run] if selection.run else [])]


def read_cargo(output: str, _code: int | None, folder: ProjectFolder) -> Tally:
    """Read the output of cargo and its test binaries."""
    lines = output.splitlines()
    passed = failed = skipped = begun = ended = 0
    failures: list[Failure] = []
    inside = False
    for index, line in enumerate(lines):
        if match := _SECTION.fullmatch(line):
            inside = True
            failures.append(_parse_failure(match[1], lines[index + 1 : index + _MOST], folder.root))
        elif line == "failures:":
            inside = False
        elif not inside and (match := _RESULT.fullmatch(line)):
            ended += 1
            passed, failed, skipped = (
                count + int(more) for count, more in zip((passed, failed, skipped), match.groups(), strict=True)
            )
        elif not inside and _BEGUN.fullmatch(line):
            begun += 1
    compiled = _compiler_errors(lines, folder.root) if not ended else []
    return Tally(
        passed=passed,
        failed=failed,
        skipped=skipped,
        errors=len(compiled),
        failures=(*failures, *compiled),
        complete=bool(ended) and begun == ended,
    )


def _parse_failure(name: str, lines: list[str], root: str) -> Failure:
    message: list[str] = []
    place = ""
    for line in lines:
        if line in ("failures:", "stack backtrace:") or line.startswith("note: ") or _SECTION.fullmatch(line):
            break
        if not place and (panic := _PANIC.fullmatch(line)):
            place = format_location(panic[2], panic[3], root)
            message = [panic[1]] if panic[1] else []
        else:
            message.append(line)
    return Failure(name, place, join_message(message))


def _compiler_errors(lines: list[str], root: str) -> list[Failure]:
    failures = []
    for index, line in enumerate(lines):
        match = _ERROR.fullmatch(line)
        if match and not match[1].startswith(_NO_FAULT):
            arrow = _ARROW.fullmatch(lines[index + 1]) if index + 1 < len(lines) else None
            failures.append(
                Failure("build", format_location(arrow[1], arrow[2], root) if arrow else "", join_message([match[1]]))
            )
    return failures


CARGO: Final = Runner(
    name="cargo test",
    kind="cargo",
    matches=lambda folder: "Cargo.toml" in folder.names,
    command=_command,
    parse=read_cargo,
    options=frozenset({"package", "run", "module", "count", "verbose"}),
    environment={"CARGO_TERM_COLOR": "never", "RUST_BACKTRACE": "0"},
)

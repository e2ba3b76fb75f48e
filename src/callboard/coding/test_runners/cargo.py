"""cargo test: the compiler's messages are JSON; the tests print one line for each test.

The test harness of stable Rust writes no report. So cargo's exit code decides whether the tests passed, and the lines only
name and count them. If a harness prints no result, its process ended within a test, perhaps with exit code 0.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from callboard.coding.test_runners.report import (
    MAX_LINE,
    Failure,
    ProjectFolder,
    Runner,
    Selection,
    Tally,
    TestOutput,
    decode_json,
    format_location,
    join_message,
)

_TEST = re.compile(r"test (\S.*?) \.\.\. (ok|FAILED|ignored(?:, .*)?)")
_BEGIN = re.compile(r"running \d+ tests?")
_SECTION = re.compile(r"---- (.+?) (?:stdout|stderr) ----")
_PANIC = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at (?:'(.*)', )?([^':]\S*?):(\d+):\d+:?")
_MAX_LINES = 400
"""Lines of one failed test that are read."""
_DOWNLOADS: Final = ("failed to download", "failed to get `", "Unable to update", "no matching package named")
"""Words of cargo about a crate that is not downloaded."""


class _Span(msgspec.Struct):
    file_name: str = ""
    line_start: int = 0
    is_primary: bool = False


class _Diagnostic(msgspec.Struct):
    message: str = ""
    level: str = ""
    spans: tuple[_Span, ...] = ()


class _Event(msgspec.Struct):
    reason: str
    message: _Diagnostic | None = None


def _command(selection: Selection, folder: ProjectFolder) -> list[str]:
    command = ["cargo", "test", "--color=never", "--no-fail-fast"]
    if selection.package:
        command.append(f"--package={selection.package}")
    elif _is_workspace(folder):
        command.append("--workspace")
    if selection.module:
        command.append(f"--test={selection.module}")
    if selection.verbose:
        command.append("--verbose")
    return [*command, *([selection.run] if selection.run else [])]


def _is_workspace(folder: ProjectFolder) -> bool:
    return "[workspace]" in folder.texts.get("Cargo.toml", "")


def read_cargo(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read the compiler's messages and the lines of the tests."""
    counts = {"ok": 0, "FAILED": 0, "ignored": 0}
    failures: list[Failure] = []
    compiled: list[Failure] = []
    plain: list[str] = []
    for line in output.text.splitlines():
        if line.startswith("{") and (event := decode_json(line, _Event)) is not None:
            # The library is compiled twice, once with its tests.
            compiled += [each for each in _compiler_errors(event, folder.root) if each not in compiled]
        else:
            plain.append(line[:MAX_LINE])
    is_inside = False
    unfinished = 0
    for index, line in enumerate(plain):
        if match := _SECTION.fullmatch(line):
            is_inside = True
            failures.append(_parse_failure(match[1], plain[index + 1 : index + _MAX_LINES], folder.root))
        elif line == "failures:":
            is_inside = False
        elif not is_inside and (match := _TEST.fullmatch(line)):
            counts[match[2].partition(",")[0]] += 1
        elif not is_inside:
            unfinished += bool(_BEGIN.fullmatch(line)) - line.startswith("test result: ")
    is_explained = not output.code or counts["FAILED"] > 0 or len(compiled) > 0
    return Tally(
        passed=counts["ok"],
        failed=counts["FAILED"],
        skipped=counts["ignored"],
        errors=len(compiled),
        failures=(*failures, *compiled),
        complete=output.code is not None and unfinished <= 0 and is_explained,
        text="\n".join(plain),
    )


def _compiler_errors(event: _Event, root: str) -> list[Failure]:
    diagnostic = event.message
    if event.reason != "compiler-message" or diagnostic is None or diagnostic.level != "error":
        return []
    # The last message has no place: it only says that the crate could not be compiled.
    places = [
        format_location(each.file_name, str(each.line_start), root) for each in diagnostic.spans if each.is_primary
    ]
    return [Failure("build", places[0], join_message([diagnostic.message]))] if places else []


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


def _find_missing(output: TestOutput, tally: Tally, _folder: ProjectFolder) -> str:
    if output.code == 127:
        return "cargo is not installed; https://rustup.rs installs it"
    if output.code and not tally.total and any(word in output.text for word in _DOWNLOADS):
        return "crates of Cargo.toml are not downloaded; cargo fetch downloads them"
    return ""


CARGO: Final = Runner(
    name="cargo test",
    kind="cargo",
    matches=lambda folder: "Cargo.toml" in folder.names,
    command=_command,
    record=lambda command, _reports, _folder: ([*command[:2], "--message-format=json", *command[2:]], {}),
    parse=read_cargo,
    find_missing=_find_missing,
    options=frozenset({"package", "run", "module", "count", "verbose"}),
    manifests=("Cargo.toml",),
    environment={"CARGO_TERM_COLOR": "never", "RUST_BACKTRACE": "0"},
    covers=lambda folder: frozenset({"cargo"} if _is_workspace(folder) else ()),
)

"""The report of a test run, and the row of a test runner: how it is detected, started and read.

Law: a run is good only if its process ended with 0. Report files name the tests and count them. If a runner writes no
report file, the exit code decides alone. Printed text explains a failure and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import msgspec

Kind: TypeAlias = Literal["go", "npm", "python", "cargo", "make"]
_Value = TypeVar("_Value")


def decode_json(data: bytes | str, kind: type[_Value]) -> _Value | None:
    """Decode JSON that a hostile program may have written; None if it does not fit."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests to run; "" means all."""

    package: str = ""
    """A package or folder."""
    run: str = ""
    """A pattern of test names."""
    script: str = ""
    """A script of package.json, or a target of make."""
    module: str = ""
    """A module or file of tests."""
    count: int = 1
    """How often they run."""
    verbose: bool = False


class ProjectFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that may have tests."""

    root: str = ""
    names: frozenset[str] = frozenset()
    """Names in it; a folder's name ends with `/`."""
    texts: Mapping[str, str] = {}
    """The manifests in it, such as package.json, by name."""
    tests: frozenset[str] = frozenset()
    """The names in its folder of tests."""
    python: str = "python3"
    """Its interpreter."""
    search_path: str = ""
    """PATH of the commands, "" for that of this process."""
    path: str = ""
    """The folder relative to the workspace's root, "" for the root."""

    def json(self, name: str) -> dict[str, Any]:
        """Return a file's JSON object, empty if it has none."""
        return decode_json(self.texts.get(name, ""), dict[str, Any]) or {}


class TestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test command."""

    __test__: ClassVar[bool] = False

    text: str = ""
    """The printed output, without terminal escapes."""
    code: int | None = None
    """The exit code, None if the run was stopped."""
    reports: Mapping[str, bytes] = {}
    """The report files that the run wrote, by name. A hostile test can write anything into them."""


def keep_command(command: Sequence[str], _reports: str, _folder: ProjectFolder) -> tuple[list[str], dict[str, str]]:
    """Return the command unchanged, for a runner without report files."""
    return [*command], {}


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """One test runner."""

    name: str
    kind: Kind
    matches: Callable[[ProjectFolder], bool]
    """Returns whether the runner tests a folder."""
    command: Callable[[Selection, ProjectFolder], list[str]]
    """Returns the command as a person would type it."""
    record: Callable[[Sequence[str], str, ProjectFolder], tuple[list[str], dict[str, str]]] = keep_command
    """Returns the command and the variables with which the run writes report files into a folder."""
    parse: Callable[[TestOutput, ProjectFolder], Tally]
    """Reads the report files, else the exit code."""
    find_missing: Callable[[TestOutput, Tally, ProjectFolder], str] = lambda _output, _tally, _folder: ""
    """Returns a sentence about a missing program or dependency, with the command that installs it; "" for none."""
    options: frozenset[str]
    """The fields of a Selection that the runner supports."""
    manifests: tuple[str, ...] = ()
    """The files whose text the runner needs."""
    environment: Mapping[str, str] = {}
    covers: Callable[[ProjectFolder], frozenset[Kind]] = lambda _: frozenset()
    """Returns the kinds of projects in folders below that a run tests too."""


MAX_FAILURES: Final = 200
"""Failures in a report."""
MAX_MESSAGE: Final = 2000
"""Characters of a failure's message."""
MAX_LINE: Final = 4000
"""Characters of a line that are parsed, which bounds the cost of a hostile line."""
MAX_SUMMARY: Final = 6000
MAX_END: Final = 2500
"""Characters from the end of the output, in a report without readable failures."""

_SHOWN_FAILURES = 12
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")


class Failure(msgspec.Struct, frozen=True):
    """A test that failed, or an error that kept tests from running. `place` is `file:line`, "" if unknown."""

    name: str
    location: str = ""
    message: str = ""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The results in a runner's output."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0
    """Failures outside of tests: at import, in a fixture, at compiling."""
    failures: tuple[Failure, ...] = ()
    complete: bool = False
    """Whether the report is whole: the runner came to its end."""
    text: str = ""
    """The output as text, if it came as events."""

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.errors


class TestReport(Tally, frozen=True, kw_only=True):
    """A run of tests."""

    # Not a test, as pytest would think.
    __test__: ClassVar[bool] = False

    runner: str
    command: tuple[str, ...]
    code: int | None = None
    """The exit code, None if the run was stopped."""
    stopped: str = ""
    """Why it was stopped."""
    digest: str = ""
    """Names the content of the tree that was tested, "" if unknown."""
    output_end: str = ""
    """The end of the output, if no failure could be read from it."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    """Seconds that the run took."""
    missing: str = ""
    """Says which program or dependency is not installed, and what installs it, if nothing was tested because of that."""

    @property
    def is_good(self) -> bool:
        """Whether tests ran, all of them, and none failed."""
        return self.code == 0 and self.complete and not self.failed and not self.errors and self.passed > 0

    @property
    def not_tested(self) -> str:
        """Why the run says nothing about the code; "" if it does."""
        if self.missing:
            return self.missing
        found_none = self.complete and not self.stopped and not self.total and not self.skipped
        return "no tests were found" if found_none else ""

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        if self.not_tested:
            return f"{self.runner}: not tested: {self.not_tested}"
        counts = (
            (self.failed, "failed"),
            (self.errors, "error" if self.errors == 1 else "errors"),
            (self.passed, "passed"),
            (self.skipped, "skipped"),
        )
        text = ", ".join([f"{count} {word}" for count, word in counts if count]) or "no tests ran"
        if self.stopped:
            text += f"; stopped: {self.stopped}"
        elif not self.complete:
            text += f"; the run ended early, with exit code {self.code}"
        elif self.code and not self.failed and not self.errors:
            text += f"; but the exit code is {self.code}"
        return f"{self.runner}: {text}"

    @property
    def summary(self) -> str:
        """The outcome, and each failure with its place and message; for models and people."""
        parts = [self.headline]
        remaining = MAX_SUMMARY
        shown = 0
        for failure in self.failures[:_SHOWN_FAILURES]:
            where = f" ({failure.location})" if failure.location else ""
            text = f"- {failure.name}{where}\n{_indent(failure.message)}".rstrip()
            if shown and len(text) > remaining:
                break
            remaining -= len(text)
            shown += 1
            parts.append(text)
        if len(self.failures) > shown:
            names = ", ".join([each.name for each in self.failures[shown : shown + 20]])
            parts.append(f"and {len(self.failures) - shown} more: {names}")
        if self.output_end:
            parts.append(f"The output ends with:\n{_indent(self.output_end)}")
        return "\n".join([*parts, *self.notes])


def tally_exit_code(output: TestOutput) -> Tally:
    """Count the whole run as one test, for a command that writes no report file."""
    is_good = output.code == 0
    return Tally(passed=int(is_good), failed=int(not is_good), complete=output.code is not None)


def make_report(
    tally: Tally,
    *,
    runner: str,
    command: Sequence[str],
    code: int | None,
    output: str,
    stopped: str = "",
    notes: Iterable[str] = (),
    root: str = "",
) -> TestReport:
    """Make the report of a run; paths beneath the root are shortened."""
    values = {**msgspec.structs.asdict(tally), "text": ""}
    output = tally.text or output
    if stopped or code is None:
        values["complete"] = False
    failures = tally.failures[:MAX_FAILURES]
    prefix = f"{root.rstrip('/')}/" if root.rstrip("/") else "\0"
    values["failures"] = tuple(
        [
            Failure(each.name.replace(prefix, ""), each.location, each.message[:MAX_MESSAGE].replace(prefix, ""))
            for each in failures
        ]
    )
    report = TestReport(**values, runner=runner, command=tuple(command), code=code, stopped=stopped, notes=tuple(notes))
    if report.is_good or failures:
        return report
    return msgspec.structs.replace(report, output_end=output.rstrip()[-MAX_END:].lstrip("\n"))


def strip_terminal_codes(output: str) -> str:
    """Remove terminal escapes, and cut very long lines except JSON objects, which cannot be read without their end."""
    lines = _ESCAPES.sub("", output).replace("\r\n", "\n").split("\n")
    return "\n".join([line if line.startswith("{") else line[:MAX_LINE] for line in lines])


def format_location(path: str, line: str, root: str) -> str:
    """Format `file:line` relative to the root, "" for a file outside of the project."""
    path = path.removeprefix("file://").removeprefix(f"{root.rstrip('/')}/" if root else "").removeprefix("./")
    if not path or path.startswith(("/", "<", "node:", "../")) or "node_modules/" in path or "site-packages/" in path:
        return ""
    return f"{path}:{line}"


def find_locations(pattern: re.Pattern[str], lines: Iterable[str], root: str) -> list[str]:
    """Return the locations in lines that match a pattern, whose groups are the file and the line."""
    matches = [match for line in lines if (match := pattern.fullmatch(line))]
    return [place for match in matches if (place := format_location(match[1], match[2], root))]


def join_message(lines: Iterable[str], most: int = 40) -> str:
    """Lines as a message: at most `most`, and no empty ones around them."""
    return "\n".join([line.rstrip() for line in list(lines)[:most]]).strip("\n")


def _indent(text: str) -> str:
    return "\n".join([f"    {line}" if line else "" for line in text.splitlines()])

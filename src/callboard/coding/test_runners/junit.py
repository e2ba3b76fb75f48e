"""Read JUnit XML, which pytest, node's runner and many others write.

Law: a report file is hostile input. A document type is refused, so there are no entities, and depth, cases and text
are limited. A file that is cut or not well-formed is no report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias
from xml.parsers import expat

import msgspec

from callboard.coding.test_runners.report import Failure, Tally

MAX_DEPTH: Final = 100
"""Elements within each other."""
MAX_CASES: Final = 100_000
"""Test cases of one file."""
MAX_TEXT: Final = 20_000
"""Characters of one message that are kept."""
MAX_TEXTS: Final = 8 * 1024 * 1024
"""Characters of all messages that are kept."""

CaseState: TypeAlias = Literal["passed", "failed", "error", "skipped"]
_CONTROLS: Final = bytes([code if code >= 0x20 or code in b"\t\n\r" else 0x3F for code in range(256)])
_STATES: Final[dict[str, CaseState]] = {"failure": "failed", "error": "error", "skipped": "skipped"}
_WORST: Final[tuple[CaseState, ...]] = ("failed", "error", "skipped", "passed")


class CaseProblem(msgspec.Struct, frozen=True):
    """One failure, error or skip of a test case."""

    state: CaseState
    message: str
    text: str
    """The text of the element, such as a traceback."""


class JunitCase(msgspec.Struct, frozen=True):
    """A test case."""

    name: str
    class_name: str
    file: str
    line: str
    problems: tuple[CaseProblem, ...]
    may_fail: bool
    """True if the test is marked as `todo`."""

    @property
    def state(self) -> CaseState:
        """The worst state, except for a test that may fail."""
        states = {each.state for each in self.problems}
        return "skipped" if self.may_fail else next((each for each in _WORST if each in states), "passed")


class NotReport(ValueError):
    """A file that is not a whole report of tests."""


def parse_junit(data: bytes) -> list[JunitCase]:
    """Return the test cases of a file. Raises NotReport."""
    reader = _JunitReader()
    try:
        # node's runner writes control characters of names as they are.
        reader.parser.Parse(data.translate(_CONTROLS), True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise NotReport(str(error)) from None
    return reader.cases


class _JunitReader:
    def __init__(self) -> None:
        self.cases: list[JunitCase] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add_text
        self.parser.StartDoctypeDeclHandler = self._refuse
        self._path: list[str] = []
        self._case: dict[str, str] = {}
        self._may_fail = False
        self._problems: list[CaseProblem] = []
        self._state: CaseState | None = None
        self._message = ""
        self._text: list[str] = []
        self._room = 0
        self._total_room = MAX_TEXTS

    def _refuse(self, *_: object) -> None:
        raise NotReport("a report has no document type")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._path and tag not in ("testsuites", "testsuite"):
            raise NotReport("the file is not JUnit XML")
        self._path.append(tag)
        if len(self._path) > MAX_DEPTH:
            raise NotReport("the elements are too deep")
        if tag == "testcase":
            self._case, self._problems, self._may_fail = attributes, [], False
        elif tag in _STATES and self._path[-2:-1] == ["testcase"]:
            self._state, self._message, self._text = _STATES[tag], attributes.get("message", "")[:MAX_TEXT], []
            self._may_fail |= attributes.get("type") == "todo"
            self._room = min(MAX_TEXT, self._total_room)

    def _end(self, tag: str) -> None:
        self._path.pop()
        if tag == "testcase":
            if len(self.cases) >= MAX_CASES:
                raise NotReport("there are too many test cases")
            name, class_name, file, line = (
                self._case.get(key, "")[:MAX_TEXT] for key in ("name", "classname", "file", "line")
            )
            self.cases.append(JunitCase(name, class_name, file, line, tuple(self._problems), self._may_fail))
        elif self._state is not None and self._path[-1:] == ["testcase"]:
            text = "".join(self._text)
            self._total_room -= len(text)
            self._problems.append(CaseProblem(self._state, self._message, text))
            self._state = None

    def _add_text(self, text: str) -> None:
        if self._state is not None and self._room > 0:
            self._text.append(text[: self._room])
            self._room -= len(text)


def tally_cases(files: Iterable[bytes], make_failures: Callable[[JunitCase], list[Failure]]) -> Tally:
    """Count the cases of report files. A file that is not a report makes the tally incomplete."""
    counts = dict.fromkeys(_WORST, 0)
    failures: list[Failure] = []
    is_read, complete = False, True
    for data in files:
        try:
            cases = parse_junit(data)
        except NotReport:
            complete = False
            continue
        is_read = True
        for case in cases:
            counts[case.state] += 1
            if case.state in ("failed", "error"):
                failures += make_failures(case)
    return Tally(
        passed=counts["passed"],
        failed=counts["failed"],
        skipped=counts["skipped"],
        errors=counts["error"],
        failures=tuple(failures),
        complete=is_read and complete,
    )

"""pytest, and unittest where pytest cannot be imported.

Their printed output is read, not a report file: a target of make prints the same, and both summaries have not changed
in years. Law: the run leaves no files in the folder, and tests the folder, not an installed copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

_COUNTS = re.compile(r"=*\s*((?:\d+ [a-z ]+(?:, )?)+|no tests ran) in [\d.]+ ?s(?:econds)?(?: \([^()]*\))?\s*=*")
_COUNT = re.compile(r"(\d+) ([a-z ]+)")
_BLOCK = re.compile(r"=+ (.+?) =+")
_SECTION = re.compile(r"_{2,} (.+?) _{2,}")
_LISTED = re.compile(
    r"(?:(?P<sub>(?:[\[(].*? )?SUBFAIL\S*(?: \(.*?\))?)|FAILED|(?P<error>ERROR)) (?P<name>\S.*?)(?: - .*)?"
)
_TEARDOWN = "ERROR at teardown of "
_AT = re.compile(r"(\S[^\n]*?):(\d+): ?.*")
_TEST = re.compile(r"test_.*\.py", re.DOTALL)
_RAN = re.compile(r"Ran (\d+) tests? in [\d.]+s")
_RESULT = re.compile(r"(OK|FAILED|NO TESTS RAN)(?: \(([^)]*)\))?")
_FRAME = re.compile(r'\s*File "([^"\n]+)", line (\d+)')
_HEADING = re.compile(r"(FAIL|ERROR): (\S+)(.*)")


def is_python(folder: ProjectFolder) -> bool:
    named = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt", "conftest.py")
    if any(name in folder.names for name in named):
        return True
    return any(name.endswith("_test.py") or _TEST.fullmatch(name) for name in folder.names | folder.tests)


def _pytest_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    level = 2 if selection.verbose else 0
    command = [folder.python, "-m", "pytest", "--color=no", "--tb=short", "-rfE", f"--verbosity={level}"]
    command += ["-p", "no:cacheprovider"]
    if selection.run:
        command.append(f"-k={selection.run}")
    path = module = selection.module
    if module and not ("/" in module or "::" in module or module.endswith(".py")):
        path = module.replace(".", "/") + ".py"
    return command + [each for each in (path or selection.package,) if each]


def _unittest_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    command = [folder.python, "-m", "unittest"]
    options = [*(["-v"] if selection.verbose else []), *([f"-k={selection.run}"] if selection.run else [])]
    if selection.module:
        return [*command, *options, selection.module.removesuffix(".py").replace("/", ".")]
    start = selection.package or ("tests" if "tests/" in folder.names else ".")
    top = ["-t", "."] if start == "tests" and "__init__.py" in folder.tests else []
    return [*command, "discover", *options, "-s", start, *top]


def read_pytest(output: str, _code: int | None, folder: ProjectFolder) -> Tally:
    """Read pytest's output, in any verbosity."""
    lines = output.splitlines()
    counts: dict[str, int] = {}
    complete = False
    for line in reversed(lines):
        if match := _COUNTS.fullmatch(line.strip()):
            counts = {word: int(number) for number, word in _COUNT.findall(match[1])}
            complete = True
            break
    listed = [match for line in lines if (match := _LISTED.fullmatch(line))]
    failures = []
    teardowns = 0
    for block in ("FAILURES", "ERRORS"):
        sections = list(_split_sections(lines, block))
        teardowns += sum(name.startswith(_TEARDOWN) for name, _ in sections)
        # The names of the summary are whole; both have the same order.
        named = [each["name"] for each in listed if bool(each["error"]) == (block == "ERRORS")]
        named = named if len(named) == len(sections) else [name for name, _ in sections]
        failures += [_parse_failure(name, body, folder.root) for name, (_, body) in zip(named, sections, strict=True)]
    # Each test counts once here. pytest counts each failed subtest too, and the test around it as failed (fixture
    # `subtests`) or passed (`subTest` of unittest). It counts a test as passed even if its teardown fails.
    subtests = [each["name"] for each in listed if each["sub"]]
    inside = len({*subtests} - {each["name"] for each in listed if not (each["sub"] or each["error"])})
    failed = counts.get("failed", 0) + counts.get("subtests failed", 0)
    return Tally(
        passed=max(0, counts.get("passed", 0) + counts.get("xpassed", 0) - inside - teardowns),
        failed=max(min(failed, 1), failed - len(subtests) + inside),
        skipped=counts.get("skipped", 0) + counts.get("xfailed", 0),
        errors=counts.get("error", 0) + counts.get("errors", 0),
        failures=tuple(failures),
        complete=complete,
    )


def _split_sections(lines: list[str], title: str) -> Iterator[tuple[str, list[str]]]:
    block, name = "", ""
    body: list[str] = []
    for line in lines:
        if match := _BLOCK.fullmatch(line):
            if name and block == title:
                yield name, body
            block, name, body = match[1], "", []
        elif block == title and (match := _SECTION.fullmatch(line)):
            if name:
                yield name, body
            name, body = match[1], []
        else:
            body.append(line)


def _parse_failure(name: str, body: list[str], root: str) -> Failure:
    message = [line[1:].removeprefix("   ") for line in body if line.startswith(("E ", "E\t")) or line == "E"]
    places = [
        place
        for line in body
        if (match := _AT.fullmatch(line)) and (place := format_location(match[1], match[2], root))
    ]
    # Lines in a file that is not Python.
    places += [
        place for line in message if (at := _FRAME.match(line)) and (place := format_location(at[1], at[2], root))
    ]
    if not message:
        message = [line for line in body if not line.startswith("---")]
    return Failure(name, places[-1] if places else "", join_message(message))


def read_unittest(output: str, _code: int | None, folder: ProjectFolder) -> Tally:
    """Read unittest's output."""
    lines = output.splitlines()
    ran, counts, complete = 0, {"": 0}, False
    for index in range(len(lines) - 1, -1, -1):
        if match := _RAN.fullmatch(lines[index]):
            ran = int(match[1])
            after = [line for line in lines[index + 1 :] if line]
            if after and (result := _RESULT.fullmatch(after[0])):
                pairs = [each.partition("=") for each in (result[2] or "").split(", ") if "=" in each]
                counts = {name: int(number) for name, _, number in pairs if number.isdigit()}
                complete = True
            break
    failures: list[Failure] = []
    tests: set[str] = set()
    repeated = {"FAIL": 0, "ERROR": 0}
    """Failures of subtests of a test that counts already."""
    for index, line in enumerate(lines):
        if line == "=" * 70 and index + 1 < len(lines) and (match := _HEADING.fullmatch(lines[index + 1])):
            test = match[2] + match[3].split(")")[0]
            repeated[match[1]] += test in tests
            tests.add(test)
            failures.append(
                _parse_unittest_failure(match[2], lines[index + 3 : _find_section_end(lines, index + 3)], folder.root)
            )
    skipped = counts.get("skipped", 0) + counts.get("expected failures", 0)
    failed = counts.get("failures", 0) - repeated["FAIL"] + counts.get("unexpected successes", 0)
    passed = max(0, ran - len(tests) - skipped - counts.get("unexpected successes", 0))
    return Tally(
        passed=passed,
        failed=max(0, failed),
        skipped=skipped,
        errors=max(0, counts.get("errors", 0) - repeated["ERROR"]),
        failures=tuple(failures),
        complete=complete,
    )


def _find_section_end(lines: list[str], start: int) -> int:
    """Return the index where the section that begins at `start` ends."""
    for index in range(start, len(lines)):
        if lines[index] in ("=" * 70, "-" * 70):
            return index
    return len(lines)


def _parse_unittest_failure(name: str, body: list[str], root: str) -> Failure:
    places = [
        place for line in body if (match := _FRAME.match(line)) and (place := format_location(match[1], match[2], root))
    ]
    frames = [index for index, line in enumerate(body) if _FRAME.match(line)]
    # The frame, and the line of code below it.
    message = body[frames[-1] + 1 :] if frames else body
    while message and message[0].startswith("    "):
        message = message[1:]
    return Failure(name, places[-1] if places else "", join_message(message))


_CLEAN: Final = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PY_COLORS": "0"}
_HONOURED: Final = frozenset({"package", "run", "module", "count", "verbose"})

UNITTEST: Final = Runner(
    name="unittest",
    kind="python",
    matches=is_python,
    command=_unittest_command,
    parse=read_unittest,
    options=_HONOURED,
    environment=_CLEAN,
)
PYTEST: Final = Runner(
    name="pytest",
    kind="python",
    matches=is_python,
    command=_pytest_command,
    parse=read_pytest,
    options=_HONOURED,
    environment=_CLEAN,
    missing_message="No module named pytest",
    fallback=UNITTEST,
)

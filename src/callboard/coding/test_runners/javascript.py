"""npm test, with what it runs: node --test, jest, vitest, mocha. Law: of two summaries in an output the last counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
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

_MOST = 400
_NODE_COUNT = re.compile(r"(?:#|\u2139) (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)")
_NOT_OK = re.compile(r"\s*not ok \d+ - (.*?)( # (?:TODO|SKIP)\b.*)?")
_YAML = re.compile(r"\s+(location|failureType|error): (.*)")
_TEST_AT = re.compile(r"test at (\S.*?):(\d+):\d+")
_CROSS = re.compile(r"\s*\u2716 (.+?) \([\d.]+ms\)( # .*)?")
_STACK = re.compile(r"\s+(?:at |\u276f )?(?:async )?(?:[^()]{0,400}\()?((?:file://)?[^():]{1,1000}):(\d+):\d+\)?,?")
_JEST = re.compile(r"(Test Suites|Tests): +(.* total)")
_JEST_HEADING = re.compile(r"  \u25cf (.+)")
_VITEST = re.compile(r"\s*(Test Files|Tests)  +(.*\(\d+\))(?: .*)?")
_VITEST_HEADING = re.compile(r" FAIL  (.+)")
_VITEST_AT = re.compile(r" \u276f (?:\S+ )?(\S+?):(\d+):\d+")
_MOCHA = re.compile(r"  (\d+) (passing|pending|failing)(?: \([^)]*\))?")
_MOCHA_HEADING = re.compile(r"  \d+\) (.*)")
_PAIR = re.compile(r"(\d+) ([a-z]+)")
_CODE = re.compile(r"\s*>?\s*\d*\s*\|.*")


def read_node(output: str, root: str) -> Tally:
    """Either of its forms: TAP, or the one for people (`spec`)."""
    lines = output.splitlines()
    counts: dict[str, int] = {}
    for line in reversed(lines):
        if match := _NODE_COUNT.fullmatch(line):
            counts.setdefault(match[1], int(float(match[2])))
            if match[1] == "tests":
                break
        elif counts and line.strip() and "pass" in counts:
            break
    failures = [*_tap_failures(lines, root), *_spec_failures(lines, root)]
    return Tally(
        passed=counts.get("pass", 0),
        failed=counts.get("fail", 0) + counts.get("cancelled", 0),
        skipped=counts.get("skipped", 0) + counts.get("todo", 0),
        failures=tuple(failures),
        complete={"tests", "pass", "fail"} <= counts.keys(),
    )


def _tap_failures(lines: list[str], root: str) -> Iterable[Failure]:
    for index, line in enumerate(lines):
        match = _NOT_OK.fullmatch(line)
        if not match or match[2]:
            continue
        fields: dict[str, str] = {}
        error_lines: list[str] = []
        place = ""
        for after in lines[index + 1 : index + _MOST]:
            if after.strip() == "...":
                break
            if pair := _YAML.fullmatch(after):
                fields[pair[1]] = pair[2].strip("'")
            elif not place and (at := _STACK.fullmatch(after)):
                place = format_location(at[1], at[2], root)
            if "error" in fields and fields["error"] in ("|-", ""):
                error_lines.append(after.strip())
        if fields.get("failureType", "") == "subtestsFailed":
            continue
        path, line_number, _ = [*fields.get("location", "").rsplit(":", 2), "", ""][:3]
        error = fields.get("error", "")
        yield Failure(
            match[1].replace("\\#", "#"),
            place or format_location(path, line_number, root),
            join_message(_until_key(error_lines[1:])) if error == "|-" else error,
        )


def _until_key(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if line.startswith(("code:", "name:", "expected:", "stack:")):
            return
        if line:
            yield line


def _spec_failures(lines: list[str], root: str) -> Iterable[Failure]:
    """Return the list of failing tests at the end."""
    starts = [index for index, line in enumerate(lines) if line.strip("\u2716 ") == "failing tests:"]
    place = ""
    for index in range(starts[-1] + 1 if starts else len(lines), len(lines)):
        if match := _TEST_AT.fullmatch(lines[index]):
            place = format_location(match[1], match[2], root)
        elif (match := _CROSS.fullmatch(lines[index])) and not match[2]:
            body = _take_until(lines, index + 1, lambda line: bool(_TEST_AT.fullmatch(line)))
            at, message = _split_message(body, root)
            yield Failure(match[1], at or place, message)


def read_jest(output: str, root: str) -> Tally:
    lines = output.splitlines()
    counts = _parse_summary(lines, _JEST)
    failures = []
    broken = 0
    for index, line in enumerate(lines):
        heading = _JEST_HEADING.fullmatch(line)
        if not heading or heading[1] == "Console":
            continue
        body = _take_until(
            lines,
            index + 1,
            lambda each: each.startswith(("FAIL ", "PASS ", "Test Suites:")) or bool(_JEST_HEADING.fullmatch(each)),
        )
        at, message = _split_message(body, root)
        if heading[1] == "Test suite failed to run":
            broken += 1
        failures.append(Failure(heading[1], at, message))
    complete = "Test Suites" in counts and "total" in counts.get("Tests", {})
    return _make_tally(counts, broken, failures, complete=complete)


def read_vitest(output: str, root: str) -> Tally:
    lines = output.splitlines()
    counts = _parse_summary(lines, _VITEST)
    failures = []
    broken = 0
    for index, line in enumerate(lines):
        heading = _VITEST_HEADING.fullmatch(line)
        if not heading:
            continue
        body = _take_until(lines, index + 1, lambda each: each.startswith(("\u23af", " FAIL ")))
        places = [
            place
            for each in body
            if (at := _VITEST_AT.fullmatch(each)) and (place := format_location(at[1], at[2], root))
        ]
        message = [each for each in body if not _VITEST_AT.fullmatch(each) and not _CODE.fullmatch(each)]
        broken += " > " not in heading[1]
        failures.append(Failure(heading[1], places[0] if places else "", join_message(message)))
    complete = "Test Files" in counts and bool(counts.get("Tests"))
    return _make_tally(counts, broken, failures, complete=complete)


def _make_tally(
    counts: Mapping[str, Mapping[str, int]], broken: int, failures: list[Failure], *, complete: bool
) -> Tally:
    """Count as jest and vitest do; `broken` files had no tests to run."""
    tests = counts.get("Tests", {})
    return Tally(
        passed=tests.get("passed", 0),
        failed=tests.get("failed", 0),
        skipped=tests.get("skipped", 0) + tests.get("todo", 0),
        errors=broken,
        # jest repeats failures at its end.
        failures=tuple({(each.name, each.location, each.message): each for each in failures}.values()),
        complete=complete,
    )


def read_mocha(output: str, root: str) -> Tally:
    lines = output.splitlines()
    counts: dict[str, int] = {}
    end = len(lines)
    for index in range(len(lines) - 1, -1, -1):
        if match := _MOCHA.fullmatch(lines[index]):
            counts.setdefault(match[2], int(match[1]))
            if match[2] == "failing":
                end = index
            if match[2] == "passing":
                break
    failures = []
    for index in range(end, len(lines)):
        if match := _MOCHA_HEADING.fullmatch(lines[index]):
            body = _take_until(lines, index + 1, lambda each: bool(_MOCHA_HEADING.fullmatch(each)))
            inner = next((position for position, each in enumerate(body) if each.endswith(":")), -1)
            name = " ".join([match[1].strip(), *(each.strip() for each in body[: inner + 1])]).rstrip(":")
            at, message = _split_message(body[inner + 1 :], root)
            failures.append(Failure(name, at, message))
    return Tally(
        passed=counts.get("passing", 0),
        failed=counts.get("failing", 0),
        skipped=counts.get("pending", 0),
        failures=tuple(failures),
        complete="passing" in counts,
    )


def _parse_summary(lines: list[str], pattern: re.Pattern[str]) -> dict[str, dict[str, int]]:
    """The counts in the last line of each name."""
    counts: dict[str, dict[str, int]] = {}
    for line in reversed(lines):
        if match := pattern.fullmatch(line):
            counts.setdefault(match[1], {word: int(number) for number, word in _PAIR.findall(match[2])})
            if len(counts) == 2:
                break
    return counts


def _take_until(lines: list[str], start: int, is_end: Callable[[str], bool]) -> list[str]:
    body: list[str] = []
    for line in lines[start : start + _MOST]:
        if is_end(line):
            break
        body.append(line)
    return body


def _split_message(body: list[str], root: str) -> tuple[str, str]:
    """Return the location, and the message without code and stack."""
    places = [
        place for line in body if (at := _STACK.fullmatch(line)) and (place := format_location(at[1], at[2], root))
    ]
    if "    Details:" in body:
        body = body[body.index("    Details:") + 1 :]
    stack = next((index for index, line in enumerate(body) if line.lstrip().startswith("at ")), len(body))
    message = [line.strip() for line in body[:stack] if line.strip() and not _CODE.fullmatch(line)]
    return (places[0] if places else ""), join_message(message, 12)


_READERS: Final = {"jest": read_jest, "vitest": read_vitest, "mocha": read_mocha, "node": read_node}
# The option of each runner that selects tests; node accepts no option after its files.
_PATTERNS: Final = {"jest": "-t", "vitest": "-t", "mocha": "-g"}
_UNSET: Final = "no test specified"
_SUFFIXES: Final = tuple([f".{word}.{end}" for word in ("test", "spec") for end in ("js", "mjs", "cjs", "ts")])


def _get_script(folder: ProjectFolder, name: str) -> str:
    scripts = folder.json("package.json").get("scripts")
    script = scripts.get(name) if isinstance(scripts, dict) else None
    return script if isinstance(script, str) and _UNSET not in script else ""


def _find_framework(script: str) -> str:
    """Return the framework that a script runs, "" if it is unknown."""
    words = script.replace("/", " ").split()
    if "node" in words and "--test" in words:
        return "node"
    return next((name for name in _PATTERNS if name in words), "")


def _make_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    name = selection.script or "test"
    script = _get_script(folder, name)
    if not script and not selection.script:
        return _command_without_script(selection, folder)
    framework = _find_framework(script)
    further = []
    if selection.run and framework in _PATTERNS:
        further += [_PATTERNS[framework], selection.run]
    elif selection.run and framework == "node":
        further += [f"--test-name-pattern={selection.run}"]
    if selection.verbose and framework == "jest":
        further.append("--verbose")
    further += [selection.module] if selection.module else []
    workspace = [f"--workspace={selection.package}"] if selection.package else []
    command = ["npm", "test"] if name == "test" else ["npm", "run", name]
    return [*command, *workspace, *(["--", *further] if further else [])]


def _command_without_script(selection: Selection, folder: ProjectFolder) -> list[str]:
    """Return the command without a test script in package.json: the required framework, else node's own runner."""
    manifest = folder.json("package.json")
    tables = [manifest.get(key) for key in ("devDependencies", "dependencies")]
    dependencies = {name for each in tables if isinstance(each, dict) for name in each}
    framework = next((name for name in _PATTERNS if name in dependencies), "node")
    pattern = selection.run
    paths = [selection.module] if selection.module else [selection.package] if selection.package else []
    if framework == "node":
        return ["node", "--test", *([f"--test-name-pattern={pattern}"] if pattern else []), *paths]
    once = ["run"] if framework == "vitest" else []
    chosen = [_PATTERNS[framework], pattern] if pattern else []
    return [f"node_modules/.bin/{framework}", *once, *chosen, *paths]


def read_npm(output: str, _code: int | None, folder: ProjectFolder) -> Tally:
    """Read the output of the framework that the script names, else of the one whose summary is there."""
    framework = _find_framework(_get_script(folder, "test"))
    if framework and (tally := _READERS[framework](output, folder.root)).complete:
        return tally
    tallies = [reader(output, folder.root) for reader in _READERS.values()]
    return next((each for each in tallies if each.complete), max(tallies, key=lambda each: len(each.failures)))


NPM: Final = Runner(
    name="npm test",
    kind="npm",
    matches=lambda folder: "package.json" in folder.names or any(name.endswith(_SUFFIXES) for name in folder.names),
    command=_make_command,
    parse=read_npm,
    options=frozenset({"package", "run", "script", "module", "count", "verbose"}),
    manifests=("package.json",),
    environment={
        "CI": "1",
        "NO_COLOR": "1",
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
    },
)

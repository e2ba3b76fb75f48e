"""`npm test` and the frameworks that it starts: node's own runner, jest, vitest and mocha.

Each framework is a row: the option that selects tests, the options and variables that ask for a report file, and its
reader. A script that starts another program counts as one test, by its exit code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from callboard.coding.test_runners.junit import JunitCase, tally_cases
from callboard.coding.test_runners.report import (
    Failure,
    Kind,
    ProjectFolder,
    Runner,
    Selection,
    Tally,
    TestOutput,
    decode_json,
    find_locations,
    format_location,
    join_message,
    tally_exit_code,
)

_STACK = re.compile(
    r"\s+(?:at |\u276f )(?:async )?(?:[^()]{0,400}\()?((?:file://)?[^():]{1,1000}\.[A-Za-z][^():\s]*):(\d+):\d+\)?,?"
)
_FILE = re.compile(r"\S+\.[cm]?[jt]s")
_CODE = re.compile(r"\s*>?\s*\d*\s*\|.*")
_NODE_ERROR = re.compile(r"\[?Error \[ERR_TEST_FAILURE\]: ")
_STEPS = re.compile(r"&&|\|\||[;|&]")
_MISSING = re.compile(r"Cannot find (?:module|package) '((?:@[\w.-]+/)?[\w.-]+)[^']*'")
_UNSET: Final = "no test specified"
_SUFFIXES: Final = tuple([f".{word}.{end}" for word in ("test", "spec") for end in ("js", "mjs", "cjs", "ts")])
_NOT_FOUND: Final = 127
"""Exit code of a shell that cannot find a program."""


def _split_message(body: Sequence[str], root: str) -> tuple[str, str]:
    """Return the location, and the message without code and stack."""
    places = find_locations(_STACK, body, root)
    if "    Details:" in body:  # jest says at length what a file that cannot be parsed may be
        body = body[body.index("    Details:") + 1 :]
    stack = next((index for index, line in enumerate(body) if line.lstrip().startswith("at ")), len(body))
    message = [line.strip() for line in body[:stack] if line.strip() and not _CODE.fullmatch(line)]
    return (places[0] if places else ""), join_message(message, 12)


def read_node(data: bytes, root: str) -> Tally:
    """Read the JUnit XML of node's runner."""
    return tally_cases([data], lambda case: _node_failures(case, root))


def _node_failures(case: JunitCase, root: str) -> list[Failure]:
    body = [line for each in case.problems for line in each.text.splitlines() if line.strip()]
    place, message = _split_message(body, root)
    name = case.name.removeprefix(f"{root.rstrip('/')}/")
    if not place:  # a file that ended early, or an error without a stack
        place = format_location(name, "1", root) if _FILE.fullmatch(name) else ""
        message = join_message(each.message for each in case.problems)
    return [Failure(name, place, _NODE_ERROR.sub("", message, count=1))]


class _JestAssertion(msgspec.Struct, rename="camel"):
    title: str
    status: str
    ancestor_titles: tuple[str, ...] = ()
    failure_messages: tuple[str | None, ...] | None = ()


class _JestFile(msgspec.Struct, rename="camel"):
    name: str
    status: str
    assertion_results: tuple[_JestAssertion, ...]
    message: str | None = ""


class _JestReport(msgspec.Struct, rename="camel"):
    test_results: tuple[_JestFile, ...]


def read_jest(data: bytes, root: str) -> Tally:
    """Read the JSON of jest; vitest writes the same."""
    if (report := decode_json(data, _JestReport)) is None:
        return Tally()
    states = Counter(each.status for file in report.test_results for each in file.assertion_results)
    failures: list[Failure] = []
    errors = 0
    for file in report.test_results:
        failed = [each for each in file.assertion_results if each.status == "failed"]
        failures += [_jest_failure(each, root) for each in failed]
        if file.status == "failed" and not failed:
            errors += 1
            place, message = _split_message((file.message or "").splitlines(), root)
            name = file.name.removeprefix(f"{root.rstrip('/')}/")
            failures.append(Failure(name, place or format_location(file.name, "1", root), message))
    return Tally(
        passed=states["passed"],
        failed=states["failed"],
        skipped=states.total() - states["passed"] - states["failed"],
        errors=errors,
        failures=tuple(failures),
        complete=True,
    )


def _jest_failure(assertion: _JestAssertion, root: str) -> Failure:
    body = [line for text in assertion.failure_messages or () for line in (text or "").splitlines()]
    place, message = _split_message(body, root)
    return Failure(" > ".join([*filter(None, assertion.ancestor_titles), assertion.title]), place, message)


class _MochaError(msgspec.Struct):
    message: str = ""
    stack: str = ""


class _MochaTest(msgspec.Struct, rename="camel"):
    full_title: str
    err: _MochaError
    file: str | None = None


class _MochaReport(msgspec.Struct):
    passes: tuple[_MochaTest, ...]
    failures: tuple[_MochaTest, ...]
    pending: tuple[_MochaTest, ...] = ()


def read_mocha(data: bytes, root: str) -> Tally:
    """Read the JSON of mocha."""
    if (report := decode_json(data, _MochaReport)) is None:
        return Tally()
    failures = []
    for each in report.failures:
        place, message = _split_message((each.err.stack or each.err.message).splitlines(), root)
        failures.append(Failure(each.full_title, place or format_location(each.file or "", "1", root), message))
    return Tally(
        passed=len(report.passes),
        failed=len(failures),
        skipped=len(report.pending),
        failures=tuple(failures),
        complete=True,
    )


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework that a script starts."""

    pattern: str
    """The option that selects tests by name; it may end with `=`."""
    options: Callable[[str], tuple[str, ...]] = lambda _: ()
    """The options that ask for a report file in a folder."""
    environment: Callable[[str], Mapping[str, str]] = lambda _: {}
    """The variables that ask for a report file."""
    read: Callable[[bytes, str], Tally]
    once: tuple[str, ...] = ()
    """The arguments of a single run, without a watch."""
    verbose: tuple[str, ...] = ()


def _ask_node(reports: str) -> Mapping[str, str]:
    # Node reads quotes in this variable as JSON strings.
    path = json.dumps(f"--test-reporter-destination={reports}/node.xml")
    return {"NODE_OPTIONS": f"--test-reporter=junit {path} --test-reporter=spec --test-reporter-destination=stdout"}


FRAMEWORKS: Final[Mapping[str, Framework]] = {
    "jest": Framework(
        pattern="-t",
        options=lambda reports: ("--json", f"--outputFile={reports}/jest.json"),
        read=read_jest,
        verbose=("--verbose",),
    ),
    "vitest": Framework(
        pattern="-t",
        options=lambda reports: ("--reporter=default", "--reporter=json", f"--outputFile.json={reports}/vitest.json"),
        read=read_jest,
        once=("run",),
    ),
    "mocha": Framework(
        pattern="-g",
        options=lambda reports: ("--reporter=json", f"--reporter-option=output={reports}/mocha.json"),
        read=read_mocha,
    ),
    "node": Framework(pattern="--test-name-pattern=", environment=_ask_node, read=read_node),
}


def _get_script(folder: ProjectFolder, name: str) -> str:
    scripts = folder.json("package.json").get("scripts")
    script = scripts.get(name) if isinstance(scripts, dict) else None
    return script if isinstance(script, str) and _UNSET not in script else ""


def _find_framework(script: str) -> str:
    """Return the framework that the last command of a script starts, "" if it is another program."""
    words = _STEPS.split(script)[-1].replace("/", " ").split()
    if "node" in words and "--test" in words:
        return "node"
    return next((name for name in FRAMEWORKS if name != "node" and name in words), "")


def _required_framework(folder: ProjectFolder) -> str:
    """Return the framework that package.json requires, else node's own runner."""
    dependencies = _dependencies(folder)
    return next((name for name in FRAMEWORKS if name in dependencies), "node")


def has_javascript_tests(folder: ProjectFolder) -> bool:
    """Return whether a folder has a script of tests, a framework or test files."""
    has_files = any(name.endswith(_SUFFIXES) for name in folder.names | folder.tests)
    return bool(_get_script(folder, "test")) or has_files or bool(_dependencies(folder) & FRAMEWORKS.keys())


def _dependencies(folder: ProjectFolder) -> set[str]:
    manifest: dict[str, Any] = folder.json("package.json")
    tables = [manifest.get(key) for key in ("devDependencies", "dependencies")]
    return {name for each in tables if isinstance(each, dict) for name in each}


def _select(selection: Selection, name: str) -> list[str]:
    framework = FRAMEWORKS.get(name)
    if not selection.run or framework is None:
        return []
    joined = [f"{framework.pattern}{selection.run}"]
    return joined if framework.pattern.endswith("=") else [framework.pattern, selection.run]


def _make_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    name = selection.script or "test"
    script = _get_script(folder, name)
    if not script and not selection.script:
        return _command_without_script(selection, folder)
    framework = _find_framework(script)
    further = _select(selection, framework)
    if selection.verbose and framework:
        further += FRAMEWORKS[framework].verbose
    further += [selection.module] if selection.module else []
    workspace = [f"--workspace={selection.package}"] if selection.package else []
    command = ["npm", "test"] if name == "test" else ["npm", "run", name]
    return [*command, *workspace, *(["--", *further] if further else [])]


def _command_without_script(selection: Selection, folder: ProjectFolder) -> list[str]:
    """Return the command if package.json has no script of tests."""
    name = _required_framework(folder)
    selected = _select(selection, name)
    paths = [each for each in (selection.module or selection.package,) if each]
    if name == "node":
        return ["node", "--test", *selected, *paths]
    return [f"node_modules/.bin/{name}", *FRAMEWORKS[name].once, *selected, *paths]


def _framework_of(command: Sequence[str], folder: ProjectFolder) -> str:
    """Return the framework that a command of ours starts."""
    if command[:1] != ["npm"]:
        return _required_framework(folder)
    return _find_framework(_get_script(folder, "test" if command[1] == "test" else command[2]))


def _record(command: Sequence[str], reports: str, folder: ProjectFolder) -> tuple[list[str], dict[str, str]]:
    name = _framework_of([*command], folder)
    if not name:
        return [*command], {}
    options = FRAMEWORKS[name].options(reports)
    separator = ["--"] if options and command[0] == "npm" and "--" not in command else []
    return [*command, *separator, *options], {**FRAMEWORKS[name].environment(reports)}


def read_npm(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read the report of the framework, else the exit code."""
    for name, data in output.reports.items():
        framework = FRAMEWORKS.get(name.partition(".")[0])
        if framework is not None:
            return framework.read(data, folder.root)
    script = _get_script(folder, "test")
    if script and not _find_framework(script):
        return tally_exit_code(output)
    return Tally()


def _find_missing(output: TestOutput, tally: Tally, folder: ProjectFolder) -> str:
    where = f" in {folder.path}" if folder.path else ""
    if output.code == _NOT_FOUND and not output.reports:
        name = _find_framework(_get_script(folder, "test")) or _required_framework(folder)
        if name == "node" or "npm: " in output.text[-200:]:
            return "Node.js is not installed; https://nodejs.org/en/download installs it with npm"
        return f"{name} is not installed; npm install{where} installs it"
    if tally.passed or tally.failed > len(tally.failures):
        return ""
    dependencies = _dependencies(folder)
    texts = [output.text, *(each.message for each in tally.failures)]
    names = [match[1] for text in texts for match in _MISSING.finditer(text[-20_000:])]
    missing = next((name for name in names if name in dependencies), "")
    return f"{missing} is not installed; npm install{where} installs it" if missing else ""


def _covers(folder: ProjectFolder) -> frozenset[Kind]:
    """A script of the root tests its workspaces too."""
    return frozenset({"npm"} if _get_script(folder, "test") else ())


NPM: Final = Runner(
    name="npm test",
    kind="npm",
    matches=lambda folder: "package.json" in folder.names or any(name.endswith(_SUFFIXES) for name in folder.names),
    command=_make_command,
    record=_record,
    parse=read_npm,
    find_missing=_find_missing,
    options=frozenset({"package", "run", "script", "module", "count", "verbose"}),
    manifests=("package.json",),
    environment={
        "CI": "1",
        "NO_COLOR": "1",
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
    },
    covers=_covers,
)

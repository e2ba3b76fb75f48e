"""go test, read from its JSON events (`go doc test2json`).

A test counts once. If it has subtests, only they count, unless the test itself failed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final

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

_FRAME = re.compile(r"\s*(=== |--- |PASS$|FAIL\b|ok\b|exit status)")
_AT = re.compile(r"\s*([\w./-]+\.go):(\d+)(?::\d+)?: ?(.*)")
_STACK = re.compile(r"\s+(/\S+\.go):(\d+) \+0x")
_MODULE = re.compile(r"^module\s+(\S+)", re.MULTILINE)


def _command(selection: Selection, _folder: ProjectFolder) -> list[str]:
    command = ["go", "test", "-json"]
    if selection.count > 1:
        command.append(f"-count={selection.count}")
    if selection.run:
        command.append(f"-run={selection.run}")
    if selection.verbose:
        command.append("-v")
    return [*command, selection.module or selection.package or "./..."]


def read_go(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read the events of `go test -json`; other lines are the compiler's."""
    tests: dict[tuple[str, str], str] = {}
    outputs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    packages: dict[str, str] = {}
    begun: set[str] = set()
    loose: list[str] = []
    for line in output.text.splitlines():
        event = _parse_event(line)
        package, test, action = str(event.get("Package", "")), str(event.get("Test", "")), event.get("Action")
        if not event:
            loose.append(line[:MAX_LINE])
        elif action == "output":
            outputs[package, test].append(str(event.get("Output", ""))[:MAX_LINE].rstrip("\n"))
        elif action == "build-output":
            loose.append(str(event.get("Output", ""))[:MAX_LINE].rstrip("\n"))
        elif action == "start":
            begun.add(package)
        elif action in ("pass", "fail", "skip"):
            if test and tests.get((package, test)) != "fail":  # each of `-count` counts
                tests[package, test] = str(action)
            elif not test:
                packages[package] = str(action)
    parents = {_parent(key) for key in tests}
    blamed = {_parent(key) for key, action in tests.items() if action == "fail"}
    # A test with subtests counts if it failed itself.
    leaves = {
        key: action for key, action in tests.items() if key not in parents or (action == "fail" and key not in blamed)
    }
    module_line = _MODULE.search(folder.texts.get("go.mod", ""))
    module = module_line[1] if module_line else ""
    failures = [
        _parse_failure(package, test, outputs[package, test], module, folder.root)
        for (package, test), action in leaves.items()
        if action == "fail"
    ]
    failing = {package for (package, _), action in leaves.items() if action == "fail"}
    broken = [package for package, action in packages.items() if action == "fail" and package not in failing]
    errors = [match for line in loose if (match := _AT.fullmatch(line))]
    compiled = [Failure("build", format_location(each[1], each[2], folder.root), each[3]) for each in errors]
    failures += compiled or [Failure(each, "", join_message(outputs[each, ""])) for each in broken]
    actions = [*leaves.values()]
    return Tally(
        passed=actions.count("pass"),
        failed=actions.count("fail"),
        skipped=actions.count("skip"),
        errors=len(broken) or (1 if compiled and not packages else 0),
        failures=tuple(failures),
        complete=bool(packages) and begun <= set(packages),
        text="\n".join([*loose, *(line for lines in outputs.values() for line in lines)]),
    )


def _parse_event(line: str) -> dict[str, Any]:
    event = decode_json(line, dict[str, Any]) if line.startswith("{") else None
    return event if event is not None and "Action" in event else {}


def _parent(key: tuple[str, str]) -> tuple[str, str]:
    return key[0], key[1].rpartition("/")[0]


def _parse_failure(package: str, test: str, lines: list[str], module: str, root: str) -> Failure:
    folder = package.removeprefix(module).strip("/") if module and package.startswith(module) else ""
    place = ""
    for line in lines:
        # Lines of `t.Log` are indented, lines of the code under test are not.
        if line.startswith("    ") and (match := _AT.fullmatch(line)):
            place = f"{folder}/{match[1]}:{match[2]}".lstrip("/")
            break
        if (match := _STACK.match(line)) and (place := format_location(match[1], match[2], root)):
            break
    stack = next((index for index, line in enumerate(lines) if line.startswith("goroutine ")), len(lines))
    message = [line.strip() for line in lines[:stack] if line.strip() and not _FRAME.match(line)]
    return Failure(test, place, join_message(message, 12))


_DOWNLOADS: Final = ("dial tcp", "module lookup disabled", "missing go.sum entry")
"""Words of go about a module that is not downloaded."""


def _find_missing(output: TestOutput, tally: Tally, _folder: ProjectFolder) -> str:
    if output.code == 127:
        return "go is not installed; https://go.dev/dl has it"
    words = [tally.text, *(each.message for each in tally.failures)]
    if tally.passed or tally.failed or not any(word in text for word in _DOWNLOADS for text in words):
        return ""
    return "modules of go.mod are not downloaded; go mod download downloads them"


GO: Final = Runner(
    name="go test",
    kind="go",
    matches=lambda folder: "go.mod" in folder.names,
    command=_command,
    parse=read_go,
    find_missing=_find_missing,
    options=frozenset({"package", "run", "module", "count", "verbose"}),
    manifests=("go.mod",),
    environment={"GOTOOLCHAIN": "local"},
)

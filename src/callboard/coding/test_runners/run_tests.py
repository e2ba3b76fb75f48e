"""Detect the test runner of a folder by its files, and run the tests in the sandbox of a workspace.

Law: the report is about the files beneath the root as the run left them; its digest names them.

A make target may run anything. If the output has the summary of a known runner, we read the summary; else the whole run
counts as one test, by make's exit code.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from callboard.coding.test_runners.cargo import CARGO, read_cargo
from callboard.coding.test_runners.go import GO, read_go
from callboard.coding.test_runners.javascript import NPM, read_npm
from callboard.coding.test_runners.python import PYTEST, read_pytest, read_unittest
from callboard.coding.test_runners.report import (
    Failure,
    ProjectFolder,
    Runner,
    Selection,
    Tally,
    TestReport,
    format_location,
    make_report,
    strip_terminal_codes,
)
from callboard.coding.workspace.run_command import describe_stop, run_command
from callboard.coding.workspace.workspace import Workspace
from callboard.errors import CallerError
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.tools.context import ReportProgress

MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")

_TARGET = re.compile(r"^(test|check)\s*:", re.MULTILINE)
_AT = re.compile(r"(?:\S+: )?([^\s:]+\.\w+):(\d+)(?::\d+)?: (.*)")
_SAYS = re.compile(r"error|assert|fail|expected|not ok", re.IGNORECASE)
_STOPPED = re.compile(r"make(?:\[\d+\])?: \*\*\* (.*)")
_READERS = (read_pytest, read_unittest, read_cargo, read_go, read_npm)


def target(folder: ProjectFolder) -> str:
    """Return the target that runs tests, "" for none."""
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


RUNNERS: Final[tuple[Runner, ...]] = (GO, PYTEST, CARGO, NPM, MAKE)
"""In the order in which they are tried; a folder may fit several."""

_MANIFESTS: Final = tuple(dict.fromkeys(name for runner in RUNNERS for name in runner.manifests))
_TESTS: Final = ("tests", "test")
_MAX_NAMES = 20_000
_MAX_MANIFEST = 256 * 1024


def read_folder(files: ConfinedDirectory, place: str = "", borrowed: Sequence[str] = ()) -> ProjectFolder:
    """Read what detection needs of a folder beneath the root; `borrowed` folders count as if they were in it.

    Raises OSError for one that is not there.
    """
    names = {*_names(files, place or "."), *(f"{each}/" for each in borrowed if "/" not in each)}
    tests: set[str] = set()
    for each in _TESTS:
        if f"{each}/" in names:
            tests |= set(_names(files, _join(place, each)))
    texts = {}
    for each in _MANIFESTS:
        if each in names:
            with suppress(OSError):
                texts[each] = files.read(_join(place, each), _MAX_MANIFEST).decode("utf-8", "replace")
    return ProjectFolder(names=frozenset(names), texts=texts, tests=frozenset(tests))


def detect_runner(folder: ProjectFolder, kind: str = "") -> Runner | None:
    """Return the runner of a folder, of a kind if given; None if nothing there says how it is tested."""
    if kind:
        return next((each for each in RUNNERS if each.kind == kind), None)
    return next((each for each in RUNNERS if each.matches(folder)), None)


def _names(files: ConfinedDirectory, place: str) -> list[str]:
    try:
        return files.names(place, _MAX_NAMES)
    except OSError as error:
        # Too many to be looked at: a folder of data, not of manifests.
        if error.errno == errno.EFBIG:
            return []
        raise


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


SECONDS: Final = 600.0
"""Default time limit of a run."""
MAX_COUNT: Final = 20
"""Limit of `Selection.count`."""

_CD: Final = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"')
# The packages that mean all tests; `./...` is Go's.
_ALL: Final = frozenset({".", "./", "...", "./..."})
_VENVS: Final = (".venv", "venv")


async def run_tests(
    workspace: Workspace,
    selection: Selection | None = None,
    *,
    kind: str = "",
    folder: str = "",
    seconds: float = SECONDS,
    progress: ReportProgress = lambda *_: None,
    digest: Callable[[], Awaitable[str]] | None = None,
) -> TestReport:
    """Run the tests of a folder beneath the root, "" for the root itself.

    `kind` is the runner, guessed from the files if "". Raises CallerError if no runner fits the folder or the name is
    unknown; SandboxUnavailable if commands cannot be run.
    """
    selection = selection or Selection()
    if selection.package in _ALL:
        selection = replace(selection, package="")
    _check_selection(selection)
    path, project = await asyncio.to_thread(_choose_folder, workspace, folder, selection)
    if path != folder:
        selection = replace(selection, package="")
    runner = detect_runner(project, kind)
    if runner is None:
        kinds = ", ".join(each.kind for each in RUNNERS)
        raise CallerError(
            f"no file in {path or 'the root'} says how it is tested",
            path=str(workspace.root),
            hint=f"say it: type is one of {kinds}" if not kind else f"type is one of {kinds}",
        )
    report = await _run_repeatedly(runner, selection, project, workspace, path, seconds, progress)
    if (
        runner.fallback is not None
        and report.code
        and runner.missing_message
        and report.output_end.endswith(runner.missing_message)
    ):
        note = f"({runner.missing_message}: {runner.fallback.name} ran instead)"
        report = await _run_repeatedly(runner.fallback, selection, project, workspace, path, seconds, progress)
        missing = ""
        if _is_inconclusive(report, runner):
            programs = workspace.confinement.environment.get("PATH")
            missing = (
                f"{runner.name} is not installed in {shutil.which(project.python, path=programs) or project.python}"
            )
        report = replace(report, notes=(*report.notes, note), missing_runner=missing)
    if digest is not None:
        report = replace(report, digest=await digest())
    return report


def _is_inconclusive(report: TestReport, runner: Runner) -> bool:
    """Return whether no test ran, or one could not be imported because the runner is missing."""
    message = f"No module named '{runner.name}'"
    return not (report.total or report.skipped) or any(message in failure.message for failure in report.failures)


async def _run_repeatedly(  # noqa: PLR0917  # one call, with the names of the one above
    runner: Runner,
    selection: Selection,
    project: ProjectFolder,
    workspace: Workspace,
    place: str,
    seconds: float,
    progress: ReportProgress,
) -> TestReport:
    """Run the command `count` times, or once if the runner repeats tests itself; stop at the first failure."""
    command = runner.command(selection, project)
    counts = any(part.startswith("-count=") for part in command)
    options = [name for name in ("package", "run", "script", "module") if getattr(selection, name)]
    ignored = [name for name in options if name not in runner.options]
    environment = {**runner.environment, **_project_environment(runner, workspace, place)}
    for number in range(1 if counts else selection.count):
        label = " ".join(command) if selection.count == 1 else f"{' '.join(command)} ({number + 1})"
        outcome = await run_command(
            workspace,
            [*_CD, place, *command] if place else command,
            seconds=seconds,
            progress=progress,
            label=label,
            environment=environment,
        )
        output = strip_terminal_codes(outcome.output.decode("utf-8", "replace"))
        report = make_report(
            await asyncio.to_thread(runner.parse, output, outcome.code, project),
            runner=runner.name,
            command=command,
            code=outcome.code,
            output=output,
            stopped=describe_stop(outcome, workspace, seconds),
            notes=[f"({', '.join(ignored)}: not used by {runner.name})"] if ignored else [],
            root=str(workspace.root),
        )
        if not report.is_good:
            break
    return report


def _choose_folder(workspace: Workspace, folder: str, selection: Selection) -> tuple[str, ProjectFolder]:
    """Choose the folder to test: the given one, the package's own in it, or the only folder with tests."""
    files, borrowed = workspace.files, tuple(workspace.confinement.bind_mounts)
    root = str(workspace.root)
    python = _find_python(workspace)

    def read(path: str) -> ProjectFolder:
        project = read_folder(files, path, () if path else borrowed)
        return replace(project, root=f"{root}/{path}" if path else root, python=python)

    package = selection.package.removesuffix("/...").strip("/").removeprefix("./")
    if package:
        inner = f"{folder}/{package}" if folder else package
        try:
            project = read(inner)
        except OSError:
            project = ProjectFolder()
        if project.names & _ROOTS:
            return inner, project
    project = read(folder)
    if detect_runner(project) is None:
        below = [name.rstrip("/") for name in sorted(project.names) if name.endswith("/") and not name.startswith(".")]
        paths = [f"{folder}/{name}" if folder else name for name in below[:_MAX_BELOW]]
        matches = [
            (path, inside)
            for path in paths
            if detect_runner(inside := read(path)) is not None and inside.names & _ROOTS
        ]
        if len(matches) == 1:
            return matches[0]
    return folder, project


_MAX_BELOW = 50
_ROOTS = frozenset({"go.mod", "Cargo.toml", "package.json", "pyproject.toml", "setup.py"})


def _find_python(workspace: Workspace) -> str:
    """Return the interpreter of the project's virtual environment, own or borrowed, else the first on PATH."""
    for name in _VENVS:
        borrowed = workspace.confinement.bind_mounts.get(name)
        if borrowed is not None:
            return f"{borrowed}/bin/python"
        if (workspace.root / name / "bin" / "python").exists():
            return f"{workspace.root}/{name}/bin/python"
    return "python3"


def _project_environment(runner: Runner, workspace: Workspace, path: str) -> Mapping[str, str]:
    """Variables by which the project's sources come before an installed copy of it."""
    variables: dict[str, str] = {}
    top = workspace.root / path
    if runner.kind == "python":
        variables["PYTHONPATH"] = os.pathsep.join([*([f"{top}/src"] if (top / "src").is_dir() else []), str(top)])
        # Only what the user installed: a folder of the tree is not put on the way to programs.
        borrowed = [
            workspace.confinement.bind_mounts[name] for name in _VENVS if name in workspace.confinement.bind_mounts
        ]
        if borrowed:
            programs = workspace.confinement.environment.get("PATH") or os.environ.get("PATH", os.defpath)
            variables["PATH"] = f"{borrowed[0]}/bin{os.pathsep}{programs}"
    if runner.kind == "cargo" and workspace.confinement.home is not None:
        variables["CARGO_TARGET_DIR"] = str(workspace.confinement.home / "target")
    return variables


def _check_selection(selection: Selection) -> None:
    """Raise CallerError for a value that a runner would take for an option."""
    for name in ("package", "run", "module", "script"):
        value = getattr(selection, name)
        if value.startswith("-") or "\0" in value or "\n" in value:
            raise CallerError(f"{value!r} is no name", path=name)
    if not 1 <= selection.count <= MAX_COUNT:
        raise CallerError(f"tests run 1 to {MAX_COUNT} times", path="count")

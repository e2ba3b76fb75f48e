"""Run the tests of a repository's projects in the sandbox of a workspace.

Law: the report is about the files beneath the root as the run left them; its digest names them.

Each run gets a folder outside of the tree for its report files. A runner that is missing, or that finds no tests, hands
over to the next runner of the project.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from callboard.coding.test_runners.projects import RUNNERS, detect_runners, find_projects
from callboard.coding.test_runners.python import UNITTEST_SCRIPT
from callboard.coding.test_runners.report import (
    Failure,
    ProjectFolder,
    Runner,
    Selection,
    TestOutput,
    TestReport,
    make_report,
    strip_terminal_codes,
)
from callboard.coding.workspace.run_command import describe_stop, run_command
from callboard.coding.workspace.workspace import VENVS, Workspace
from callboard.errors import CallerError
from callboard.storage.confined_directory import ConfinedDirectory
from callboard.tools.context import ReportProgress

SECONDS: Final = 600.0
"""Default time limit of a run."""
MAX_COUNT: Final = 20
"""Limit of `Selection.count`."""
MAX_REPORT: Final = 32 * 1024 * 1024
"""Bytes of the report files of one run."""
MAX_REPORTS: Final = 50
"""Report files of one run."""

_CD: Final = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"')
# The packages that mean all tests; `./...` is Go's.
_ALL: Final = frozenset({".", "./", "...", "./..."})


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
    """Run the tests of the projects in a folder beneath the root, "" for the root itself.

    `kind` is the runner, guessed from the files if "". Raises CallerError if no runner fits the folder or the name is
    unknown; SandboxUnavailable if commands cannot be run.
    """
    selection = selection or Selection()
    if selection.package in _ALL:
        selection = replace(selection, package="")
    _check_selection(selection)
    package = selection.package.removesuffix("/...").strip("/").removeprefix("./")
    is_known = not kind or any(each.kind == kind for each in RUNNERS)
    projects = await asyncio.to_thread(find_projects, workspace, folder, package, kind) if is_known else []
    if not projects:
        kinds = ", ".join(dict.fromkeys(each.kind for each in RUNNERS))
        raise CallerError(
            f"no file in {folder or 'the root'} says how it is tested",
            path=str(workspace.root),
            hint=f"say it: type is one of {kinds}" if not kind else f"type is one of {kinds}",
        )
    reports: list[TestReport] = []
    for project in projects:
        chosen = replace(selection, package="") if project.path != folder else selection
        remaining = max(seconds - sum(each.seconds for each in reports), 1.0)
        report = await _run_project(chosen, project, kind, workspace, remaining, progress)
        reports.append(_from_root(report, project.path))
    report = reports[0] if len(reports) == 1 else _merge(reports, projects)
    return report if digest is None else replace(report, digest=await digest())


async def _run_project(  # noqa: PLR0917  # one call, with the names of the one above
    selection: Selection,
    project: ProjectFolder,
    kind: str,
    workspace: Workspace,
    seconds: float,
    progress: ReportProgress,
) -> TestReport:
    """Run the first runner that tests something. If none does, the report is that of the first."""
    reports: list[TestReport] = []
    for runner in detect_runners(project, kind):
        report = await _run_repeatedly(runner, selection, project, workspace, seconds, progress)
        if not report.not_tested or (not report.missing and selection != Selection()):
            note = [f"({reports[0].not_tested}; {runner.name} ran instead)"] if reports else []
            return replace(report, notes=(*report.notes, *note))
        reports.append(report)
    # A missing dependency says more than a program that finds nothing.
    return next((each for each in reports if each.missing), reports[0])


async def _run_repeatedly(  # noqa: PLR0917  # as above
    runner: Runner,
    selection: Selection,
    project: ProjectFolder,
    workspace: Workspace,
    seconds: float,
    progress: ReportProgress,
) -> TestReport:
    """Run the command `count` times, or once if the runner repeats tests itself; stop at the first failure."""
    command = runner.command(selection, project)
    counts = any(part.startswith("-count=") for part in command)
    options = [name for name in ("package", "run", "script", "module") if getattr(selection, name)]
    ignored = [name for name in options if name not in runner.options]
    taken = 0.0
    for number in range(1 if counts else selection.count):
        label = " ".join(command) if selection.count == 1 else f"{' '.join(command)} ({number + 1})"
        with _open_report_folder(workspace) as (home, folder):
            recorded, variables = runner.record(command, str(folder), project)
            outcome = await run_command(
                workspace,
                [*_CD, project.path, *recorded] if project.path else recorded,
                seconds=max(seconds - taken, 1.0),
                progress=progress,
                label=label,
                environment={
                    **runner.environment,
                    **variables,
                    **_project_environment(runner, workspace, project.path),
                },
                home=home,
            )
            text = strip_terminal_codes(outcome.output.decode("utf-8", "replace"))
            reports = await asyncio.to_thread(read_report_files, home, folder)
        output = TestOutput(text=text, code=outcome.code, reports=reports)
        taken += outcome.seconds
        tally = await asyncio.to_thread(runner.parse, output, project)
        report = make_report(
            tally,
            runner=runner.name,
            command=command,
            code=outcome.code,
            output=text,
            stopped=describe_stop(outcome, workspace, seconds),
            notes=[f"({', '.join(ignored)}: not used by {runner.name})"] if ignored else [],
            root=project.root,
        )
        missing = "" if report.stopped else runner.find_missing(output, tally, project)
        report = replace(report, missing=missing, seconds=taken)
        if not report.is_good:
            break
    return report


@contextmanager
def _open_report_folder(workspace: Workspace) -> Iterator[tuple[Path, Path]]:
    """Make a home for the commands if they have none, and a folder in it for reports; both go away at the end."""
    with tempfile.TemporaryDirectory(
        prefix="tests-", dir=workspace.confinement.home, ignore_cleanup_errors=True
    ) as name:
        made = Path(os.path.realpath(name))
        folder = made / "reports"
        folder.mkdir()
        script = files("callboard.coding.test_runners").joinpath(UNITTEST_SCRIPT)
        (folder / UNITTEST_SCRIPT).write_bytes(script.read_bytes())
        yield workspace.confinement.home or made, folder


def read_report_files(home: Path, folder: Path) -> dict[str, bytes]:
    """Read the report files in a folder that hostile commands wrote. Files out of their home, or too long, are left out."""
    reports: dict[str, bytes] = {}
    # The command may have removed the folder, or replaced it by a link.
    with suppress(OSError, CallerError), ConfinedDirectory(str(home)) as opened:
        for name in opened.names(str(folder), MAX_REPORTS):
            if name.endswith((".xml", ".json")):
                with suppress(OSError):
                    reports[name] = opened.read(f"{folder}/{name}", MAX_REPORT - sum(map(len, reports.values())))
    return reports


def _from_root(report: TestReport, path: str) -> TestReport:
    """Return the report with the places of its failures from the root of the workspace."""
    if not path:
        return report
    failures = [
        Failure(
            f"{path}/{each.name}" if ".py::" in each.name else each.name,
            f"{path}/{each.location}" if each.location else "",
            each.message,
        )
        for each in report.failures
    ]
    return replace(report, failures=tuple(failures))


def _merge(reports: Sequence[TestReport], projects: Sequence[ProjectFolder]) -> TestReport:
    """Return one report of several projects; a project that was not tested is a note."""
    tested = [each for each in reports if not each.not_tested] or [*reports]
    failed = next((each for each in tested if each.code != 0), tested[0])
    places = [f" in {project.path}" if project.path else "" for project in projects]
    counts = {name: sum(getattr(each, name) for each in tested) for name in ("passed", "failed", "skipped", "errors")}
    return TestReport(
        **counts,
        failures=tuple(failure for each in tested for failure in each.failures),
        complete=all(each.complete for each in tested),
        runner=f"{len(projects)} projects",
        command=tuple(part for each in reports for part in ("&&", *each.command))[1:],
        code=failed.code,
        stopped=next((each.stopped for each in tested if each.stopped), ""),
        output_end=next((each.output_end for each in tested if each.output_end), ""),
        missing=tested[0].missing if all(each.missing for each in tested) else "",
        seconds=sum(each.seconds for each in reports),
        notes=tuple(
            f"({each.runner}{place}{each.headline.removeprefix(each.runner)})"
            for each, place in zip(reports, places, strict=True)
        )
        + tuple(note for each in reports for note in each.notes),
    )


def _project_environment(runner: Runner, workspace: Workspace, path: str) -> Mapping[str, str]:
    """Variables by which the project's sources come before an installed copy of it."""
    variables: dict[str, str] = {}
    top = workspace.root / path
    if runner.kind in {"python", "make"}:
        variables["PYTHONPATH"] = os.pathsep.join([*([f"{top}/src"] if (top / "src").is_dir() else []), str(top)])
        # Only what the user installed: a folder of the tree is not put on the way to programs.
        borrowed = [
            workspace.confinement.bind_mounts[name] for name in VENVS if name in workspace.confinement.bind_mounts
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

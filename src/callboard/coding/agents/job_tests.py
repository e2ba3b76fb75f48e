"""The runs of all tests in a job's tree.

Law: a report counts only for the content of the tree that the tests ran on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Final

from callboard.coding.agents.prompts import is_test_file
from callboard.coding.git.tree import Tree
from callboard.coding.job import UNTESTED
from callboard.coding.test_runners import Failure, TestReport, run_tests
from callboard.coding.workspace.workspace import Workspace
from callboard.errors import CallerError
from callboard.sandbox import SandboxUnavailable

SECONDS: Final = 600.0
"""That the first run of all tests may take."""
FACTOR: Final = 5
"""How many times as long as the first run a later one may take: a changed loop may have no end."""
LEAST: Final = 20.0
"""Seconds that a later run may take, however fast the first was."""
LATE: Final = 5.0
"""Seconds that a run may take after the end of the job's time: the last change may be right."""


class RunnerMissing(CallerError):
    """The test runner of the project is not installed."""


@dataclass(eq=False)
class JobTests:
    """Runs the tests where they have not run on the tree as it is."""

    workspace: Workspace
    tree: Tree
    """The job's tree, whose content names a run."""
    folder: str
    """The folder of the repository that the tests run in."""
    _: KW_ONLY
    guards_tests: bool
    """Files of tests that fail at the beginning may not be changed."""
    required: bool
    """Raise RunnerMissing where what the tests need is not installed."""
    first: TestReport | None = None
    """The first run, which the others are measured by."""
    last: TestReport | None = None
    remaining: Callable[[], float] = lambda: inf
    """Returns the seconds that the job still has."""

    def __post_init__(self) -> None:
        self._untested = UNTESTED
        """The headline while no test ran."""
        self.is_testable = True
        self.guarded_files: list[str] = []
        self._reports: dict[str, TestReport] = {}
        self._digest = ""
        self._changed_files: tuple[str, ...] = ()
        if self.first is not None:
            self._begin_with(self.first)

    @property
    def is_failing(self) -> bool:
        """Whether the last run, of all tests or of some, was not good."""
        last = self.workspace.reports[-1] if self.workspace.reports else self.last
        return last is not None and not last.is_good

    @property
    def new_failures(self) -> tuple[Failure, ...]:
        """The tests that fail now and did not at the beginning; none where something failed then."""
        first, last = self.first, self.last
        return last.failures if first and last and not first.failures else ()

    @property
    def has_new_tests(self) -> bool:
        return bool(self.first and self.last and self.last.passed > self.first.passed)

    @property
    def tests_before(self) -> int:
        """Return the number of tests at the beginning, if the end must not have fewer; else 0."""
        return self.first.total if self.first and self.guards_tests else 0

    @property
    def notice(self) -> str:
        """Why nothing is tested; "" if the tests run."""
        return "" if self.is_testable else self._untested

    @property
    def headline(self) -> str:
        """The last run in one line, else that there was none, and why."""
        return self.last.headline if self.last else self._untested

    @property
    def transcript(self) -> str:
        """The command of the last run, and its report."""
        return f"$ {' '.join(self.last.command)}\n{self.last.summary}" if self.last else ""

    def mark_changed(self) -> None:
        """The tree may have changed since its content was named."""
        self._digest = ""

    async def digest(self) -> str:
        """Return the name of the tree's content."""
        return self._digest or await self._look()

    async def changed_files(self) -> tuple[str, ...]:
        """Return the files that differ from where the job began."""
        await self.digest()
        return self._changed_files

    async def must_run(self) -> bool:
        """Return whether the tests have yet to run on the current tree."""
        return self.is_testable and await self.digest() not in self._reports

    async def report(self) -> TestReport | None:
        """Return the report of all tests on the current tree; None if they cannot be run."""
        if not self.is_testable:
            return None
        digest = await self.digest()
        report = self._reports.get(digest) or self._run_of_model(digest)
        if report is None:
            try:
                report = await run_tests(self.workspace, folder=self.folder, seconds=self.time_limit, digest=self._look)
            except SandboxUnavailable:
                raise
            except CallerError as error:
                self._give_up(error.message)
                return None
            if report.missing and self.first is None:
                if self.required:
                    raise RunnerMissing(report.missing, hint="or make a .venv in the project that has it")
                self._give_up(report.missing)
                return None
        # A run may write files: the report names the content after it.
        self._reports[digest] = self._reports[report.digest or digest] = self.last = report
        if self.first is None:
            self._begin_with(report)
        return report

    @property
    def time_limit(self) -> float:
        """Seconds that the next run may take."""
        later = SECONDS if self.first is None else min(SECONDS, max(LEAST, FACTOR * self.first.seconds))
        return min(later, max(LATE, self.remaining()))

    def _begin_with(self, report: TestReport) -> None:
        self.first = report
        if self.guards_tests and not report.is_good:
            paths = {failure.location.rpartition(":")[0] for failure in report.failures}
            self.guarded_files = [path for path in sorted(paths) if is_test_file(path)]

    async def _look(self) -> str:
        self._digest, self._changed_files = await self.tree.inspect()
        return self._digest

    def _give_up(self, why: str) -> None:
        self.is_testable = False
        self._untested = f"{UNTESTED}: {why}"

    def _run_of_model(self, digest: str) -> TestReport | None:
        """Return a run of all tests on this content that the model asked for."""
        if self.first is None:
            return None
        command = self.first.command
        runs = self.workspace.reports
        return next((each for each in runs if each.digest == digest and each.command == command), None)

"""What a job works at: its tree, its tools, its tests.

Owns the life of the workspace and what is found out about it for prompts and for evidence. Knows nothing of models or
of the order of phases.
Law: a report of tests counts only for the tree that it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from callboard.coding.agents.apply_code_blocks import Dictation
from callboard.coding.agents.evidence import Facts
from callboard.coding.agents.phases import Evidence, Gathered, Phase, actions
from callboard.coding.agents.prompt_context import (
    chosen_files,
    example_of,
    is_test_file,
    new_files,
    shown_change,
    shown_diff,
    shown_files,
    shown_tree,
    written_lines,
)
from callboard.coding.git.tree import Tree
from callboard.coding.test_runners import TestReport, run_tests
from callboard.coding.tools import make_ensemble, single_action
from callboard.coding.workspace.directory_walk import describe_omitted
from callboard.coding.workspace.file_editor import open_text
from callboard.coding.workspace.sandbox_profile import make_confinement
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration.coding import CodingSettings
from callboard.core import Approve, InvocationCanister, ResultCanister
from callboard.errors import CallerError
from callboard.execution.result_store import KeptResults
from callboard.sandbox import SandboxUnavailable, find_sandbox
from callboard.tools import Ensemble, Policy
from callboard.tools.context import Permits, everything

MAX_FILE: Final = 200_000
"""Bytes of a file that is looked into for a prompt."""
MAX_REPORT: Final = 3000
MAX_SHOWN: Final = 20
INSTRUCTIONS: Final = "AGENTS.md"
SECONDS: Final = 600.0
"""That a run of all tests may take."""

_LOOKS: Final = frozenset(actions(("look",)))
_CHANGES: Final = frozenset((*actions(("edit",)), "bash", "git_checkout", "git_branch"))


class RunnerMissing(CallerError):
    """What the project's tests are written for is not installed."""


class Did(msgspec.Struct, frozen=True):
    """What kind of call it was: whether it looks at something, whether it may change the tree."""

    action: str
    looks: bool
    changes: bool

    def fails(self, result: ResultCanister) -> bool:
        """Whether the call shows that something is wrong with the code: a command that failed."""
        return self.action == "bash" and result.error is None and "exit code" in result.text[-200:]


class Desk:
    """A context manager: the sandbox is found and the workspace connected while it is entered.

    `guards_tests` says that the files of tests that fail at the beginning may not be changed; `needs_tests` that there
    is nothing to be done where their runner is not installed; `reviewed` is what a
    change under review is compared with, None where there is none. Files that the rules do not permit are not shown, and what
    they do not permit `commands` is hidden from tests.
    """

    def __init__(
        self,
        tree: Tree,
        folder: Path,
        settings: CodingSettings,
        *,
        without_sandbox: bool = False,
        allow_weaker_sandbox: bool = False,
        guards_tests: bool = False,
        needs_tests: bool = False,
        reviewed: str | None = None,
        permits: Permits = everything,
        commands: Permits = everything,
    ) -> None:
        self.repository_instructions = ""
        self._tree = tree
        self._folder = folder
        self._settings = settings
        self._without_sandbox = without_sandbox
        self._allow_weaker_sandbox = allow_weaker_sandbox
        self._guards_tests = guards_tests
        self._needs_tests = needs_tests
        self._reviewed = reviewed
        self._permits = permits
        self._commands = commands
        self._kept = KeptResults(folder / "results")
        self._reports: dict[str, TestReport] = {}
        self._last: TestReport | None = None
        self._first: TestReport | None = None
        self._guarded: list[str] = []
        self._chosen: list[str] = []
        self._untestable = False
        self._untested = ""
        self._digest = ""
        self._differing: tuple[str, ...] = ()
        self._files: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        tree = self._tree
        self._sandbox = await find_sandbox(
            without=self._without_sandbox, unattended=True, allow_weaker=self._allow_weaker_sandbox
        )
        self.workspace = Workspace(
            tree.root,
            sandbox=self._sandbox,
            confinement=make_confinement(self._settings, tree.root, self._folder, tree.borrowed),
        )
        self.workspace.tree = tree
        self.workspace.permits = self._commands
        await self.workspace.connect()
        self._files = await self._listed()
        with suppress(OSError):
            self.repository_instructions = self.workspace.files.read(INSTRUCTIONS, MAX_FILE).decode("utf-8", "replace")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.workspace.disconnect()

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know, as of now: what a sandbox cannot do may show when a command has run."""
        hides = self._commands is everything or self._sandbox.name == "bubblewrap"
        unheld = (
            "" if hides else "rules that deny paths do not hold for commands: only bubblewrap hides files from them"
        )
        return tuple([each for each in (self._sandbox.notice, unheld, self._untested) if each])

    # For the model

    def ensembles(self, phase: Phase, *, single: bool) -> list[Ensemble]:
        """The tools of a phase: single actions, or those of many actions; and the one that reads on in cut results."""
        made = [make_ensemble(self.workspace, actions(phase.tools), single=single)] if phase.tools else []
        return [*made, self._kept.ensemble()] if made else []

    def wanted(self, task: str) -> list[str]:
        """The source files that a task names and that are not there yet."""
        return new_files(task, self._files)

    def dictation(self, policy: Policy, approve: Approve, wanted: Sequence[str]) -> Dictation:
        """Where code goes that the model writes in words."""
        return Dictation(
            self.workspace,
            policy,
            approve,
            files=self._chosen or self._files[:MAX_SHOWN],
            wanted=wanted,
            guarded=self._guarded,
        )

    def did(self, invocation: InvocationCanister) -> Did:
        action = single_action(invocation.name, invocation.arguments or {})
        return Did(action, action in _LOOKS, action in _CHANGES)

    def cut(self, tool: str, text: str, limit: int) -> str:
        """A result, cut; see `KeptResults.truncate`."""
        return self._kept.truncate(tool, text, limit)

    async def gather(self, wanted: Iterable[Gathered], task: str) -> dict[str, str]:
        """What a phase's prompt is given, by title."""
        found: dict[str, str] = {}
        for each in wanted:
            match each:
                case "tests":
                    report = await self._tested()
                    if report is not None:
                        found["The tests now"] = report.summary[:MAX_REPORT]
                        task = f"{task}\n{report.summary}"
                case "files":
                    self._chosen = chosen_files(task, self._files, self._read)
                    tests = [name for name in self._chosen if is_test_file(name)]
                    tests = tests or example_of(self.wanted(task), self._read, self._files)
                    found["The tests"] = self._shown(tests)
                    found["The code"] = self._shown([name for name in self._chosen if name not in tests])
                case "tree":
                    found["The files of the repository"] = shown_tree(self._files)
                case "diff":
                    show = shown_diff if self._reviewed is None else shown_change
                    diff, refused = await self._diff()
                    found["The change"] = show(diff) + (f"\n({describe_omitted(refused)})" if refused else "")
        return found

    # For the evidence

    @property
    def failing(self) -> bool:
        """Whether the last tests that ran, all or some, were no good ones."""
        last = self.workspace.reports[-1] if self.workspace.reports else self._last
        return last is not None and not last.is_good

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """Those that fail now and did not at the beginning; nothing where something failed then."""
        first, last = self._first, self._last
        return tuple([each.name for each in last.failures]) if first and last and not first.failures else ()

    @property
    def has_new_tests(self) -> bool:
        return bool(self._first and self._last and self._last.passed > self._first.passed)

    @property
    def tests_summary(self) -> str:
        return self._last.headline if self._last else ""

    @property
    def tests_told(self) -> str:
        return f"$ {' '.join(self._last.command)}\n{self._last.summary}" if self._last else ""

    async def digest(self) -> str:
        """A name for the tree's content."""
        return self._digest or await self._look()

    async def _look(self) -> str:
        self._digest, self._differing = await self._tree.look()
        return self._digest

    def changed(self) -> None:
        """The tree may have changed since it was looked at."""
        self._digest = ""

    async def stale(self) -> bool:
        """Whether the tests have still to run on the tree as it is."""
        return not self._untestable and await self.digest() not in self._reports

    async def find_out(self, facts: Facts, evidence: Iterable[Evidence]) -> None:
        """Fills in what the evidence is judged by; runs the tests where they have not run on the tree as it is."""
        wanted = {*evidence}
        facts.files = self._files
        if wanted & {"changed", "tests"}:
            await self.digest()
            facts.changed = self._differing
        if "tests" in wanted:
            facts.report = await self._tested()
            facts.testable = not self._untestable
            facts.before = self._first.total if self._first and self._guards_tests else 0
            facts.has_new_tests = self.has_new_tests
            facts.kept = [path for path in self._guarded if path in facts.changed]
        if "findings" in wanted:
            facts.reviewed = written_lines((await self._diff())[0])

    async def _tested(self) -> TestReport | None:
        """What all tests say of the tree as it is; None where nothing says how it is tested."""
        if self._untestable:
            return None
        digest = await self.digest()
        known = self._reports.get(digest) or self._of_model(digest)
        if known is None:
            try:
                known = await run_tests(
                    self.workspace, folder=self._settings.project.workdir, seconds=SECONDS, digest=self._look
                )
            except CallerError as error:
                if isinstance(error, SandboxUnavailable):
                    raise
                self._cannot_test(error.message)
                return None
            if known.missing_runner and self._first is None:
                if self._needs_tests:
                    hint = "install it there, or make a .venv in the project that has it"
                    raise RunnerMissing(known.missing_runner, hint=hint)
                self._cannot_test(known.missing_runner)
                return None
        self._reports[digest] = self._reports[known.digest or digest] = self._last = known
        if self._first is None:
            self._first = known
            self._guard(known)
        return known

    def _cannot_test(self, why: str) -> None:
        self._untestable = True
        self._untested = f"the tests are not run: {why}"

    def _of_model(self, digest: str) -> TestReport | None:
        """A run of all tests that the model asked for, on this tree."""
        if self._first is None:
            return None
        command = self._first.command
        return next(
            (each for each in self.workspace.reports if each.digest == digest and each.command == command), None
        )

    def _guard(self, report: TestReport) -> None:
        """The files of tests that fail at the beginning are the measure: they stay as they are."""
        if self._guards_tests and not report.is_good:
            places = {failure.place.rpartition(":")[0] for failure in report.failures}
            self._guarded = [path for path in sorted(places) if is_test_file(path)]

    # What is looked at

    async def _listed(self) -> tuple[str, ...]:
        """The files of the tree, as git knows them."""
        outcome = await self._tree.repository.git("ls-files", "-z")
        return tuple([path for path in outcome.items if self._permits(path)])

    async def _diff(self) -> tuple[str, int]:
        """What is reviewed: the change since it left what it is compared with; else what the job changed.

        And of how many files it is not shown, by the rules.
        """
        if self._reviewed is None:
            return (await self._tree.changes()).diff, 0
        repository = self._tree.repository
        refused = [path for path in await repository.diff_names(self._reviewed, "HEAD") if not self._permits(path)]
        outcome = await repository.diff(self._reviewed, "HEAD", leave_out=refused)
        return outcome.output.decode("utf-8", "replace"), len(refused)

    def _read(self, path: str) -> str | None:
        try:
            return self.workspace.files.read(path, MAX_FILE).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _shown(self, names: Iterable[str]) -> str:
        """Files for a prompt; what is shown is seen, so that the model may edit it."""
        shown = [*names]
        for path in shown:
            with suppress(OSError):
                opened = open_text(self.workspace, path)
                self.workspace.seen.record(opened.key, 1, opened.lines)
        return shown_files(shown, self._read)

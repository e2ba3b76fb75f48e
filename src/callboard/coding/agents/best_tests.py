"""Keep the best of what a phase's replies wrote: tests that notice more mutants, and code with which fewer tests fail.

Law: the files have the best tests, or the best code, after each reply was judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from callboard.coding.agents.apply_code_blocks import CodeBlockApplier
from callboard.coding.agents.job_record import JobMemory
from callboard.coding.agents.job_workspace import JobWorkspace
from callboard.coding.agents.mutation_check import MutationResult
from callboard.coding.agents.prompts import is_test_file
from callboard.coding.job import Notice, Step
from callboard.coding.workspace.file_editor import MAX_BYTES


@dataclass(eq=False)
class BestTests:
    """Judges the tests of each reply by mutants of the code that they test."""

    workspace: JobWorkspace
    task: str
    memory: JobMemory
    remember: Callable[[], None]
    """Records the notes, which have changed."""
    emit: Callable[[Step], None]

    def __post_init__(self) -> None:
        self._wishes = 0
        self.wish = ""
        """End of the next prompt: mistakes that the tests do not notice yet; "" if they notice enough."""

    @property
    def best(self) -> MutationResult | None:
        """The result of the kept tests; None if there are none."""
        return self.memory.phase.kept_result

    async def restore(self, changed_files: Iterable[str]) -> None:
        """Put the files in order after another process ended: only what was kept remains."""
        files, phase = self.workspace.workspace.files, self.memory.phase
        await self.workspace.take_back([*changed_files, *phase.mutated_files])
        for path, data in phase.kept_files.items():
            files.write(path, data)

    async def judge(self, applier: CodeBlockApplier, *, is_good: bool) -> None:
        """Keep the tests of the last reply if they are the best; else put the best tests back, if there are any.

        `is_good` is True if nothing else is missing.
        """
        tests = sorted(applier.changed_files)
        if is_good and tests and all(map(is_test_file, tests)):
            result = await self._check(tests)
            if self.best is None or result.noticed > self.best.noticed:
                self._keep(applier, tests, result)
        self.wish = ""
        if self.best is not None:
            applier.take_back()
            self.workspace.tests.mark_changed()
            if not self.best.is_enough:
                self.wish = self.best.wish([*self.memory.phase.kept_files], applier.wrong_tests, self._wishes)
                self._wishes += 1

    async def keep_progress(self, applier: CodeBlockApplier) -> bool:
        """Keep the code of the last reply if only some of the tests fail that failed before; return whether it does.

        Else the code that was kept before is put back.
        """
        is_better = await self._is_progress(applier)
        if is_better:
            self._keep_files(applier, sorted(applier.changed_files))
        elif self.memory.phase.kept_files:
            applier.take_back()
            self.workspace.tests.mark_changed()
        return is_better

    async def _is_progress(self, applier: CodeBlockApplier) -> bool:
        tests, phase = self.workspace.tests, self.memory.phase
        report = await tests.report()
        if report is None or tests.first is None or not applier.changed_files or not report.complete:
            return False
        before = {*(phase.failing or [each.name for each in tests.first.failures])}
        failing = {each.name for each in report.failures}
        if not failing < before or report.failed != len(failing) or report.total < tests.first.total:
            return False
        phase.failing = tuple(sorted(failing))
        self.emit(Notice(f"kept: {len(failing)} of {len(before)} tests still fail"))
        return True

    async def _check(self, tests: list[str]) -> MutationResult:
        phase = self.memory.phase
        parts = await asyncio.to_thread(self.workspace.find_tested, self.task, tests)
        phase.mutated_files = tuple(sorted({each.path for each in parts}))
        self.remember()
        self.emit(Notice("making small mistakes in the code, to see whether the tests notice"))
        result = await self.workspace.check_mutants(parts, tests)
        self.workspace.tests.mark_changed()
        self.emit(Notice(result.headline))
        return result

    def _keep(self, applier: CodeBlockApplier, tests: list[str], result: MutationResult) -> None:
        self.memory.phase.kept_result = result
        self.memory.mutants = result.noticed, result.noticed + len(result.survivors)
        self._keep_files(applier, tests)

    def _keep_files(self, applier: CodeBlockApplier, paths: list[str]) -> None:
        files = self.workspace.workspace.files
        applier.keep()
        self.memory.phase.kept_files |= {path: files.read(path, MAX_BYTES) for path in paths}
        self.remember()

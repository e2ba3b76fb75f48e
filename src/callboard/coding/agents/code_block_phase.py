"""Run a phase in which a model without tools writes code, one reply at a time, and the tests judge each reply.

Laws: a reply that does not pass leaves no changes, unless fewer tests fail with it. A job that continues applies the
last reply again from the beginning, because nothing says how much of it was applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from callboard.coding.agents.apply_code_blocks import CodeBlockApplier
from callboard.coding.agents.best_tests import BestTests
from callboard.coding.agents.holes import MAX_ASKED, Attempts, Hole, drop_fills
from callboard.coding.agents.phases import Phase
from callboard.coding.agents.progress import Progress, last_answer
from callboard.coding.agents.prompts import is_test_file
from callboard.coding.agents.small_repairs import MAX_CHANGES, MAX_OWN_CHANGES, Repair
from callboard.coding.job import Notice
from callboard.core import Canister
from callboard.providers.local.fill import HOLE
from callboard.text.display import display_names

if TYPE_CHECKING:
    from callboard.coding.agents.phase_runner import MakeAgent, PhaseRunner

MAX_REMOVALS: Final = 12
"""Runs of the tests in which failed tests are removed from one reply."""
MAX_FILES: Final = 20
"""Files that a code block may be for, where the task is about none."""


class CodeBlockPhase:
    """Runs the attempts of one phase.

    Each attempt is a new conversation, because a small model repeats code that it sees. Every second prompt for whole
    functions says why the last one failed. The other prompts do not say it: small models often fix the other answer. A
    local model is also asked for single lines. A stronger model continues the conversation.

    Args:
        runner: Asks the model, checks the evidence, and counts.
        phase: The phase.
        past: How far the phase came in earlier processes.
    """

    def __init__(self, runner: PhaseRunner, phase: Phase, past: Progress) -> None:
        self._runner = runner
        self._phase = phase
        self._past = past
        self._workspace = runner.workspace
        self._memory = runner.memory.phase
        self._best = BestTests(runner.workspace, runner.task, runner.memory, runner.remember, runner.emit)
        self._attempts = Attempts(max(past.prompts - 1, 0))
        self._used_lines: Sequence[Hole] = ()
        """Lines of the code that the failing tests use; none if tests do not judge the answers."""
        self._refused: tuple[str, ...] = ()
        """The reasons why the last answer was refused, which the next prompt for whole functions may say."""

    async def run(self) -> None:
        """Run attempts until one passes, or no replies or time remain."""
        runner, attempts, memory, past = self._runner, self._attempts, self._memory, self._past
        await self._best.restore(past.code_calls.values())
        runner.calls -= len(past.code_calls) - past.codes_before
        make_prompt = await runner.prepare(self._phase)
        runner.facts.answer = last_answer(past.attempt)
        applier = self._make_applier()
        attempts.begin(memory.holes_begin, await self._find_holes(applier))
        conversation, has_reply = tuple(past.conversation), past.run_ended
        prompt = "" if past.prompts else make_prompt()
        while True:
            # The prompt of an interrupted attempt says whether its reply is a line.
            hole = attempts.hole if HOLE in (prompt or past.prompt) else None
            if not has_reply:
                if not runner.rounds_left(self._phase):
                    runner.missing = runner.missing if self._best.best is None else ()
                    return
                if prompt and (message := await runner.hear()):
                    make_prompt, hole = await self._begin_again(applier), None
                    prompt = f"{prompt}\n\n{message}" if memory.model else make_prompt()
                conversation = await self._ask(prompt, hole, conversation)
            has_reply = False
            await self._apply(applier, hole)
            if runner.pending:
                return
            attempts.number += 1
            memory.fills += hole is not None
            refused, is_better = await self._judge(applier, hole)
            is_first = attempts.number == memory.holes_begin + 1
            if is_first and self._used_lines and runner.missing and not is_better:
                await self._repair_own_code(applier)
            if runner.is_over() and not (self._best.wish and runner.clock() < runner.deadline):
                return
            if self._best.wish and not runner.failure:
                prompt = self._best.wish if memory.model else make_prompt(wish=self._best.wish)
                continue
            if is_better:
                make_prompt = await self._begin_again(applier)
            new = runner.change_model(self._phase, attempts.number - memory.fills, refused)
            if memory.model:
                attempts.begin(attempts.number, ())
                prompt = new or runner.refusal(refused)
            else:
                prompt = attempts.hole.prompt if attempts.hole else make_prompt(refused=self._refused)

    async def _begin_again(self, applier: CodeBlockApplier) -> partial[str]:
        """Begin again with whole functions, because the code or the task has changed; return what makes the prompts."""
        make_prompt, number = await self._runner.prepare(self._phase), self._attempts.number
        applier.files, applier.new_files = self._workspace.chosen_files or applier.files, self._runner.new_files
        self._best.task = self._runner.task
        self._memory.holes_begin, self._refused = number, ()
        self._attempts.begin(number, await self._find_holes(applier))
        return make_prompt

    def _make_applier(self) -> CodeBlockApplier:
        runner, workspace = self._runner, self._workspace
        return CodeBlockApplier(
            workspace.workspace,
            runner.policy,
            runner.approver,
            files=workspace.chosen_files or workspace.files[:MAX_FILES],
            new_files=runner.new_files,
            guarded_files=workspace.tests.guarded_files,
            emit=runner.emit,
            save=runner.save,
            count=self._past.codes_before,
        )

    async def _ask(self, prompt: str, hole: Hole | None, conversation: tuple[Canister, ...]) -> tuple[Canister, ...]:
        """Let the model reply to the prompt of an attempt; return the conversation of the phase after it."""
        runner, attempts, is_stronger = self._runner, self._attempts, bool(self._memory.model)
        history = drop_fills(conversation) if is_stronger else () if prompt else tuple(self._past.attempt)
        runner.remember()
        if hole is not None and not runner.is_filling:
            runner.emit(Notice("asking for single lines"))
        runner.is_filling = hole is not None
        if hole is None:
            number, rounds = 0 if is_stronger else attempts.answers, runner.rounds_left(self._phase)
            make_agent: MakeAgent = partial(runner.agent, self._phase, rounds, runner.context_window(), number)
        else:
            make_agent = partial(runner.fill_agent, attempts.controls)
        replied = await runner.converse(make_agent, f"{self._phase.name}-{attempts.number + 1}", prompt, history)
        if runner.is_filling and runner.failure:
            runner.emit(Notice(runner.failure))
            attempts.begin(attempts.number, ())
            runner.filler, runner.failure, runner.facts.answer = None, "", ""
        return replied if is_stronger else (*conversation[: len(conversation) - len(history)], *replied)

    async def _find_holes(self, applier: CodeBlockApplier) -> Sequence[Hole]:
        """Find the lines that the failing tests use; return those to ask the model for, if it can write single lines.

        Nobody is asked about a line.
        """
        holes = await self._workspace.find_holes(self._runner.task) if "tests" in self._phase.evidence else ()
        self._used_lines = [each for each in holes if applier.is_allowed(each.path)]
        can_fill = self._runner.filler is not None and not self._memory.model
        return self._used_lines[:MAX_ASKED] if can_fill else ()

    async def _judge(self, applier: CodeBlockApplier, hole: Hole | None) -> tuple[tuple[str, ...], bool]:
        """Keep what is the best so far. Return why the answer was refused, and whether fewer tests fail now."""
        runner = self._runner
        refused = (*applier.failures,) or runner.missing
        if runner.missing and hole is None:
            failures = "; ".join([*applier.failures, *runner.missing])
            runner.emit(Notice(f"attempt {self._attempts.number}: {failures}"))
        if hole is None:
            self._refused = refused if applier.failures or self._attempts.answers % 2 == 0 else ()
        await self._best.judge(applier, is_good=not runner.missing)
        is_better = bool(runner.missing) and await self._best.keep_progress(applier)
        if self._memory.kept_files:
            await runner.check_evidence(self._phase)
        return refused, is_better

    async def _apply(self, applier: CodeBlockApplier, hole: Hole | None) -> None:
        """Apply the code of the answer, or the line for a hole, and check the evidence.

        If the answer holds only tests, Callboard removes those that fail until the rest passes: the code did not change,
        so these tests must be wrong.
        """
        runner, tests = self._runner, self._workspace.tests
        await applier.apply(runner.facts.answer, hole)
        tests.mark_changed()
        if applier.changed_files and tests.is_testable and not await tests.must_run():
            self._memory.repeated += 1
        if await self._is_pending_or_applied(applier):
            return
        if (
            hole is None
            and self._used_lines
            and (repairs := await self._find_repair(applier.changed_lines(), MAX_CHANGES))
        ):
            await applier.add_lines(repairs)
            if await self._is_pending_or_applied(applier):
                return
        missing, dropped = runner.missing, dict[str, None]()
        for _ in range(MAX_REMOVALS):
            failures = tests.new_failures
            if not (runner.missing and failures and applier.changed_files):
                break
            if not all(map(is_test_file, applier.changed_files)):
                break
            dropped |= dict.fromkeys(await applier.apply_without(failures))
            if await self._is_pending_or_applied(applier):
                break
        if dropped and runner.missing:
            runner.missing = missing
        elif dropped and not runner.pending:
            runner.memory.dropped_tests = tuple(dropped)
            runner.emit(Notice(f"left out, since they fail on the code as it is: {display_names(dropped)}"))

    async def _repair_own_code(self, applier: CodeBlockApplier) -> None:
        """Look for a small change of the code that the failing tests use, once the model's first answer has failed."""
        lines: dict[str, list[int]] = {}
        for each in self._used_lines:
            lines.setdefault(each.path, []).append(each.line)
        applier.take_back()
        self._workspace.tests.mark_changed()
        if repairs := await self._find_repair(lines, MAX_OWN_CHANGES):
            await applier.add_lines(repairs)
            await self._is_pending_or_applied(applier)

    async def _find_repair(self, lines: Mapping[str, Sequence[int]], limit: int) -> tuple[Repair, ...]:
        """Find small changes of these lines with which the tests pass, if the tests can judge it."""
        runner, tests = self._runner, self._workspace.tests
        seconds = runner.seconds_left()
        if not (lines and tests.is_failing and seconds > 0):
            return ()
        self._memory.mutated_files = (*lines,)
        await runner.save()
        runner.emit(Notice("trying small changes of the code"))
        repairs = await self._workspace.find_repair(lines, limit, seconds)
        tests.mark_changed()
        return repairs

    async def _is_pending_or_applied(self, applier: CodeBlockApplier) -> bool:
        """Check the evidence, unless somebody has to answer a call first; return whether nothing remains to do."""
        runner = self._runner
        runner.pending = tuple(applier.deferred)
        if not runner.pending:
            runner.calls, applier.calls = runner.calls + applier.calls, 0
            runner.has_changed = True
            self._workspace.tests.mark_changed()
            await runner.check_evidence(self._phase)
            if runner.missing and not runner.is_filling:  # no prompt shows why a line was refused
                runner.missing += await self._workspace.new_findings(applier.changed_files)
        return bool(runner.pending) or not runner.missing

"""A job, phase by phase.

Owns the order of things in a phase: the model works, claims to be done, and is held to the evidence. Decides nothing
of what counts as evidence and knows nothing of where the job's tree came from.
Law: a phase ends with what its evidence lacks, whatever the model says; an empty list means done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Final

from msgspec.structs import replace
from pydantic import Field

from callboard.agent import Agent
from callboard.agent.run import Run
from callboard.coding.agents.apply_code_blocks import Dictation
from callboard.coding.agents.evidence import Facts, Finding, complaint, missing
from callboard.coding.agents.job_workspace import Desk
from callboard.coding.agents.phases import Phase
from callboard.coding.agents.prompt_context import is_test_file
from callboard.coding.agents.prompts import instructions, prompt
from callboard.coding.agents.pull_request import handed_on, told_findings
from callboard.coding.jobs.log import PhaseEnded, PhaseStarted, Prompted, Step, Told
from callboard.configuration.coding import CodingSettings
from callboard.core import (
    Approve,
    AssistantCanister,
    Canister,
    Controls,
    Event,
    InvocationCanister,
    Model,
    ResultCanister,
    ResultReady,
    RoundStarted,
    TextualContent,
    Usage,
    contents,
)
from callboard.errors import NoOutput
from callboard.loop import ContextWindow, HallucinatedResultFilter, Limits
from callboard.modes import plan_of
from callboard.tools import Policy

REFUSALS: Final = 3
"""Claims of being done that are refused in a row, with nothing changed in between, before a phase is given up."""
TEMPERATURE: Final = 0.7
"""Of a fresh attempt after one that failed."""
FINDINGS: Final = 10
"""That a review has at most: small models go on for ever."""
SHOWN: Final = 2000
"""Characters of what the tests say after an edit."""


class Conduct:
    """Runs the phases of one job: iterate over `steps` once. Afterwards `missing` says what the last phase lacked;
    `is_finished` that every phase ended with nothing missing, which none did that was cancelled or failed.

    `said` has what phases handed on, by name; `findings` a review's; `left_out` are tests that were not put. `rounds`, `calls` and `usage` are sums.
    """

    def __init__(
        self,
        model: Model,
        desk: Desk,
        phases: tuple[Phase, ...],
        *,
        kind: str,
        task: str,
        settings: CodingSettings,
        policy: Policy,
        approve: Approve,
        single: bool,
        rounds: int | None,
        deadline: datetime,
        clock: Callable[[], datetime],
    ) -> None:
        self.missing: tuple[str, ...] = ()
        self.why = ""
        self.is_finished = False
        self.said: dict[str, str] = {}
        self.findings: list[Finding] | None = None
        self.left_out: tuple[str, ...] = ()
        self.rounds = 0
        self.calls = 0
        self.usage = Usage()
        self.phase = ""
        self._model = model
        self._desk = desk
        self._phases = phases
        self._kind = kind
        self._task = task
        self._settings = settings
        self._policy = policy
        self._approve = approve
        self._single = single
        self._most = rounds
        self._deadline = deadline
        self._clock = clock
        self._facts = Facts()
        self._holds = False

    async def steps(self) -> AsyncGenerator[Step]:
        for phase in self._phases:
            self.phase, self.why = phase.name, ""
            yield PhaseStarted(phase.name, phase.rounds)
            async with aclosing(self._phase(phase)) as steps:
                async for step in steps:
                    yield step
            yield PhaseEnded(phase.name, self.missing)
            if self.missing:
                return
            if phase.hands_on:
                self.said[phase.name] = handed_on(self._facts.said)
        self.is_finished = True

    async def _phase(self, phase: Phase) -> AsyncGenerator[Step]:
        self._facts, self._holds = Facts(), False
        if "tests" in phase.gathers:
            yield Told("running the tests")
        # What is to be mended is there.
        wanted = self._desk.wanted(self._task) if self._kind == "build" else []
        self._facts.wants_tests = any(map(is_test_file, wanted))
        asking = partial(
            prompt,
            self._kind,
            self._task,
            phase,
            known=self.said,
            wanted=wanted,
            gathered=await self._desk.gather(phase.gathers, self._task),
        )
        asked = asking()
        self._facts.failed = self._desk.failing
        history: tuple[Canister, ...] = ()
        begun, left, refused = self.rounds, phase.rounds, 0
        digest = await self._desk.digest()
        view = self._view()
        dictation = self._desk.dictation(self._policy, self._approve, wanted) if phase.spoken else None
        while True:
            if self._most is not None:
                left = min(left, self._most - self.rounds)
            if left <= 0:
                self.missing = (*self.missing, "no rounds are left")
                return
            yield Prompted(asked)
            run = self._agent(phase, left, view, refused=refused).stream(asked, history=history)
            async with aclosing(self._followed(run, phase)) as events:
                async for step in events:
                    yield step
            self._take(run)
            left = phase.rounds - (self.rounds - begun)
            judged = self._judged(phase) if dictation is None else self._dictated(phase, dictation)
            async with aclosing(judged) as further:
                async for each in further:
                    yield each
            if not self.missing or self._out_of_time():
                return
            refused += 1
            if dictation is not None:
                # Shown what it wrote, a small model writes it again: each attempt is a fresh one, and is told only why
                # the last one was not taken. Without that it gives the same answer to the same prompt.
                yield Told(f"attempt {refused}: {'; '.join([*dictation.failures, *self.missing])}")
                asked = asking(refused=dictation.failures or self.missing)
                continue
            now = await self._desk.digest()
            refused, digest = (refused if now == digest else 1), now
            if refused >= REFUSALS:
                return
            history = (*history, *(run.result.canisters if run.ended else ()))
            asked = complaint(self.missing)

    async def _dictated(self, phase: Phase, dictation: Dictation) -> AsyncGenerator[Step]:
        """Puts the code that was said, and judges it. Where it is nothing but tests, those that fail are left out: the
        code is as it was, so that they are wrong of it.
        """
        async with aclosing(self._put(phase, dictation.put(self._facts.said))) as steps:
            async for step in steps:
                yield step
        failed = self._desk.failed_tests
        if not (self.missing and failed and self._desk.has_new_tests and all(map(is_test_file, dictation.wrote))):
            return
        async with aclosing(self._put(phase, dictation.put_without(failed))) as steps:
            async for step in steps:
                yield step
        if not self.missing:
            self.left_out = failed
            yield Told(f"left out, since they fail on the code as it is: {', '.join(failed)}")

    async def _put(self, phase: Phase, events: AsyncGenerator[Event]) -> AsyncGenerator[Step]:
        async with aclosing(events):
            async for event in events:
                self.calls += isinstance(event, ResultReady)
                yield event
        self._desk.changed()
        async with aclosing(self._judged(phase)) as steps:
            async for step in steps:
                yield step

    async def _followed(self, run: Run[str | list[Finding]], phase: Phase) -> AsyncGenerator[Step]:
        """The events of a run, until it ends, or until the phase has settled."""
        async with run:
            async for event in run:
                if isinstance(event, RoundStarted):
                    if phase.settles and self._holds:
                        return
                    self.rounds += 1
                yield event
        if run.failure is not None:
            raise run.failure

    def _take(self, run: Run[str | list[Finding]]) -> None:
        """Adds up what a run took, and keeps what it said."""
        result = run.result
        self.usage += result.usage
        self.calls += sum(isinstance(each, InvocationCanister) for each in result.canisters)
        self.why = result.why if result.state == "incomplete" else ""
        spoken = [each for each in result.canisters if isinstance(each, AssistantCanister) and each.text]
        if spoken:
            self._facts.said = spoken[-1].text
        with suppress(NoOutput):
            if not isinstance(result.output, str):
                self.findings = result.output
                self._facts.findings = result.output
                self._facts.said = told_findings(result.output)

    async def _judged(self, phase: Phase) -> AsyncGenerator[Step]:
        """Finds out what the evidence needs, and judges it."""
        if "tests" in phase.evidence and await self._desk.stale():
            yield Told("running the tests")
        await self._desk.find_out(self._facts, phase.evidence)
        self.missing = tuple(missing(phase.evidence, self._facts))

    def _view(self) -> ContextWindow:
        """What a model with a context of known length is shown; the checklist is what its evidence lacks."""
        context = self._settings.context
        return ContextWindow(
            limit=plan_of(self._model).context_tokens,
            threshold=context.compact_at,
            keep=context.keep_rounds,
            every=context.compact_every_n_rounds or 0,
            pinned=lambda: complaint(self.missing) if self.missing else "",
        )

    def _agent(self, phase: Phase, rounds: int, view: ContextWindow, *, refused: int) -> Agent[str | list[Finding]]:
        left = max((self._deadline - self._clock()).total_seconds(), 1.0)
        return Agent(
            self._model,
            ensembles=self._desk.ensembles(phase, single=self._single),
            instructions=instructions(
                self._settings.project, self._desk.repository_instructions, tools=bool(phase.tools)
            ),
            output=Annotated[list[Finding], Field(max_length=FINDINGS)] if phase.output == "findings" else str,
            controls=Controls(temperature=TEMPERATURE, seed=refused) if phase.spoken and refused else None,
            limits=Limits(rounds=rounds, seconds=left, errors=None),
            policy=self._policy,
            approve=self._approve,
            after_call=lambda invocation, result: self._after(phase, invocation, result),
            clock=self._clock,
            answer_after="model",
            on_repeated_call="warn",
            context_window=view,
            max_parallel_calls=1,
            event_filter=HallucinatedResultFilter,
        )

    async def _after(self, phase: Phase, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
        """What a result is for the model: cut, and after an edit with what the tests say, where the phase settles."""
        did = self._desk.did(invocation)
        if not did.looks:
            # Also a run of tests may write files.
            self._desk.changed()
        if result.error is None:
            self._facts.looked += did.looks
            if did.changes and phase.settles and "tests" in phase.evidence:
                await self._desk.find_out(self._facts, phase.evidence)
                lacks = missing(phase.evidence, self._facts)
                self._holds = not lacks
                told = "All tests pass now." if not lacks else "\n".join(lacks)[:SHOWN]
                result = replace(result, content=contents(f"{result.text}\n\n{told}"))
        self._facts.failed |= self._desk.failing or did.fails(result)
        return self._limited(invocation, result)

    def _limited(self, invocation: InvocationCanister, result: ResultCanister) -> ResultCanister:
        limit = self._settings.context.result_limit(invocation.name)
        text = result.text
        if len(text) <= limit or not all(isinstance(each, TextualContent) for each in result.content):
            return result
        return replace(result, content=contents(self._desk.cut(invocation.name, text, limit)))

    def _out_of_time(self) -> bool:
        return self._clock() >= self._deadline


def said_last(said: Mapping[str, str]) -> str:
    """What the last phase that handed something on said."""
    return next(reversed([*said.values()]), "")

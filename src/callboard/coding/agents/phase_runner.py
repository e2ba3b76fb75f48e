"""Run the phases of a job.

In each phase the model works until it says that it is done. Then its evidence is checked. If something is missing, the
model gets the list and continues.

Laws: a phase is done if its evidence lacks nothing, whatever the model says. A job that continues in another process
repeats no finished phase, no complete reply and no call that may have been made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from callboard.agent import Agent
from callboard.agent.output_type import Output
from callboard.agent.resume import find_waiting_calls
from callboard.agent.run import FindSchema, Run, RunResult
from callboard.coding.agents.code_block_phase import CodeBlockPhase
from callboard.coding.agents.deliver import format_findings, strip_code
from callboard.coding.agents.explorer import make_explorer
from callboard.coding.agents.job_models import JobModels
from callboard.coding.agents.job_record import JobLeft, JobMemory, JobRecord, PhaseMemory, open_phase_span
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_workspace import Approver, JobWorkspace
from callboard.coding.agents.phases import (
    Facts,
    Phase,
    actions_of_groups,
    find_unread_commands,
    missing_evidence,
    refusal,
)
from callboard.coding.agents.progress import Progress, last_answer
from callboard.coding.agents.prompts import instructions, is_test_file, phase_prompt, take_over_prompt
from callboard.coding.job import (
    Finding,
    ModelChanged,
    ModelUse,
    Notice,
    PhaseEnded,
    PhaseStarted,
    PromptSent,
    Step,
    TreeSnapshot,
)
from callboard.coding.tools import make_ensemble
from callboard.coding.workspace.repository_instructions import NestedInstructions
from callboard.configuration.skills import describe_skills
from callboard.core import (
    Canister,
    Controls,
    InvocationCanister,
    Model,
    ResultCanister,
    RoundStarted,
    RunEnded,
    RunProgress,
    pipe,
)
from callboard.errors import NoOutput, ProviderError
from callboard.loop import ContextWindow, Limits, RepetitionFilter
from callboard.loop.repeat_guard import FailedCalls
from callboard.modes import HallucinatedResultFilter, get_plan
from callboard.profiles import describe_spent
from callboard.schema import ArgumentsInvalid
from callboard.tools import Ensemble, Policy

MAX_REFUSALS: Final = 3
"""Claims of being done that are refused in a row, with nothing changed in between, before a phase is given up."""
MAX_ATTEMPTS: Final = MAX_REFUSALS
"""Attempts of one model in a phase before a stronger model takes over: as many as end a phase without one."""
TEMPERATURES: Final = (None, 0.4, 0.8, 1.0)
"""Temperatures of the attempts, the last one of all that follow; None is the model's default."""
MAX_REPEATED: Final = 4
"""Replies that repeat tested code and do not count."""
_TOLERANCE: Final = timedelta(seconds=1)
"""Difference between the clocks of a job and of its runs."""
MAX_FINDINGS: Final = 10
"""Maximum findings of a review; small models never stop."""
FINDINGS: Final[Any] = Annotated[list[Finding], Field(max_length=MAX_FINDINGS)]
"""The output of a review."""


MakeAgent: TypeAlias = Callable[[RunProgress], Agent[Any]]
"""Makes the agent of a run from what the run took in earlier processes."""


@dataclass(eq=False)
class PhaseRunner:
    """Runs the phases of one job, once."""

    request: JobRequest
    task: str
    models: JobModels
    workspace: JobWorkspace
    _: KW_ONLY
    record: JobRecord
    memory: JobMemory
    remember: Callable[[], None]
    """Records the notes, which have changed."""
    past: Progress
    """How far the job came in earlier processes."""
    policy: Policy
    approver: Approver
    """Asked where the policy says so, and before each round whether the person says something."""
    deadline: datetime
    """When the job has to end."""
    clock: Callable[[], datetime]
    emit: Callable[[Step], None]
    """Gets each step as it happens."""

    def __post_init__(self) -> None:
        self.task = "\n\n".join([self.task, *self.memory.messages])
        self.workspace.tests.remaining = self.seconds_left
        self.phase = ""
        """The name of the phase that runs, or ran last."""
        self.missing: tuple[str, ...] = ()
        """Evidence that the last phase lacks."""
        self.why = ""
        """Why its last run ended incomplete."""
        self.is_finished = False
        """Every phase ended with nothing missing; not so where the job was cancelled or failed."""
        self.pending: tuple[InvocationCanister, ...] = ()
        self.find_schema: FindSchema = lambda _: None
        """Calls that need an answer before the job continues."""
        self.summaries: dict[str, str] = {}
        """The answers that phases pass on, by their names."""
        self.rounds = self.past.rounds
        self.calls = self.past.calls
        self._spent = self.past.cost
        self._model: Model = self.models.own
        """The model of the next reply."""
        self.filler: Model | None = None
        """The model that writes single lines in this phase."""
        self.is_filling = False
        """Whether the next reply is a single line."""
        self._stuck = ""
        """Why the last run was stopped before its end."""
        self._hears = True
        """Whether a message of the person ends a run."""
        self._message = ""
        """The message of the person that ended the last run."""
        self._nested = self.workspace.nested_instructions()
        self.failure = ""
        """Why the stronger model could not be asked."""
        self._settings = self.request.settings.coding
        self.facts = Facts()
        """Facts that the evidence of the phase is checked by."""
        self._rounds_before = 0
        self.new_files: list[str] = []
        """Files that the task names and that do not exist yet."""
        self._snapshot = self.past.snapshot
        self.has_changed = True
        """Whether the files may be others than those that were kept last."""

    @property
    def findings(self) -> tuple[Finding, ...] | None:
        """Findings of a review."""
        return self.memory.findings

    @property
    def dropped_tests(self) -> tuple[str, ...]:
        """Tests that the model wrote and that fail on the code as it is."""
        return self.memory.dropped_tests

    async def run(self, phases: tuple[Phase, ...]) -> None:
        """Runs the phases in their order, until one ends with something missing; those that ended before count too."""
        for phase in phases:
            answer = self.past.answers.get(phase.name)
            if answer is None:
                with open_phase_span(self.request.kind, phase.name):
                    await self._run_phase(phase)
                if self.pending:
                    return
                answer = self.facts.answer
            else:
                self.phase, self.why = phase.name, self.memory.phase.why
                self.missing = self.past.missing if phase.name == self.past.phase else ()
            if self.missing:
                return
            if phase.passes_summary:
                self.summaries[phase.name] = strip_code(answer)
        self.is_finished = True

    async def _run_phase(self, phase: Phase) -> None:
        past = self.past if self.past.phase == phase.name else Progress()
        self._nested = self.workspace.nested_instructions()
        self.phase, self.why, self.facts = phase.name, "", Facts(has_tools=bool(phase.tools))
        self.is_filling, self._hears = False, not phase.code_blocks
        self._rounds_before = past.rounds_before if past.phase else self.rounds
        if self.memory.phase.name != phase.name:
            self.memory.phase = PhaseMemory(name=phase.name)
        name = self.memory.phase.model
        self._model = self.models.by_name[name] if name else self.models.of_phase(phase.name)
        self.filler = getattr(self._model, "filler", None)
        if not past.phase:
            other = "" if self._model is self.models.own else self._model.name
            self.emit(PhaseStarted(phase.name, phase.rounds, other))
        await self.workspace.begin_checks(phase)
        await (CodeBlockPhase(self, phase, past).run() if phase.code_blocks else self._run_with_tools(phase, past))
        self.remember()
        await self._keep_state()
        if not self.pending:
            self.emit(PhaseEnded(phase.name, self.missing))
        await self.record.save()

    async def _run_with_tools(self, phase: Phase, past: Progress) -> None:
        """Run one conversation in which the model calls tools and gets the list of missing evidence."""
        prompt, history = "", self._recall(phase, past) if past.prompts else ()
        if not history:
            prompt = (await self.prepare(phase))()
        memory, window = self.memory.phase, self.context_window()
        memory.digest = memory.digest or await self.workspace.tests.digest()
        checks, has_reply = max(past.prompts - 1, 0), past.run_ended
        while True:
            if not has_reply:
                if not (rounds := self.rounds_left(phase)):
                    return
                self.remember()
                agent = partial(self.agent, phase, rounds, window, 0)
                history = await self.converse(agent, f"{phase.name}-{checks + 1}", prompt, history)
                if self.pending:
                    return
            has_reply, checks = False, checks + 1
            if self._message:  # the model claimed nothing
                prompt, self._message = self._message, ""
                memory.checks, memory.checks_before, memory.refusals = checks, memory.checks_before + 1, 0
                continue
            await self.check_evidence(phase)
            self.missing += find_unread_commands(self.facts.answer) if self.missing else ()
            if self.is_over() and not (self._stuck and self.clock() < self.deadline):
                return
            is_refused = await self._count_refusals(checks) >= MAX_REFUSALS
            prompt = self.change_model(phase, checks) or self.refusal()
            if is_refused and memory.refusals:
                return
            window = self.context_window()

    async def hear(self) -> str:
        """Return what the person says now, "" for nothing. The task of later prompts includes it."""
        if message := await self.approver.message():
            self.memory.messages += (message,)
            self.task += f"\n\n{message}"
        return message

    async def _count_refusals(self, checks: int) -> int:
        """Return how many claims in a row were refused without a change in between; `checks` counts all claims."""
        memory = self.memory.phase
        if memory.checks < checks:
            before, memory.digest = memory.digest, await self.workspace.tests.digest()
            memory.refusals = memory.refusals + 1 if memory.digest == before else 1
            memory.checks = checks
        return memory.refusals

    def _recall(self, phase: Phase, past: Progress) -> tuple[Canister, ...]:
        """Return the conversation of a phase that continues."""
        facts = self.facts
        facts.answer = past.answer
        facts.files_read = past.count_looks(self.workspace.only_looks)
        facts.saw_failure = self.memory.phase.saw_failure
        self._find_new_files()
        if past.run_ended and phase.output == "findings":
            with suppress(ArgumentsInvalid):
                self._take_findings(Output(FINDINGS).read(past.answer))
        return tuple(past.conversation)

    async def prepare(self, phase: Phase) -> partial[str]:
        """Collect the parts of the phase's prompt."""
        if "tests" in phase.prompt_context:
            self.emit(Notice("running the tests"))
        self._find_new_files()
        context = await self.workspace.prompt_context(phase.prompt_context, self.task)
        self.facts.saw_failure = self.memory.phase.saw_failure = self.workspace.tests.is_failing
        return partial(
            phase_prompt,
            self.request.kind,
            self.task,
            phase,
            context=context,
            summaries=self.summaries,
            new_files=self.new_files,
        )

    def _find_new_files(self) -> None:
        # In other kinds of jobs a file that the task names, and that is not there, is not to be written.
        self.new_files = self.workspace.new_files(self.task) if self.request.kind == "build" else []
        self.facts.wants_tests = any(map(is_test_file, self.new_files))

    def rounds_left(self, phase: Phase) -> int:
        """Return how many more replies the phase may take; 0 is reported as missing evidence."""
        rounds = self._rounds_of_phase(phase)
        if self.request.max_rounds is not None:
            rounds = min(rounds, self.request.max_rounds - self.rounds)
        if rounds <= 0:
            self.missing = (*self.missing, "no rounds are left")
        elif (budget := self.request.max_cost) is not None and self._spent >= budget:
            self.why = describe_spent(self._spent, budget)
            self.missing = (*self.missing, self.why)
            return 0
        return max(rounds, 0)

    def _rounds_of_phase(self, phase: Phase) -> int:
        memory = self.memory.phase
        free = min(memory.repeated, MAX_REPEATED) + (0 if memory.model else memory.fills)
        return phase.rounds + free - (self.rounds - max(self._rounds_before, memory.rounds_before))

    @property
    def _may_escalate(self) -> bool:
        memory, request = self.memory.phase, self.request
        is_spent = self.rounds >= (request.max_rounds or inf) or self._spent >= (request.max_cost or inf)
        return bool(self.models.escalate) and not (is_spent or memory.model or memory.cannot_escalate)

    def change_model(self, phase: Phase, checks: int, refused: Sequence[str] = ()) -> str:
        """Let the stronger model take over if this one is stuck, and return the prompt for it; "" if nothing changes.

        A stronger model that could not be asked gives the phase back. It has the rounds of a whole phase.
        """
        memory, name = self.memory.phase, self.models.escalate
        tried = checks - memory.checks_before
        failure, self.failure = self.failure, ""
        why, self._stuck = self._stuck, ""
        if failure:
            self._model, why = self.models.of_phase(phase.name), f"{self._model.name} cannot be asked: {failure}"
            memory.model, memory.rounds_before, memory.cannot_escalate = "", 0, True
        elif self._may_escalate and (why or tried >= MAX_ATTEMPTS or self._rounds_of_phase(phase) <= 0):
            has_rounds = self._rounds_of_phase(phase) > 0
            missing = f"the evidence does not hold after {tried} attempts" if has_rounds else "no rounds are left"
            why = why or missing
            self._model, memory.model = self.models.by_name[name], name
            memory.rounds_before = self.rounds
        else:
            return ""
        memory.checks_before, memory.refusals = checks, 0
        self.emit(ModelChanged(self._model.name, why))
        self.remember()
        prompt = self.refusal(refused) if refused or self.missing else ""
        return take_over_prompt(why, prompt, gives_back=bool(failure))

    @property
    def _may_fail(self) -> bool:
        """Whether the job continues with its own model if this one cannot be asked."""
        return bool(self.memory.phase.model) or self.is_filling

    def seconds_left(self) -> float:
        """Return the seconds until the job has to end."""
        return (self.deadline - self.clock()).total_seconds()

    def is_over(self) -> bool:
        return not self.missing or self.clock() >= self.deadline

    async def converse(
        self, make_agent: MakeAgent, name: str, prompt: str, history: tuple[Canister, ...]
    ) -> tuple[Canister, ...]:
        """Run the agent, or the rest of the interrupted run of this name; return the conversation after it.

        Raises CallboardError if the model cannot be asked, JobLeft if another process continues.
        """
        start = None if prompt else self._find_start(len(history))
        journal = self.record.open_journal(name, start)
        earlier = journal.progress
        approvals, results = self.record.find_answers(find_waiting_calls(history)) if earlier else ({}, {})
        run = make_agent(earlier or RunProgress()).stream(
            prompt, history=history, journal=journal, approvals=approvals, results=results
        )
        await self._follow(run, prompt)
        if earlier is None:
            return (*history, *run.result.canisters)
        # The run's result holds what it took before too.
        self.calls -= self.past.calls_of_run
        return (*history[: earlier.history_length], *run.result.canisters)

    def _find_start(self, history_length: int) -> RunProgress | None:
        """Return the progress of another job's run after so many canisters; None if it has no reply."""
        past = self.past
        if not past.rounds_of_run or past.run_ended:
            return None
        return RunProgress(
            history_length=history_length - len(past.attempt),
            rounds=past.rounds_of_run,
            calls=past.calls_of_run,
            is_priced=get_plan(self._model).prices is not None,
        )

    async def _keep_state(self) -> None:
        """Record the files and the notes after a round. A fork can begin there."""
        tree = self._snapshot.tree if self._snapshot and not self.has_changed else await self.workspace.keep_files()
        self.has_changed = False
        self._snapshot = TreeSnapshot(tree, self.memory.dump_for_fork())
        self.record.add(self._snapshot)
        await self.record.save()

    async def save(self) -> None:
        self.remember()
        await self.record.save()

    async def _follow(self, run: Run[str | list[Finding]], prompt: str) -> None:
        """Emits the prompt, if there is a new one, and the events of a run, and adds up what it took."""
        if prompt:
            self.emit(PromptSent(prompt))
        failed_calls = FailedCalls(() if prompt else self.past.attempt)
        async with run:
            async for event in run:
                failed_calls.feed(event)
                if isinstance(event, RoundStarted):
                    if failed_calls.why and self._may_escalate:
                        self._stuck = failed_calls.why
                        break
                    self._message = await self.hear() if self._hears else ""
                    if self._message:
                        break
                    await self._keep_state()
                    if self.record.should_leave():
                        raise JobLeft
                    self.rounds += 1
                self.emit(event)
                if run.failure is not None and not self._may_fail and self.record.should_wait(run.failure):
                    raise JobLeft
        result = run.result
        if self._stuck or self._message:
            self.emit(RunEnded(result.state, result.text, result.usage, result.cost))
        self._count(result)
        if run.failure is not None and not (self._may_fail and isinstance(run.failure, ProviderError)):
            raise run.failure
        self.failure = run.failure.message if run.failure is not None else ""
        self.pending, self.find_schema = result.pending, run.find_schema
        why = result.why if result.state == "incomplete" else ""
        is_late = self.deadline - self.clock() < _TOLERANCE
        self.why = self.memory.phase.why = "the time of the job is over" if why and is_late else why
        self.facts.answer = last_answer(result.canisters) or self.facts.answer
        with suppress(NoOutput):
            if not isinstance(result.output, str):
                self._take_findings(result.output)

    def _count(self, result: RunResult[Any]) -> None:
        """Add what a run took."""
        self._spent += result.cost or 0.0
        self.calls += sum(isinstance(each, InvocationCanister) for each in result.canisters)
        if result.state == "pending":  # the rest of the run includes this part
            return
        name, uses = self._model.name, {each.model: each for each in self.memory.models}
        before = uses.get(name, ModelUse(name, 0, 0.0))
        cost = None if before.cost is None or result.cost is None else before.cost + result.cost
        # A run that was stopped did not send its last request.
        uses[name] = ModelUse(name, before.rounds + result.rounds - bool(self._stuck or self._message), cost)
        self.memory.models = tuple(uses.values())

    def _take_findings(self, findings: list[Finding]) -> None:
        self.facts.findings = self.memory.findings = tuple(findings)
        self.facts.answer = format_findings(findings)

    async def check_evidence(self, phase: Phase) -> None:
        if "tests" in phase.evidence and await self.workspace.tests.must_run():
            self.emit(Notice("running the tests"))
        await self.workspace.collect_facts(self.facts, phase.evidence)
        self.missing = missing_evidence(phase.evidence, self.facts)

    def refusal(self, missing: Sequence[str] = ()) -> str:
        return refusal(missing or self.missing, has_tools=self.facts.has_tools)

    def context_window(self) -> ContextWindow:
        """Return the model's view of a long conversation; the list of missing evidence stays in it."""
        context = self._settings.context
        return ContextWindow(
            limit=get_plan(self._model).context_tokens,
            threshold=context.compact_at,
            keep=context.keep_rounds,
            every=context.compact_every_n_rounds or 0,
            pinned=lambda: self.refusal() if self.missing else "",
        )

    def agent(
        self,
        phase: Phase,
        rounds: int,
        context_window: ContextWindow,
        attempt: int,
        earlier: RunProgress,
    ) -> Agent[str | list[Finding]]:
        """Return the agent of a run; `earlier` is what the run took in earlier processes, which its limits count."""
        seconds = max(self.seconds_left(), 1.0) + earlier.seconds
        repository, budget = self.workspace.repository_instructions, self.request.max_cost
        temperature = TEMPERATURES[min(attempt, len(TEMPERATURES) - 1)]
        return Agent(
            self._model,
            ensembles=[*self.workspace.ensembles(phase), *self._explorer(phase)],
            instructions=instructions(
                self._settings.project,
                repository,
                describe_skills(self.workspace.skills, get_plan(self._model).context_tokens),
                has_tools=bool(phase.tools),
            ),
            output=FINDINGS if phase.output == "findings" else str,
            controls=Controls(temperature=temperature, seed=attempt) if temperature is not None else None,
            limits=Limits(
                rounds=rounds - 1 + earlier.rounds,
                seconds=seconds,
                errors=None,
                cost=None if budget is None else budget - self._spent,
            ),
            policy=self.policy,
            approve=self.approver,
            after_call=partial(self._after_call, self._nested),
            clock=self.clock,
            answer_after="model",
            on_repeated_call="warn",
            context_window=context_window,
            keep_order=True,
            event_filter=lambda: pipe(RepetitionFilter(), HallucinatedResultFilter()),
        )

    def _explorer(self, phase: Phase) -> list[Ensemble]:
        """Return the tool by which a large model lets another conversation search, in a phase with tools that search."""
        if self.memory.workflow == "short" or "read_file" not in actions_of_groups(phase.tools):
            return []
        looks = actions_of_groups(("look",))
        explorer = make_explorer(
            self._model,
            make_ensemble(self.workspace.workspace, looks, single=False),
            policy=self.policy,
            after_call=lambda: partial(self._after_call, self.workspace.nested_instructions()),
            context=self._settings.context,
        )
        return [explorer]

    def fill_agent(self, controls: Controls, earlier: RunProgress) -> Agent[str]:
        """Return the agent that writes one line."""
        if self.filler is None:
            raise AssertionError
        seconds = max(self.seconds_left(), 1.0) + earlier.seconds
        limits = Limits(rounds=1 + earlier.rounds, seconds=seconds)
        return Agent(self.filler, controls=controls, limits=limits, clock=self.clock)

    async def _after_call(
        self, nested: NestedInstructions, invocation: InvocationCanister, result: ResultCanister
    ) -> ResultCanister:
        """Notes what the call shows, and truncates its result for the model of a conversation with `nested`."""
        looks = self.workspace.only_looks(invocation)
        if not looks:
            # A run of tests may write files too.
            self.has_changed = True
            self.workspace.tests.mark_changed()
        if result.error is None:
            self.facts.files_read += looks
        self.facts.saw_failure |= self.workspace.tests.is_failing or bool(result.exit_code)
        if self.facts.saw_failure and not self.memory.phase.saw_failure:
            self.memory.phase.saw_failure = True
            self.remember()
        limit = self._settings.context.result_limit(invocation.name)
        result = nested.add(invocation, self.workspace.results.truncate(invocation.name, result, limit))
        return await self.workspace.add_checks(invocation, result)

"""Run tasks with a model, in one variant after the other, and record the outcomes.

Each step of a task is one reply that an `Agent` asks for. The tools are declared and never run. The task has their
results. So nothing that a model writes is executed, and every model reads the same results. The steps of a task with a
simulation are turns, whose calls run on simulated APIs.

Laws: a task is asked once for each variant, and recorded tasks are not asked again. A failed reply is not recorded, and
the next run asks for it again. A cancelled run loses only the tasks that were running.

A step is one reply and not a whole run, because a run could correct a wrong call after its error result. The published
figures judge the first call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from callboard.agent import Agent
from callboard.core import (
    ArgumentsPiece,
    AssistantCanister,
    Canister,
    Controls,
    Event,
    Fold,
    InvocationCanister,
    Model,
    Note,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    Request,
    ResultCanister,
    TextPiece,
    ToolDeclaration,
    Usage,
    UserCanister,
    contents,
    error_result,
    reply_events,
)
from callboard.core.events import Ending
from callboard.errors import CallboardError, ProviderError
from callboard.evaluation.check import check_step
from callboard.evaluation.records import Record, RecordFile, make_key
from callboard.evaluation.simulation import play_turn, simulate
from callboard.evaluation.suites import pull_multi_turn
from callboard.evaluation.task import Attempt, Step, Task
from callboard.evaluation.variants import Variant
from callboard.modes import get_plan, make_plan
from callboard.modes.filters.gate import CALL_SCORES
from callboard.profiles import Resolution
from callboard.tools import Context, Ensemble, Invoker

MAX_REPLY: Final = 256 * 1024
"""Maximum characters of a reply with its calls and thoughts, because an endpoint may ignore `max_tokens`."""
MAX_STEPS: Final = 64
"""Maximum steps of a task."""
MAX_FAILURES: Final = 5
"""Failures in a row after which the run stops."""
MAX_TOKENS: Final = 1024
"""Default maximum tokens of a reply."""
TIMEOUT: Final = 300.0
"""Default time limit of a reply, in seconds. A large model without a GPU needs minutes for a long prompt."""

MIN_SCORE: Final = -100.0
"""Minimum score in a record, because JSON cannot represent minus infinity."""

OpenModel: TypeAlias = Callable[[Variant], AbstractAsyncContextManager[Model]]
"""Opens the model with a variant's facts, while the variant's tasks run."""


class RunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run."""

    concurrency: int = 1
    """Maximum tasks that run at once. The default is 1, because tasks of a local model would share its processors."""
    timeout: float = TIMEOUT
    """Time limit of a reply, in seconds. A slower reply is a failure, not a miss."""
    max_tokens: int = MAX_TOKENS
    """Maximum tokens of a reply. A longer reply is cut, which may be a miss under the label `truncation`."""
    fresh: bool = False
    """True to ask recorded tasks again."""
    warm_up: bool = False
    """True to load the model before the measurement."""

    @property
    def controls(self) -> Controls:
        """Greedy sampling, so that a run can be repeated."""
        return Controls(temperature=0.0, max_tokens=self.max_tokens)


class TaskOutcome(msgspec.Struct, frozen=True):
    """The outcome of one task in one variant. `is_cached` is True if it was recorded before."""

    variant: Variant
    task: Task
    record: Record
    is_cached: bool = False


class EndpointGone(ProviderError):
    """The endpoint failed several times in a row, so the run stops."""


async def run_tasks(
    variants: Sequence[Variant],
    tasks: Sequence[Task],
    open_model: OpenModel,
    *,
    identity: str,
    file: RecordFile,
    resolve: Callable[[Variant], Resolution] | None = None,
    connect: Callable[[], Awaitable[None]] | None = None,
    options: RunnerOptions | None = None,
) -> AsyncGenerator[TaskOutcome]:
    """Run every task in every variant.

    Variants run one after another, so that the endpoint caches the beginning of each variant's prompts.

    Args:
        variants: The variants.
        tasks: The tasks.
        open_model: Opens the model of a variant.
        identity: The identity of the model. If it changes, old answers do not count.
        file: The records of earlier and new answers.
        resolve: Returns the resolution of a variant. By default the opened model has it. If a gateway is in between, a
            change of the gateway's prompts changes the question.
        connect: Called before a variant's first question. It raises if the endpoint does not answer. A gateway would
            report this for each task, after several retries.
        options: The options of the run.

    Yields:
        The outcomes, in the order in which tasks end.

    Raises:
        EndpointGone: Several replies in a row failed.
        CallerError: An answer cannot be recorded.
    """
    options = options or RunnerOptions()
    records = {} if options.fresh else file.read()
    for variant in variants:
        async with open_model(variant) as model:
            resolution = resolve(variant) if resolve else getattr(model, "resolution", None)
            plan = get_plan(model) if resolution is None else make_plan(resolution)
            profile = None if resolution is None else resolution.profile
            remaining: list[tuple[str, Task]] = []
            for task in tasks:
                key = make_key(identity, variant, task, plan=plan, profile=profile, controls=options.controls)
                record = records.get(key)
                if record is not None and is_complete(task, record.attempts):
                    yield TaskOutcome(variant, task, record, is_cached=True)
                else:
                    remaining.append((key, task))
            if remaining and connect is not None:
                await connect()
            if remaining and options.warm_up:
                await _warm_up(model)
            async with aclosing(_ask_all(model, variant, remaining, file, options)) as outcomes:
                async for outcome in outcomes:
                    yield outcome


async def _ask_all(
    model: Model, variant: Variant, items: Sequence[tuple[str, Task]], file: RecordFile, options: RunnerOptions
) -> AsyncGenerator[TaskOutcome]:
    """Ask the tasks, at most `options.concurrency` at once. Closing the generator cancels running tasks."""

    async def ask(key: str, task: Task) -> TaskOutcome:
        attempts = await attempt_task(model, task, options)
        record = Record(key, variant.name, task.suite, task.category, task.identifier, attempts)
        if not record.failure:
            file.append(record)
        return TaskOutcome(variant, task, record)

    waiting = iter(items)
    running: set[asyncio.Task[TaskOutcome]] = set()
    failures = 0
    try:
        while True:
            while len(running) < options.concurrency and (item := next(waiting, None)) is not None:
                running.add(asyncio.ensure_future(ask(*item)))
            if not running:
                return
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                running.remove(each)
                outcome = each.result()
                failure = outcome.record.failure
                if not failure or outcome.record.seconds:  # otherwise nothing was asked, because the task is wrong
                    failures = failures + 1 if failure else 0
                if failures >= MAX_FAILURES:
                    message = f"{failures} replies in a row failed: {failure}"
                    raise EndpointGone(message, path=model.name, hint="answers are saved; the same command continues")
                yield outcome
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _warm_up(model: Model) -> None:
    """Ask for one token. Ignore failures, because the first task reports them."""
    request = Request(model.name, (UserCanister(contents("Hello")),), controls=Controls(temperature=0.0, max_tokens=1))
    async with aclosing(reply_events(model, request)) as events:
        async for _ in events:
            pass


async def attempt_task(model: Model, task: Task, options: RunnerOptions | None = None) -> tuple[Attempt, ...]:
    """Ask a model step by step, until the task ends or a step is missed.

    Args:
        model: The model.
        task: The task.
        options: The options of the run.

    Returns:
        An attempt for each step that was asked. The last attempt has a `failure` if the reply failed or the task's
        tools cannot be declared.
    """
    options = options or RunnerOptions()
    if len(task.steps) > MAX_STEPS:
        return (Attempt(failure=f"a task of {len(task.steps)} steps is too long"),)
    history: list[Canister] = []
    attempts: list[Attempt] = []
    tools: tuple[ToolDeclaration, ...] = task.tools
    async with simulate(task, await pull_multi_turn() if task.simulation else Path()) as apis:
        for step in task.steps:
            tools += step.tools
            try:
                agent = Agent(model, ensembles=[_declare(tools)], controls=options.controls, quoted_calls="run")
            except CallboardError as error:
                return (Attempt(failure=f"the task's tools cannot be declared: {error}"),)
            history += step.canisters
            ask = partial(_ask, agent, options)
            attempt, reply = await (ask(history) if apis is None else play_turn(ask, apis, step, history))
            attempts.append(attempt)
            if not check_step(task, step, attempt).solved:
                break
            history += reply if apis else [*reply, *_script_results(step, attempt.calls)]
    return tuple(attempts)


def is_complete(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Return whether there is an attempt for each step up to the end, or up to the first missed step.

    An older checker may have stopped a recorded task at a step that the present checker judges as solved.
    """
    judgements = [check_step(task, step, attempt).solved for step, attempt in zip(task.steps, attempts, strict=False)]
    return bool(judgements) and all(judgements[:-1]) and (not judgements[-1] or len(attempts) == len(task.steps))


async def _ask(
    agent: Agent[str], options: RunnerOptions, history: Sequence[Canister]
) -> tuple[Attempt, list[Canister]]:
    """Ask for one reply. Return the attempt, and the reply's canisters."""
    reply = _Reply()
    token = CALL_SCORES.set(reply.scores)
    began = time.monotonic()
    try:
        async with asyncio.timeout(options.timeout):
            # Stop at the end of the reply, because the task decides what follows its calls.
            async with agent.stream(history=history) as run:
                async for event in run:
                    if reply.feed(event):
                        break
    except TimeoutError:
        reply.failure = f"the reply took longer than {options.timeout:g} seconds"
    except CallboardError as error:
        reply.failure = str(error)
    finally:
        CALL_SCORES.reset(token)
    return reply.attempt(time.monotonic() - began), reply.canisters


class _Reply:
    """The reply to one step while it arrives. After a `retry`, another reply replaces it."""

    def __init__(self) -> None:
        self.canisters: list[Canister] = []
        self.failure = ""
        self.scores: dict[str, float] = {}
        self._fold = Fold()
        self._notes: list[Note] = []
        self._usage = Usage()
        self._ending: Ending = "stop"
        self._size = 0

    def feed(self, event: Event) -> bool:
        """Process an event. Return whether the reply has ended."""
        self.canisters += self._fold.feed(event)
        match event:
            case TextPiece(text=text) | ReasoningPiece(text=text) | ArgumentsPiece(json=text):
                self._size += len(text)
            case Usage():
                self._usage = event
            case Note():
                self._notes.append(event)
            case ReplyEnded(reason="retry"):
                self.canisters.clear()
            case ReplyEnded(reason=reason):
                self._ending = reason
                return True
            case ReplyFailed(message=message):
                self.failure = message or "no reason was given"
                return True
            case _:
                pass
        if self._size > MAX_REPLY:
            self.failure = f"the reply is longer than {MAX_REPLY} characters"
        return bool(self.failure)

    def attempt(self, seconds: float) -> Attempt:
        return Attempt(
            calls=tuple([each for each in self.canisters if isinstance(each, InvocationCanister)]),
            text="".join([each.text for each in self.canisters if isinstance(each, AssistantCanister)]),
            ending=self._ending,
            notes=tuple(self._notes),
            seconds=seconds,
            usage=self._usage,
            failure=self.failure,
            scores={name: max(score, MIN_SCORE) for name, score in self.scores.items()},
        )


def _declare(tools: Iterable[ToolDeclaration]) -> Ensemble:
    """Return the tools of a task, which are never run. Raises CallboardError for duplicate names and wrong schemas."""
    return Ensemble(
        "task",
        [
            Invoker(tool.name, _refuse, tool.schema, description=tool.description, deferred=True, cli=tool.cli)
            for tool in tools
        ],
    )


async def _refuse(_context: Context, _arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("a task's tools are never run")


def _script_results(step: Step, calls: Iterable[InvocationCanister]) -> list[ResultCanister]:
    """Return the task's results of the calls: for each tool one after another; the last result repeats."""
    remaining = {tool: [*results] for tool, results in step.results.items()}
    canisters: list[ResultCanister] = []
    for call in calls:
        if results := remaining.get(call.name):
            result = results.pop(0) if len(results) > 1 else results[0]
            canisters.append(ResultCanister(contents(result.text), invocation_id=call.identifier, error=result.error))
        else:
            canisters.append(error_result(call.identifier, "not_found", "nothing is known of this call"))
    return canisters

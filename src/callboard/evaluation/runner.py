"""Run tasks with a model, in one variant after the other, and keep what came of each.

Each step of a task is one reply that an `Agent` asks for. The tools are declared and never run: what they would give
back stands in the task. So nothing that a model writes is executed, and every model reads the same results.

Laws: a task is asked once for each variant, and what is on disk is not asked again; a reply that failed is no answer of
the model's, is not kept, and is asked again by the next run; a cancelled run loses only the tasks that were under way.

Why one reply a step and not a whole run: a run would correct a wrong call after its error result, and the published
figures judge the first one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
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
from callboard.evaluation.task import Attempt, ScriptedResult, Step, Task
from callboard.evaluation.variants import Variant
from callboard.modes import get_plan, make_plan
from callboard.modes.filters.gate import CALL_SCORES
from callboard.profiles import Resolution
from callboard.tools import Context, Ensemble, Invoker

MAX_REPLY: Final = 256 * 1024
"""Characters of a reply, its calls and thoughts among them: an endpoint may ignore `max_tokens`."""
MAX_STEPS: Final = 64
"""Steps of a task."""
MAX_FAILURES: Final = 5
"""Failures in a row after which the endpoint is taken for gone."""
MAX_TOKENS: Final = 1024
"""Tokens of a reply, by default."""
TIMEOUT: Final = 300.0
"""Seconds of a reply, by default: a large model without a graphics card needs minutes for a long prompt."""

MIN_SCORE: Final = -100.0
"""A score that is kept; what is certain has none that JSON could hold."""

OpenModel: TypeAlias = Callable[[Variant], AbstractAsyncContextManager[Model]]
"""Opens the model as a variant asks it, for as long as the variant's tasks run."""


class RunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tasks are run."""

    concurrency: int = 1
    """Tasks under way at once. One, for a model of this machine would only divide its processors."""
    timeout: float = TIMEOUT
    """Seconds that a reply may take; one that takes longer is a failure, not a miss."""
    max_tokens: int = MAX_TOKENS
    """Tokens of a reply; one that is cut there may be a miss under the label `truncation`."""
    fresh: bool = False
    """Ask again what is on disk."""
    warm_up: bool = False
    """Have the model loaded before the clock runs."""

    @property
    def controls(self) -> Controls:
        """Greedy: the likeliest token each time, so that a run can be repeated."""
        return Controls(temperature=0.0, max_tokens=self.max_tokens)


class TaskOutcome(msgspec.Struct, frozen=True):
    """What came of one task in one variant, and whether it was on disk already."""

    variant: Variant
    task: Task
    record: Record
    is_cached: bool = False


class EndpointGone(ProviderError):
    """The endpoint failed so often in a row that nothing more is asked."""


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

    A variant after the other: the beginning of its prompts is then in the endpoint's cache, as it is in use.

    Args:
        variants: How the model is asked.
        tasks: What it is asked.
        open_model: Opens the model of a variant.
        identity: What the model is: a change of it makes old answers those of another model.
        file: What is done already, and where what is done is kept.
        resolve: How the model itself is asked in a variant; by default as the one that is opened says. Where a gateway
            stands between, a change of its prompts is a change of the question.
        connect: Called before a variant's first question; raises where nobody is there to answer it, which a gateway
            that stands between would say of each task, and only after it was asked again and again.
        options: How tasks are run.

    Yields:
        The outcomes, in whatever order tasks end.

    Raises:
        EndpointGone: Several replies in a row failed.
        CallerError: An answer cannot be kept.
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
    """Ask the tasks, at most `options.concurrency` at once. Closing the generator cancels what is under way."""

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
                if not failure or outcome.record.seconds:  # else nothing was asked: the task is at fault
                    failures = failures + 1 if failure else 0
                if failures >= MAX_FAILURES:
                    message = f"{failures} replies in a row failed: {failure}"
                    raise EndpointGone(message, path=model.name, hint="what is done is kept; the same command goes on")
                yield outcome
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _warm_up(model: Model) -> None:
    """Ask for one token; what comes of it, the first task says as well."""
    request = Request(model.name, (UserCanister(contents("Hello")),), controls=Controls(temperature=0.0, max_tokens=1))
    async with aclosing(reply_events(model, request)) as events:
        async for _ in events:
            pass


async def attempt_task(model: Model, task: Task, options: RunnerOptions | None = None) -> tuple[Attempt, ...]:
    """Ask a model step by step, until the task is over or a step is missed.

    Args:
        model: The model.
        task: The task.
        options: How replies are asked for.

    Returns:
        What the model did at each step that was asked for. The last one has a `failure` where a reply failed, or where
        the task's tools cannot be declared.
    """
    options = options or RunnerOptions()
    if len(task.steps) > MAX_STEPS:
        return (Attempt(failure=f"a task of {len(task.steps)} steps is too long"),)
    try:
        agent = Agent(model, ensembles=[_declare(task)], controls=options.controls, quoted_calls="run")
    except CallboardError as error:
        return (Attempt(failure=f"the task's tools cannot be declared: {error}"),)
    history: list[Canister] = []
    attempts: list[Attempt] = []
    for number, step in enumerate(task.steps):
        history += step.canisters
        attempt, reply = await _ask(agent, history, number, options)
        attempts.append(attempt)
        if not check_step(task, step, attempt).solved:
            break
        history += [*reply, *_script_results(step, attempt.calls)]
    return tuple(attempts)


def is_complete(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Whether there is an attempt for each step up to the end, or up to the first that is missed.

    What is on disk may have been stopped by an older checker at a step that the present one takes for solved.
    """
    judgements = [check_step(task, step, attempt).solved for step, attempt in zip(task.steps, attempts, strict=False)]
    return bool(judgements) and all(judgements[:-1]) and (not judgements[-1] or len(attempts) == len(task.steps))


async def _ask(
    agent: Agent[str], history: Sequence[Canister], turn: int, options: RunnerOptions
) -> tuple[Attempt, list[Canister]]:
    """One reply: the attempt, and the canisters that it leaves in the conversation."""
    reply = _Reply(turn)
    token = CALL_SCORES.set(reply.scores)
    began = time.monotonic()
    try:
        async with asyncio.timeout(options.timeout):
            # Left where the reply ends: what the agent would do with its calls is the task's business.
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
    """The reply to one step while it arrives. After a `retry` another reply follows in its place."""

    def __init__(self, turn: int) -> None:
        self.canisters: list[Canister] = []
        self.failure = ""
        self.scores: dict[str, float] = {}
        self._turn = turn
        self._fold = Fold()
        self._notes: list[Note] = []
        self._usage = Usage()
        self._ending: Ending = "stop"
        self._size = 0

    def feed(self, event: Event) -> bool:
        """Take an event. Whether the reply is over."""
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


def _declare(task: Task) -> Ensemble:
    """The task's tools, which nothing runs. Raises CallboardError for a name that is there twice, or a wrong schema."""
    return Ensemble(
        "task",
        [
            Invoker(tool.name, _refuse, tool.schema, description=tool.description, deferred=True, cli=tool.cli)
            for tool in task.tools
        ],
    )


async def _refuse(_context: Context, _arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("a task's tools are never run")


def _script_results(step: Step, calls: Iterable[InvocationCanister]) -> list[ResultCanister]:
    """What the task says that the calls give back: to those of each tool in turn, the last one again."""
    counts: dict[str, int] = {}
    results: list[ResultCanister] = []
    for call in calls:
        count = counts[call.name] = counts.get(call.name, -1) + 1
        results.append(_script_result(call.identifier, step.results.get(call.name, ()), count))
    return results


def _script_result(identifier: str, results: Sequence[ScriptedResult], count: int) -> ResultCanister:
    if not results:
        return error_result(identifier, "not_found", "nothing is known of this call")
    result = results[min(count, len(results) - 1)]
    return ResultCanister(contents(result.text), invocation_id=identifier, error=result.error)

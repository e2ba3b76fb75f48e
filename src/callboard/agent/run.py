"""Drive one run: call models, run invocations, ask people, store canisters.

`Loop` decides, `Run` acts. A run has one generator (`_events`), and a model one (`batches`). At most three generators
separate a connection from the caller's `async for`: each one slows every event (tests/agent/test_pull_loop.py).
Law: the loop gets an event before the caller does, so everything that the caller saw is in the transcript.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import reprlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from callboard import core
from callboard.agent.output_type import Output, OutputCheck, OutputT_co
from callboard.agent.resume import Interruption, Resumption
from callboard.agent.run_journal import RunJournal
from callboard.agent.run_span import end_run_span, open_run_span
from callboard.errors import CallboardError, CallerError, NoOutput, ProviderError, ToolExecutionFailure
from callboard.execution import ParallelExecutor, ask_approval
from callboard.loop import (
    Action,
    AskApproval,
    Budget,
    CallModel,
    CheckOutput,
    Execute,
    Finish,
    HandOver,
    Loop,
    LoopRules,
    OnRepeatedCall,
)
from callboard.loop.pending_calls import find_called_turns
from callboard.loop.repeat_guard import create_repeat_guard
from callboard.schema import ArgumentsInvalid
from callboard.telemetry import Span, switch
from callboard.tools import Context, Invoker

if TYPE_CHECKING:
    from callboard.agent.agent import Agent, Handoff
    from callboard.tools.search import ToolSearch

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")

Instructions: TypeAlias = str | Callable[[Context], str | Awaitable[str]]
"""The instructions of an agent: a text, or a function of the run's context that returns it, sync or async."""

FindSchema: TypeAlias = Callable[[str], Mapping[str, Any] | None]
"""Returns the JSON Schema that the arguments of a tool must fit, by the tool's name. None if nothing checks them."""

NewEventFilter: TypeAlias = Callable[[], core.Stage[core.Event, core.Event]]
"""Creates the Stage that filters a reply's events before anything else sees them."""


class RunResult(msgspec.Struct, Generic[OutputT_co], frozen=True):
    """The result of a run that ended in `state` after `rounds` replies.

    `text` is the text of the last reply, even if the run failed. `canisters` are the canisters that the run added,
    including its prompt. `why` says why a run is incomplete. `pending` are the invocations that wait for results from
    outside. `cost` is None if prices are unknown. `agent` is the last agent of the conversation. `usage` and `cost`
    include the nested runs of tools.
    """

    text: str
    state: core.RunState
    canisters: tuple[core.Canister, ...]
    usage: core.Usage
    rounds: int
    why: str = ""
    cost: float | None = None
    pending: tuple[core.InvocationCanister, ...] = ()
    agent: Agent[Any] | None = None
    _output: OutputT_co | UnsetType = UNSET

    def __repr__(self) -> str:
        text = reprlib.repr(self.text if self._output is UNSET else self._output)
        return f"<RunResult {self.state}: {text}, rounds={self.rounds}, canisters={len(self.canisters)}>"

    @property
    def output(self) -> OutputT_co:
        """The text of a completed run, or its value if the agent has an output type.

        Raises:
            NoOutput: The run did not complete, or the model refused to answer. `text` is available nevertheless.
        """
        if self._output is UNSET:
            raise NoOutput(self.state, self.why or "the model refused to answer")
        return self._output

    def messages(self, *, reasoning: bool = False) -> list[dict[str, Any]]:
        """Return `canisters` as messages of Chat Completions, with which another library continues.

        Args:
            reasoning: Add what the model thought as `reasoning_content`. Some servers need it (DeepSeek, Kimi), and
                others refuse it (OpenAI, Mistral).

        Returns:
            Plain dicts. `history=` of a run accepts them too.
        """
        from callboard.wires.chat import encode_messages  # noqa: PLC0415  # only for messages

        return encode_messages(self.canisters, reasoning=reasoning)


@dataclass(frozen=True)
class SharedOptions:
    """The options of a run that do not depend on its current agent.

    `approve` replaces an agent's own callback. `fallback` is asked if an agent has none.
    """

    auxdata: Mapping[str, Any]
    approve: core.Approve | None
    fallback: core.Approve | None


@dataclass(frozen=True, eq=False)
class ActiveAgent:
    """The current agent of a run, with all that the run needs from it.

    If `overrides` is True, its instructions replace the history's.
    """

    agent: Agent[Any]
    model: core.Model
    instructions: Instructions
    overrides: bool
    invokers: Mapping[str, Invoker]
    search: ToolSearch | None
    rules: LoopRules
    on_repeated_call: OnRepeatedCall
    executor: ParallelExecutor
    request: core.Request
    output: Output[Any] | None
    output_check: OutputCheck[Any]
    approve: core.Approve | None
    resource: AbstractAsyncContextManager[Any]
    """The connections of its model, open while the agent has the conversation."""

    def loop(self, canisters: Iterable[core.Canister] = (), **run: Any) -> Loop:
        """Return a loop with the agent's tools and rules. `run` holds the run's own arguments of Loop."""
        guard = create_repeat_guard(self.on_repeated_call, self.invokers)
        return Loop(canisters, self.invokers, rules=self.rules, guard=guard, **run)

    async def instruct(self, auxdata: Mapping[str, Any]) -> str:
        """Return the text of its instructions. Raises CallerError if a function does not return a text."""
        text: Any = self.instructions
        if not isinstance(text, str):
            text = text(Context(MappingProxyType(dict(auxdata))))
            text = await text if inspect.isawaitable(text) else text
        if not isinstance(text, str):
            raise CallerError(f"the function gave a {type(text).__name__}", path="instructions", hint="give a text")
        return "\n\n".join(
            [each for each in (text, self.agent.skills_prompt, self.output.instructions if self.output else "") if each]
        )


class OuterRun:
    """A run, as seen by a tool that starts a nested run (`Context.run`).

    Questions are asked one after another, in the event loop of the outer run: a tool's thread may have its own loop.
    """

    def __init__(
        self,
        invocation: core.InvocationCanister,
        emit: Callable[[core.Event], None],
        budget: Budget,
        approve: core.Approve | None,
        asking: asyncio.Lock,
    ) -> None:
        self._invocation = invocation
        self._emit = emit
        self.budget = budget
        self._approve = approve
        self._asking = asking
        self._home = asyncio.get_running_loop()

    @property
    def approve(self) -> core.Approve | None:
        return None if self._approve is None else self._ask

    def emit(self, event: core.Event) -> None:
        """Report an event of the inner run to the outer run."""
        self._emit(core.Nested(self._invocation.identifier, self._invocation.name, event))

    async def _ask(self, invocation: core.InvocationCanister, why: str) -> core.Answer:
        answering = self._answer(invocation, why)
        if asyncio.get_running_loop() is self._home:
            return await answering
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answering, self._home))

    async def _answer(self, invocation: core.InvocationCanister, why: str) -> core.Answer:
        async with self._asking:
            answer = self._approve(invocation, why) if self._approve else "deny"
            return await answer if inspect.isawaitable(answer) else answer


class Run(Generic[OutputT_co]):
    """A run of an agent: iterate over it for its events, then read `result`.

    If you may leave a run early, enter it first (`async with agent.stream(...) as run`). Leaving the block or
    cancelling its task also cancels the model's reply upstream and the tools. The state of the result is then
    `cancelled`. `failure` is the error that ended a failed run.

    Args:
        loop: Decides what happens next.
        active: The current agent.
        shared: The options that are the same for each agent.
        history_length: Canisters of the conversation before the run.
        clock: The time in UTC.
        store: Stores every canister.
        outer: The run that this run is nested in.
        resumption: Decisions about calls of the history.
        journal: Records what the run is about to do.
        interruption: The saved state, if the run was interrupted.
    """

    def __init__(
        self,
        loop: Loop,
        active: ActiveAgent,
        shared: SharedOptions,
        *,
        history_length: int,
        clock: core.Clock,
        store: core.Store | None = None,
        outer: OuterRun | None = None,
        resumption: Resumption | None = None,
        journal: core.Journal | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        self._result: RunResult[OutputT_co] | None = None
        self.failure: CallboardError | None = None
        self._loop = loop
        self._active = active
        self._shared = shared
        self._resumption = resumption
        self._interruption = interruption
        self._agents = {id(active.agent): active}
        """All agents that have had the conversation, by identity."""
        self._history_length = self._begun_at = history_length
        self._stored = len(loop.transcript) if interruption else history_length
        self._decisions = {**interruption.decisions} if interruption else {}
        """Decisions about calls that the run asks about, by identifier."""
        self._clock = clock
        self._store = store
        self._journal: RunJournal | None = None
        if journal is not None:
            self._journal = RunJournal(
                journal, lambda: self._loop, clock, history_length=history_length, saved=self._stored
            )
        self._outer = outer
        self._asking = asyncio.Lock()
        self._resources = AsyncExitStack()
        self._instructions: core.SupervisorCanister | None = None
        """Instructions that replace the conversation's; None leaves the conversation as it is."""
        self._has_called = False
        """Whether the current agent has made a call."""
        self._actions: list[Action] = []
        self._span: Span | None = None
        """Span of the run, if telemetry is on."""
        self._begun = False
        self._block: AsyncExitStack | None = None
        """Closes the iterator of an entered run. Otherwise nothing refers to the iterator, and Python closes it."""

    def __repr__(self) -> str:
        state = self._result.state if self._result else "under way" if self._begun else "not begun"
        return f"<Run of {self._active.model.name}: {state}>"

    @property
    def agent(self) -> Agent[Any]:
        """The current agent of the conversation."""
        return self._active.agent

    def find_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of the arguments of the tool `name`. None if no tool has the name, or nothing is validated."""
        invoker = self._active.invokers.get(name) if self._active.rules.validates else None
        return None if invoker is None else invoker.arguments_schema

    @property
    def ended(self) -> bool:
        """Whether the run has ended and `result` is available."""
        return self._result is not None

    @property
    def result(self) -> RunResult[OutputT_co]:
        """The result of the run. Raises CallerError while the run is under way."""
        if self._result is None:
            raise CallerError("the run is not over", path="result", hint="iterate over the run's events first")
        return self._result

    @property
    def partial_output(self) -> Any:
        """The typed output while the model writes it, as JSON so far; None before it begins.

        The value is neither validated nor coerced. It is the same object while it grows.
        """
        return self._active.output_check.partial

    async def __aenter__(self) -> Self:
        self._block = AsyncExitStack()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._block is not None:
            await self._block.aclose()

    def __aiter__(self) -> AsyncIterator[core.Event]:
        if self._begun:
            raise CallerError("a run can be iterated over only once", hint="make another with Agent.stream")
        self._begun = True
        events = self._events()
        if self._block is not None:
            self._block.push_async_callback(events.aclose)
        return events

    async def _events(self) -> AsyncGenerator[core.Event]:
        """The run's only generator: await what each action of the loop needs, and yield its events."""
        async with self._resources:
            try:
                for note in await self._enter(self._active):
                    yield self._give(note)
                for decision in await self._begin():
                    yield self._feed(decision)
                while self._actions:
                    action = self._actions.pop(0)
                    if self._journal is not None:
                        await self._save(self._journal, action)
                    match action:
                        case CallModel():
                            yield self._give(core.RoundStarted(action.number))
                            reply = self._open_reply(action)
                            async with core.closing(self._active.model.batches(reply.request)) as batches:
                                with suppress(StopAsyncIteration):
                                    while not reply.is_stopped:
                                        for event in reply.take(await self._in_time(anext(batches))):
                                            yield self._feed(event)
                            for event in reply.finish():
                                yield self._feed(event)
                        case Execute(invocations=invocations, answered=answered):
                            self._has_called = self._loop.rounds > 0
                            async with aclosing(self._active.executor.run(invocations, answered)) as results:
                                with suppress(StopAsyncIteration):
                                    while True:
                                        yield self._feed(await self._in_time(anext(results)))
                        case AskApproval(invocation=invocation, why=why):
                            yield self._give(core.ApprovalAsked(invocation, why))
                            answer = await self._ask(invocation, why)
                            if answer.failed:
                                yield self._give(core.Note("alert", f"{invocation.name} was denied: {answer.why}"))
                            yield self._feed(answer)
                        case CheckOutput(text=text):
                            complaint = await self._in_time(self._active.output_check.complaint(text))
                            self._actions.extend(self._loop.answer_check(complaint, self._clock()))
                            self._keep()
                        case HandOver(name=name):
                            for event in await self._switch_agent(name):
                                yield self._give(event)
                            self._actions.extend(self._loop.go_on(self._clock()))
                        case Finish():
                            yield self._give(self._end(action))
            except _OutOfTime as over:
                yield self._give(await self._end_out_of_time(str(over)))
            except ToolExecutionFailure as failure:
                for event in await self._fail(failure):
                    yield self._give(event)
            except (asyncio.CancelledError, GeneratorExit):
                self._stop("cancelled", "cancelled")
                raise
            except Exception as error:
                # The error comes from the caller's hook, store or model, not from the model, a tool or the provider.
                self._stop(str(error) or type(error).__name__, "failed")
                raise

    def _give(self, event: core.Event) -> core.Event:
        """Report the event to the outer run, if there is one, and return it."""
        if self._outer is not None:
            self._outer.emit(event)
        return event

    async def _enter(self, active: ActiveAgent) -> list[core.Note]:
        """Prepare the agent for the run. Return notes about constraints of its tools that cannot be enforced."""
        self._active = active
        self._has_called = False
        if self._span is None and switch.recorder is not None:
            span = self._span = open_run_span(active.model, self._loop.transcript)
            self._resources.callback(lambda: end_run_span(span, self._active.model, self._result, self.failure))
        if active.executor.enclose is not None:
            return []
        active.executor.enclose = self._enclose
        active.executor.journal = self._journal
        self._agents[id(active.agent)] = active
        await self._resources.enter_async_context(active.resource)
        return [
            core.Note("dropped", f"{name}: {what}") for name, each in active.invokers.items() for what in each.dropped
        ]

    def _enclose(self, invocation: core.InvocationCanister, emit: Callable[[core.Event], None]) -> OuterRun:
        return OuterRun(invocation, emit, self._loop.budget, self._active.approve, self._asking)

    async def _begin(self) -> Iterable[core.Event]:
        """Put the agent's instructions first. A history with instructions keeps them, unless they came from an agent.

        Returns:
            Decisions about calls of the history, or notes about the agents that the conversation was handed over to.
        """
        text = await self._active.instruct(self._shared.auxdata)
        transcript = self._loop.transcript
        first = next((each for each in transcript if isinstance(each, core.SupervisorCanister)), None)
        if text and first is None:
            transcript.insert(0, self._supervisor(text))
            self._begun_at += bool(self._begun_at)
            self._stored += bool(self._stored)
            if self._journal is not None:
                self._journal.saved += bool(self._journal.saved)
        elif text and first is not None and (self._active.overrides or first.by_agent):
            self._instructions = self._supervisor(text)
        self._keep()
        if self._interruption is not None:
            return await self._recover(self._interruption)
        resumed, now = self._resumption, self._clock()
        if resumed is None:
            self._actions.extend(self._loop.start(now))
            return ()
        self._actions.extend(self._loop.resume(resumed.invocations, resumed.answered, resumed.prompt, now))
        return resumed.decisions

    async def _recover(self, interruption: Interruption) -> list[core.Event]:
        """Continue where the run was interrupted, with the agent that had the conversation last."""
        events: list[core.Event] = []
        last = None
        for turn in find_called_turns(self._loop.transcript, self._begun_at):
            if turn.end + len(turn.results) == len(self._loop.transcript):
                last = turn
            elif name := self._loop.recall(turn):
                events += await self._switch_agent(name)
            else:
                self._has_called = True
        if last is not None and self._journal is not None:
            self._journal.take_back(last.results)
            self._stored -= len(last.results)
            last.results.update(interruption.results)
        now = self._clock()
        self._actions.extend(self._loop.recover(interruption.progress, last, self._decisions, now))
        return events

    def _supervisor(self, text: str) -> core.SupervisorCanister:
        return core.SupervisorCanister(core.contents(text), by_agent=True, timestamp=self._clock())

    async def _switch_agent(self, name: str) -> list[core.Event]:
        handoff = cast("Handoff", self._active.invokers[name])
        agent = handoff.agent
        notes = await self._enter(self._agents.get(id(agent)) or agent.set_up(self._shared))
        self._instructions = self._supervisor(await self._active.instruct(self._shared.auxdata))
        self._loop = self._active.loop(after=self._loop)
        return [core.HandedOver(handoff.to), *notes]

    async def _ask(self, invocation: core.InvocationCanister, why: str) -> core.ApprovalAnswered:
        if decision := self._decisions.pop(invocation.identifier, None):
            return decision
        answer = replace(await ask_approval(self._active.approve, invocation, why), timestamp=self._clock())
        if self._outer is not None and answer.verdict == "defer":
            return replace(answer, verdict="deny", why=_NOT_LATER)
        return answer

    def _open_reply(self, action: CallModel) -> _Reply:
        active = self._active
        conversation = self._add_instructions(action.canisters)
        changes: dict[str, Any] = {"canisters": conversation, "conversation": conversation}
        if active.agent.context_window is not None:
            changes["canisters"] = active.agent.context_window.show(conversation)
        changes["tools"] = self._declare(conversation)
        choice = active.request.tool_choice
        if action.last:
            changes["tool_choice"] = "none"
        elif self._has_called and (choice == "required" or isinstance(choice, core.NamedTool)):
            # A model that was forced to call is free to answer after its first call.
            changes["tool_choice"] = "auto"
        return _Reply(active, replace(active.request, **changes))

    def _declare(self, conversation: Iterable[core.Canister]) -> tuple[core.ToolDeclaration, ...]:
        """Return the tools to declare after this conversation."""
        search = self._active.search
        return self._active.request.tools if search is None else search.declarations(conversation)

    def _add_instructions(self, canisters: tuple[core.Canister, ...]) -> tuple[core.Canister, ...]:
        """Return the conversation with the current agent's instructions instead of the first ones."""
        if self._instructions is None:
            return canisters
        at = next((place for place, each in enumerate(canisters) if isinstance(each, core.SupervisorCanister)), None)
        before, behind = ((), canisters) if at is None else (canisters[:at], canisters[at + 1 :])
        return (*before, *((self._instructions,) if self._instructions.content else ()), *behind)

    def _in_time(self, awaited: Awaitable[_Value]) -> Awaitable[_Value]:
        """Await within the time limit of the run, and raise _OutOfTime after it."""
        if self._span is not None:
            awaited = self._span.during(awaited)
        deadline = self._loop.deadline
        return awaited if deadline is None else self._until(deadline, awaited)

    async def _until(self, deadline: datetime, awaited: Awaitable[_Value]) -> _Value:
        try:
            async with asyncio.timeout((deadline - self._clock()).total_seconds()) as limit:
                return await awaited
        except TimeoutError:
            if not limit.expired():
                raise
            raise _OutOfTime(f"{self._loop.limits.seconds:g} seconds are over") from None

    def _feed(self, event: core.Event) -> core.Event:
        if type(event) is core.ReplyFailed:
            about = {name: getattr(event, name) for name in ("code", "excerpt", "party", "path", "hint", "retry_after")}
            self.failure = ProviderError(event.message, **about)
        elif type(event) is core.Note and event.code == "missed_call":
            _log.warning("%s", event.text)
        self._active.output_check.follow(event)
        if actions := self._loop.feed(event, self._clock()):
            self._actions.extend(actions)
        if self._store is not None:
            self._keep()
        if self._outer is not None:
            self._outer.emit(event)
        return event

    def _stop(self, why: str, state: core.RunState) -> core.RunEnded:
        """End the run from outside. Calls that have ended keep their results."""
        for result in self._active.executor.unseen:
            self._loop.feed(core.ResultReady(result), self._clock())
        return self._end(self._loop.stop(self._clock(), why, state))

    async def _save(self, journal: RunJournal, action: Action) -> None:
        """Save what leads to the action. If a hook looks at calls, it may wait, so the begin is saved later."""
        if isinstance(action, CallModel):
            journal.declare(self._declare(action.canisters))
        begins = isinstance(action, Execute) and len(action.invocations) > len(action.answered)
        await journal.save(action, begins=begins and self._active.agent.before_call is None)

    async def _end_out_of_time(self, why: str) -> core.RunEnded:
        ended = self._stop(why, "incomplete")
        if self._journal is not None:
            await self._journal.save()
        return ended

    async def _fail(self, failure: ToolExecutionFailure) -> list[core.Event]:
        """End a run that fails fast, and roll the conversation back."""
        self.failure = failure
        rolled_back = self._roll_back()
        if self._journal is not None:
            await self._journal.roll_back(rolled_back, self._begun_at)
        return [core.Note("alert", str(failure)), rolled_back, self._end(Finish("failed", "", str(failure)))]

    def _end(self, finish: Finish) -> core.RunEnded:
        loop = self._loop
        canisters = tuple(loop.transcript[self._begun_at :])
        text = finish.output
        if not text and canisters and isinstance(canisters[-1], core.AssistantCanister):
            text = "".join([part.text for part in canisters[-1].content if isinstance(part, core.RefusalContent)])
        self._result = RunResult(
            text,
            finish.state,
            canisters,
            loop.usage,
            loop.rounds,
            finish.why,
            loop.cost,
            loop.pending,
            self._active.agent,
            self._read(finish, text),
        )
        self._keep()
        return core.RunEnded(finish.state, finish.output, loop.usage, loop.cost)

    def _read(self, finish: Finish, text: str) -> OutputT_co | UnsetType:
        """Return the typed output. An incomplete run has none; a refusal has none unless the output is a text."""
        if finish.state != "completed":
            return UNSET
        check: OutputCheck[OutputT_co] = self._active.output_check
        if check.value is not UNSET:
            return check.value
        try:
            return check.read(text)
        except ArgumentsInvalid:  # the output of a completed run was checked, unless the model refused
            return UNSET

    def _roll_back(self) -> core.RolledBack:
        """Reset the conversation to its length before the prompt, as its caller counts it."""
        rolled_back = core.RolledBack(self._history_length)
        self._active = next(iter(self._agents.values()))  # the agent that had the conversation before the prompt
        self._loop.roll_back(self._begun_at)
        self._stored = self._begun_at
        if self._store is not None:
            self._store.append(rolled_back)
        return rolled_back

    def _keep(self) -> None:
        if self._store is not None:
            transcript = self._loop.transcript
            while self._stored < len(transcript):
                self._store.append(transcript[self._stored])
                self._stored += 1


_NOT_LATER = "the answer was defer, and a run within another one waits for no later answer"


class _OutOfTime(Exception):
    """The time limit of the run has passed; the text says so."""


class _Reply:
    """The reply to one request while it arrives."""

    def __init__(self, active: ActiveAgent, request: core.Request) -> None:
        self.request = request
        self._context_window = active.agent.context_window
        self._event_filter = active.agent.event_filter() if active.agent.event_filter else None
        self._is_whole = False
        self.is_stopped = False
        """Whether the filter ended the reply before the model did."""

    def take(self, events: list[core.Event]) -> list[core.Event]:
        """Return the events that the run gets for these events of the model."""
        for event in events:
            if self._context_window is not None and isinstance(event, core.Usage):
                self._context_window.count(event)
        self._is_whole = isinstance(events[-1], (core.ReplyEnded, core.ReplyFailed))
        if self._event_filter is None:
            return events
        outputs = [out for event in events for out in self._event_filter.feed(event)]
        last = outputs[-1] if outputs and not self._is_whole else None
        self.is_stopped = isinstance(last, core.ReplyEnded) and last.reason != "retry"
        self._is_whole |= self.is_stopped
        return outputs

    def finish(self) -> list[core.Event]:
        """Return the events that the filter held back, and a failure if the reply has no end."""
        events = [] if self._event_filter is None else self._event_filter.finish("stop" if self._is_whole else "cut")
        return events if self._is_whole else [*events, core.ReplyFailed("provider", "cut", "the reply has no end")]

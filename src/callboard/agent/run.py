"""One run, driven.

Owns the way between the loop and the world: models are called, invocations run, people are asked, canisters
stored. Decides nothing: the loop does.
Law: an event is fed before it is given, so that whatever was seen is in the transcript.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from callboard.agent.output import OutputCheck, OutputT_co
from callboard.core import (
    ApprovalAsked,
    Approve,
    AssistantCanister,
    Canister,
    Clock,
    Event,
    InvocationCanister,
    Model,
    Note,
    RefusalContent,
    ReplyEnded,
    ReplyFailed,
    Request,
    ResultReady,
    RolledBack,
    RoundStarted,
    RunEnded,
    RunState,
    Stage,
    Store,
    Usage,
)
from callboard.errors import CallboardError, CallerError, NoOutput, ProviderError, ToolExecutionFailure
from callboard.execution import Group
from callboard.loop import Action, AskApproval, CallModel, CheckOutput, Execute, Finish, Loop
from callboard.schema import ArgumentsInvalid

if TYPE_CHECKING:
    from callboard.loop import History

NewStage: TypeAlias = Callable[[], Stage[Event, Event]]
"""Makes what a reply's events pass through before anything else sees them."""


class RunResult(msgspec.Struct, Generic[OutputT_co], frozen=True):
    """What came of a run.

    `text` is that of the last reply, whatever became of the run. `canisters` are those that the run added, its
    prompt among them; `why` says what it fell short of; `pending` are the invocations that wait for results from
    outside; `cost` is None where prices are not known.
    """

    text: str
    state: RunState
    canisters: tuple[Canister, ...]
    usage: Usage
    rounds: int
    why: str = ""
    cost: float | None = None
    pending: tuple[InvocationCanister, ...] = ()
    _output: OutputT_co | UnsetType = UNSET

    def __repr__(self) -> str:
        from reprlib import repr as brief  # noqa: PLC0415  # where somebody looks

        said = brief(self.text if self._output is UNSET else self._output)
        return f"<RunResult {self.state}: {said}, rounds={self.rounds}, canisters={len(self.canisters)}>"

    @property
    def output(self) -> OutputT_co:
        """The text of a completed run, or the value that it spells where the agent has an output type.

        Raises:
            NoOutput: The run did not complete, or the model refused to answer. `text` is there nevertheless.
        """
        if self._output is UNSET:
            raise NoOutput(self.state, self.why or "the model refused to answer")
        return self._output


class Run(Generic[OutputT_co]):
    """A run of an agent: iterate over it for its events, then `result` has what came of it.

    A run that may be left early is entered first (`async with agent.stream(...) as run`): where the block is left, or
    its task is cancelled, what is under way is cancelled too, the model's reply upstream and the tools; the result's
    state is then `cancelled`. `failure` is what the run failed of.
    """

    def __init__(
        self,
        loop: Loop,
        model: Model,
        group: Group,
        request: Request,
        *,
        begun_at: int,
        known: int,
        clock: Clock,
        check: OutputCheck[OutputT_co],
        notes: Iterable[Note] = (),
        approve: Approve | None = None,
        view: History | None = None,
        stage: NewStage | None = None,
        store: Store | None = None,
        around: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        self._result: RunResult[OutputT_co] | None = None
        self.failure: CallboardError | None = None
        self._loop = loop
        self._model = model
        self._group = group
        self._request = request
        self._begun_at = begun_at
        self._known = known
        self._stored = begun_at
        self._clock = clock
        self._check = check
        self._notes = tuple(notes)
        self._approve = approve
        self._view = view
        self._stage = stage
        self._store = store
        self._around = around or nullcontext()
        self._actions: deque[Action] = deque()
        self._begun = False
        self._block: AsyncExitStack | None = None
        """Closes the iterator of a run that was entered. Else nothing holds it, so that Python closes one that is left."""

    def __repr__(self) -> str:
        state = self._result.state if self._result else "under way" if self._begun else "not begun"
        return f"<Run of {self._model.name}: {state}>"

    @property
    def ended(self) -> bool:
        """Whether it is over, and `result` can be read."""
        return self._result is not None

    @property
    def result(self) -> RunResult[OutputT_co]:
        """What came of the run. Raises CallerError while it is not over."""
        if self._result is None:
            raise CallerError("the run is not over", path="result", hint="iterate over the run's events first")
        return self._result

    @property
    def partial_output(self) -> Any:
        """The output while it is written, where it is of a type: JSON as far as it came, None before it begins.

        It is what the model wrote, neither validated nor coerced, and one and the same object while it grows.
        """
        return self._check.partial

    async def __aenter__(self) -> Self:
        self._block = AsyncExitStack()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._block is not None:
            await self._block.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._begun:
            raise CallerError("a run goes only once", hint="make another with Agent.stream")
        self._begun = True
        events = self._go()
        if self._block is not None:
            self._block.push_async_callback(events.aclose)
        return events

    async def _go(self) -> AsyncGenerator[Event]:
        self._keep()
        self._actions.extend(self._loop.start(self._clock()))
        async with self._around:
            try:
                for note in self._notes:
                    yield note
                while self._actions:
                    async with aclosing(self._act(self._actions.popleft())) as events:
                        async for event in events:
                            yield event
            except _OutOfTime as over:
                yield self._stop(str(over), "incomplete")
            except ToolExecutionFailure as failure:
                self.failure = failure
                yield Note("alert", str(failure))
                yield self._roll_back()
                yield self._end(Finish("failed", "", str(failure)))
            except (asyncio.CancelledError, GeneratorExit):
                self._stop("cancelled", "cancelled")
                raise
            except Exception as error:
                # Not the model's, the tools' or the provider's doing: our caller's hook, store or model.
                self._stop(str(error) or type(error).__name__, "failed")
                raise

    async def _act(self, action: Action) -> AsyncGenerator[Event]:
        match action:
            case CallModel():
                yield RoundStarted(action.number)
                async with aclosing(self._reply(action)) as events:
                    async for event in events:
                        yield event
            case Execute(invocations=invocations, answered=answered):
                async with aclosing(self._group.run(invocations, answered)) as events:
                    async for event in self._in_time(events):
                        yield self._feed(event)
            case AskApproval(invocation=invocation, why=why):
                from callboard.execution import ask_approval  # noqa: PLC0415  # where somebody is asked

                yield ApprovalAsked(invocation, why)
                answer = await ask_approval(self._approve, invocation, why)
                if answer.failed:
                    yield Note("alert", f"{invocation.name} was denied: {answer.why}")
                yield self._feed(answer)
            case CheckOutput(text=text):
                async with self._time_limit():
                    complaint = await self._check.complaint(text)
                self._actions.extend(self._loop.answer_check(complaint, self._clock()))
                self._keep()
            case Finish():
                yield self._end(action)

    async def _reply(self, action: CallModel) -> AsyncGenerator[Event]:
        canisters = action.canisters if self._view is None else self._view.shown(action.canisters)
        changes: dict[str, Any] = {"canisters": canisters, "conversation": action.canisters}
        if action.last:
            changes["tool_choice"] = "none"
        whole = False
        stage = self._stage() if self._stage else None
        async with aclosing(_generator(self._model.reply(replace(self._request, **changes)))) as events:
            async for event in self._in_time(events):
                whole = isinstance(event, (ReplyEnded, ReplyFailed))
                if isinstance(event, Usage) and self._view is not None:
                    self._view.count(event)
                for each in [event] if stage is None else stage.feed(event):
                    yield self._feed(each)
        for each in [] if stage is None else stage.finish("stop" if whole else "cut"):
            yield self._feed(each)
        if not whole:
            yield self._feed(ReplyFailed("provider", "cut", "the reply has no end"))

    def _in_time(self, events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        """The events, until the run's seconds are over."""
        return events if self._loop.deadline is None else self._until(events)

    async def _until(self, events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        while True:
            try:
                async with self._time_limit():
                    event = await anext(events)
            except StopAsyncIteration:
                return
            yield event

    @asynccontextmanager
    async def _time_limit(self) -> AsyncGenerator[None]:
        """Until the run's seconds are over. Raises _OutOfTime."""
        deadline = self._loop.deadline
        left = None if deadline is None else (deadline - self._clock()).total_seconds()
        try:
            async with asyncio.timeout(left) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise _OutOfTime(f"{self._loop.limits.seconds:g} seconds are over") from None

    def _feed(self, event: Event) -> Event:
        if isinstance(event, ReplyFailed):
            about = {name: getattr(event, name) for name in ("code", "excerpt", "party", "path", "hint")}
            self.failure = ProviderError(event.message, **about)
        self._check.follow(event)
        self._actions.extend(self._loop.feed(event, self._clock()))
        self._keep()
        return event

    def _stop(self, why: str, state: RunState) -> RunEnded:
        """Ends the run from outside; calls that had ended keep their results."""
        for result in self._group.unseen:
            self._loop.feed(ResultReady(result), self._clock())
        return self._end(self._loop.stop(self._clock(), why, state))

    def _end(self, finish: Finish) -> RunEnded:
        loop = self._loop
        canisters = tuple(loop.transcript[self._begun_at :])
        text = finish.output or _refusal(canisters)
        self._result = RunResult(
            text,
            finish.state,
            canisters,
            loop.usage,
            loop.rounds,
            finish.why,
            loop.cost,
            loop.pending,
            self._read(finish, text),
        )
        self._keep()
        return RunEnded(finish.state, finish.output, loop.usage, loop.cost)

    def _read(self, finish: Finish, text: str) -> OutputT_co | UnsetType:
        """The output as its type; a run that did not complete has none, nor has a refusal where it is no text."""
        if finish.state != "completed":
            return UNSET
        if self._check.value is not UNSET:
            return self._check.value
        try:
            return self._check.read(text)
        except ArgumentsInvalid:  # a completed run's output was checked, unless the model refused
            return UNSET

    def _roll_back(self) -> RolledBack:
        """The conversation goes on from where it was before the prompt, as its caller counts it."""
        rolled_back = RolledBack(self._known)
        self._loop.roll_back(self._begun_at)
        self._stored = self._begun_at
        if self._store is not None:
            self._store.append(rolled_back)
        return rolled_back

    def _keep(self) -> None:
        """Stores what the transcript has grown by."""
        if self._store is not None:
            transcript = self._loop.transcript
            while self._stored < len(transcript):
                self._store.append(transcript[self._stored])
                self._stored += 1


def _refusal(canisters: Sequence[Canister]) -> str:
    """What the last canister refuses with."""
    parts = canisters[-1].content if canisters and isinstance(canisters[-1], AssistantCanister) else ()
    return "".join([part.text for part in parts if isinstance(part, RefusalContent)])


class _OutOfTime(Exception):
    """The run's seconds are over; its text says so."""


def _generator(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    """A model's reply as something that can be closed."""
    if isinstance(events, AsyncGenerator):
        return events
    return _wrapped(events)


async def _wrapped(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    async for event in events:
        yield event

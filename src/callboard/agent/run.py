"""One run, driven.

Owns the way between the loop and the world: models are called, invocations run, people are asked, canisters
stored. Decides nothing: the loop does.
Law: an event is fed before it is given, so that whatever was seen is in the transcript.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any

import msgspec

from callboard.core import (
    ApprovalAnswered,
    ApprovalAsked,
    Approve,
    Canister,
    Clock,
    Event,
    Model,
    ReplyEnded,
    ReplyFailed,
    Request,
    RoundStarted,
    RunEnded,
    RunState,
    Store,
    Usage,
    Verdict,
)
from callboard.errors import CallerError, ProviderError
from callboard.execution import Group
from callboard.loop import Action, AskApproval, CallModel, Execute, Finish, Loop


class RunResult(msgspec.Struct, frozen=True):
    """What came of a run. `canisters` are those it added, the prompt first; `why` says what it fell short of."""

    output: str
    state: RunState
    canisters: tuple[Canister, ...]
    usage: Usage
    rounds: int
    why: str = ""


class Run:
    """A run of an agent: iterate over it for its events, then `result` has what came of it.

    Ending the iteration early, or cancelling its task, cancels what is under way: the model's reply
    upstream, the tools; the result's state is then `cancelled`.
    """

    def __init__(
        self,
        loop: Loop,
        model: Model,
        group: Group,
        request: Request,
        *,
        begun_at: int,
        clock: Clock,
        approve: Approve | None = None,
        store: Store | None = None,
        around: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        self.result: RunResult | None = None
        self.failure: ProviderError | None = None
        self._begun = False
        self._loop = loop
        self._model = model
        self._group = group
        self._request = request
        self._begun_at = begun_at
        self._stored = begun_at
        self._clock = clock
        self._approve = approve
        self._store = store
        self._around = around or nullcontext()
        self._actions: deque[Action] = deque()

    def __aiter__(self) -> AsyncIterator[Event]:
        """The events. Raises CallerError the second time."""
        if self._begun:
            raise CallerError("a run goes only once", hint="make another with Agent.stream")
        self._begun = True
        return self._events()

    async def _events(self) -> AsyncGenerator[Event]:
        self._keep()
        self._actions.extend(self._loop.start())
        async with self._around:
            try:
                while self._actions:
                    async with aclosing(self._act(self._actions.popleft())) as events:
                        async for event in events:
                            yield event
            finally:
                if self.result is None:
                    self._end(self._loop.stop(self._clock()))

    async def _act(self, action: Action) -> AsyncGenerator[Event]:
        match action:
            case CallModel():
                yield RoundStarted(action.number)
                async with aclosing(self._reply(action)) as events:
                    async for event in events:
                        yield event
            case Execute(invocations=invocations, answered=answered):
                async with aclosing(self._group.run(invocations, answered)) as events:
                    async for event in events:
                        yield self._feed(event)
            case AskApproval(invocation=invocation, why=why):
                yield ApprovalAsked(invocation, why)
                verdict: Verdict = await self._approve(invocation, why) if self._approve else "deny"
                yield self._feed(ApprovalAnswered(invocation, verdict))
            case Finish():
                yield self._end(action)

    async def _reply(self, action: CallModel) -> AsyncGenerator[Event]:
        changes: dict[str, Any] = {"canisters": action.canisters}
        if action.last:
            changes["tool_choice"] = "none"
        whole = False
        async with aclosing(_generator(self._model.reply(msgspec.structs.replace(self._request, **changes)))) as events:
            async for event in events:
                whole = isinstance(event, (ReplyEnded, ReplyFailed))
                if isinstance(event, ReplyFailed):
                    self.failure = ProviderError(event.message, code=event.code, excerpt=event.excerpt)
                yield self._feed(event)
        if not whole:
            yield self._feed(ReplyFailed("provider", "cut", "the reply has no end"))

    def _feed(self, event: Event) -> Event:
        self._actions.extend(self._loop.feed(event, self._clock()))
        self._keep()
        return event

    def _end(self, finish: Finish) -> RunEnded:
        loop = self._loop
        self.result = RunResult(
            finish.output, finish.state, tuple(loop.transcript[self._begun_at :]), loop.usage, loop.rounds, finish.why
        )
        self._keep()
        return RunEnded(finish.state, finish.output, loop.usage)

    def _keep(self) -> None:
        """Stores what the transcript has grown by."""
        if self._store is not None:
            transcript = self._loop.transcript
            while self._stored < len(transcript):
                self._store.append(transcript[self._stored])
                self._stored += 1


def _generator(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    """A model's reply as something that can be closed."""
    if isinstance(events, AsyncGenerator):
        return events
    return _wrapped(events)


async def _wrapped(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    async for event in events:
        yield event

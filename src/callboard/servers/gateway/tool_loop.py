"""A reply in rounds: the model calls tools that run in the gateway.

The client gets one reply: the text and reasoning of all rounds as they come, the sum of their usage, and one end. A call
that ran here is shown as a line of reasoning, such as `add({"a":1,"b":2}) -> 3`, which no client tries to run. Its seal
stands where the wire has a place beside reasoning (`encrypted_content` on Responses, `signature` on Messages): a client
that sends it back gives the model the call and the result again. Chat has no such place: there they are only part of
the reasoning's text, and lost if the client does not send that back.

A call of a client's tool ends the reply. It is sent when the reply's calls of tools from here have run, and after their
results; it is sent as it came, whole or not. A call of a tool that nobody has is answered here. As in every run,
`loop.Loop` decides what happens next.

Law: a client that leaves cancels what runs.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Ending,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyExtra,
    ReplyFailed,
    Request,
    ResultCanister,
    ResultReady,
    TextPiece,
    ToolChoice,
    ToolDeclaration,
    Usage,
)
from callboard.errors import CallerError
from callboard.execution import ParallelExecutor
from callboard.loop import Action, CallModel, Execute, Finish, Limits, Loop, LoopRules
from callboard.loop.repeat_guard import create_repeat_guard
from callboard.modes import Plan, get_plan
from callboard.servers.gateway.dispatch import Candidates, stream_reply
from callboard.servers.gateway.exchange import Batches, ReplyRecord
from callboard.servers.gateway.hosted_call_trace import format_call, format_result, seal
from callboard.servers.gateway.http_errors import HttpError
from callboard.tools import Invoker, Policy
from callboard.tools.search import ToolSearch

log = logging.getLogger("callboard.gateway")

_DRAIN_SECONDS = 1.0
"""Seconds that a backend has to end its answer after a round's last event, so that the connection can be kept."""
_MINTED_IDENTIFIER = re.compile(r"call_\d+_[a-z]?\d+")
"""Identifiers of `identify_in_turn`. They count canisters, of which a client may not see all."""
_ALLOWED = Policy([("*", "allow")])
_Call: TypeAlias = InvocationStarted | ArgumentsPiece | InvocationEnded | InvocationIncomplete


class _NoValidation:
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)


async def _never_called(*_: object) -> None:
    raise AssertionError("a client's tool does not run here")


_CLIENT_TOOL = Invoker("", _never_called, {}, validator=_NoValidation(), deferred=True)
"""Stands for each of the client's tools: its results come from outside."""


class ToolLoop:
    """One reply, in as many rounds as it takes.

    Args:
        candidates: The backends to ask.
        request: The client's, with the declarations of the hosted tools.
        record: Of the whole reply.
        plan: How the first backend's model is asked.
        client_tools: The client's own.
        hosted_tools: Those that may run here.
        search: Finds hosted tools where there are too many to declare.
        limits: Of the rounds.
        client_canisters: How many canisters the client sent, for the identifiers of its calls.
    """

    def __init__(
        self,
        candidates: Candidates,
        request: Request,
        record: ReplyRecord,
        *,
        plan: Plan,
        client_tools: Sequence[ToolDeclaration],
        hosted_tools: Mapping[str, Invoker],
        search: ToolSearch | None,
        limits: Limits,
        client_canisters: int,
    ) -> None:
        self._candidates = candidates
        self._request = request
        self._record = record
        self._client_tools = client_tools
        self._client_names = frozenset([tool.name for tool in client_tools])
        self._search = search
        self._client_canisters = client_canisters
        self._group = ParallelExecutor(hosted_tools)
        invokers = {**dict.fromkeys(self._client_names, _CLIENT_TOOL), **hosted_tools}
        self._loop = Loop(
            request.canisters,
            invokers,
            rules=LoopRules(policy=_ALLOWED, answer_after=plan.answer_after, prices=plan.prices),
            limits=limits,
            guard=create_repeat_guard(plan.on_repeated_call, invokers),
        )
        self._actions: deque[Action] = deque()
        self._client_indices: dict[int, int | None] = {}
        """The reply's index of each call of this round; None for those that run here."""
        self._calls: list[Event] = []
        """Events of calls of the client's tools, sent at the end."""
        self._count = 0
        self._last_text_round = 0
        """The last round with text."""
        self._ends_in_reasoning = False
        self._has_usage = False
        self._reason: Ending = "stop"
        self._failed: ReplyFailed | None = None

    async def batches(self) -> Batches:
        """The batches of the reply, once."""
        self._actions.extend(self._loop.start(datetime.now(UTC)))
        while self._actions:
            action = self._actions.popleft()
            match action:
                case CallModel():
                    steps = self._ask_model(action)
                case Execute():
                    steps = self._run_tools(action)
                case _:
                    yield self._end(action)
                    return
            async with aclosing(steps) as batches:
                async for events in batches:
                    yield events

    async def _ask_model(self, action: CallModel) -> Batches:
        # tool_choice "required" applies to the first round only.
        first = action.number == 1
        choice: ToolChoice = "none" if action.last else self._request.tool_choice if first else "auto"
        request = replace(self._request, canisters=action.canisters, tool_choice=choice)
        if self._search is not None:
            request = replace(request, tools=(*self._client_tools, *self._search.declarations(action.canisters)))
        answered = self._record.backend_name
        candidates = sorted(self._candidates, key=lambda each: each[0].name != answered)
        self._client_indices = {}
        try:
            if not first:
                await self._record.costs.check()
        except HttpError as error:
            self._feed([error.failure])
            return
        async with aclosing(stream_reply(candidates, request, self._record)) as batches:
            async for events in batches:
                self._record.end = None  # a round's end is not the reply's
                if passed := self._feed(events):
                    yield passed
                if self._actions:
                    break
            if not self._actions:
                self._feed([ReplyFailed("provider", "cut", "the reply has no end")])
            if isinstance(self._actions[0], Finish):
                yield self._end(self._actions.popleft())
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    async for _ in batches:
                        pass

    async def _run_tools(self, action: Execute) -> Batches:
        calls = action.invocations
        results: list[ResultCanister] = []
        yield [ReasoningPiece(("\n" if self._ends_in_reasoning else "") + format_call(calls[0]))]
        self._ends_in_reasoning = False
        async with aclosing(self._group.run(calls, action.answered)) as events:
            async for event in events:
                if not isinstance(event, ResultReady):
                    if getattr(event, "code", "") != "failed_call":  # what the result is logged for, and what it says
                        log.warning("%s", getattr(event, "text", event))
                    continue
                self._actions.extend(self._loop.feed(event, datetime.now(UTC)))
                results.append(event.canister)
                error = event.canister.error
                log.info("%s ran here: %s", calls[len(results) - 1].name[:64], error.category if error else "done")
                text = format_result(event.canister)
                if len(results) < len(calls):
                    yield [ReasoningPiece(text + format_call(calls[len(results)]))]
                else:
                    yield [ReasoningPiece(text, seal(calls, results, joined=bool(self._calls)))]

    def _feed(self, events: list[Event]) -> list[Event]:
        """The events of a batch that the client gets at once. The loop gets all of them."""
        now = datetime.now(UTC)
        passed: list[Event] = []
        for event in events:
            loop_event = event
            match event:
                case TextPiece():
                    if event.text:
                        if 0 < self._last_text_round < self._loop.rounds:
                            passed.append(TextPiece("\n\n"))
                        self._last_text_round = self._loop.rounds
                        self._ends_in_reasoning = False
                    passed.append(event)
                case ReasoningPiece() | RefusalPiece():
                    self._ends_in_reasoning = isinstance(event, ReasoningPiece)
                    passed.append(event)
                case InvocationStarted() | ArgumentsPiece() | InvocationEnded() | InvocationIncomplete():
                    loop_event = self._feed_call(event)
                case Note(code="incomplete"):
                    passed.append(event)
                case Usage():
                    self._has_usage = True
                case ReplyEnded(reason=reason):
                    self._reason = reason
                case ReplyFailed():
                    self._failed = event
                case Logprobs() | ReplyExtra():
                    passed.append(event)
                case _ if self._loop.rounds == 1:
                    passed.append(event)
                case _:
                    pass
            self._actions.extend(self._loop.feed(loop_event, now))
        return passed

    def _feed_call(self, event: _Call) -> Event:
        """Keep the events of a client's call. The loop gets the call as complete, even if it is not."""
        if event.index not in self._client_indices:
            is_theirs = getattr(event, "name", "") in self._client_names
            self._client_indices[event.index] = self._count if is_theirs else None
            self._count += is_theirs
        client_index = self._client_indices[event.index]
        if client_index is None:
            return event
        renumbered = replace(event, index=client_index)
        if not isinstance(event, ArgumentsPiece) and _MINTED_IDENTIFIER.fullmatch(event.identifier):
            renumbered = replace(
                renumbered, identifier=f"call_{self._client_canisters}_{self._loop.rounds}_{client_index}"
            )
        self._calls.append(renumbered)
        if isinstance(event, (InvocationEnded, InvocationIncomplete)):
            return InvocationEnded(event.index, event.identifier, event.name, {}, event.raw)
        return event

    def _end(self, finish: Action) -> list[Event]:
        """The last batch."""
        usage = [self._loop.usage] if self._has_usage else []
        if self._failed is not None:
            events: list[Event] = [*usage, self._failed]
        else:
            if isinstance(finish, Finish) and finish.state == "incomplete":
                log.info("a reply ends after %d rounds: %s", self._loop.rounds, finish.why)
            reason = self._reason
            if reason in ("stop", "invocations"):
                reason = "invocations" if self._calls else "stop"
            events = [*self._calls, *usage, ReplyEnded(reason)]
        self._record.set_end(events)
        return events


def first_plan(candidates: Candidates, owner: str) -> Plan:
    """How the first backend's model is asked."""
    backend, name = candidates[0]
    try:
        return backend.model(name, owner).plan
    except CallerError:  # told when it is asked
        return get_plan(None)

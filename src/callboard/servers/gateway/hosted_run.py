"""A reply in rounds: the model calls tools that run in the gateway.

An `agent.run.Run` makes the rounds, with the backends as its model. The client gets one reply: the text and reasoning
of all rounds as they arrive, the sum of their usage, and one end. A call that ran here appears as a line of reasoning,
such as `add({"a":1,"b":2}) -> 3`, which no client tries to run. If the wire has a field for it (`encrypted_content` on
Responses, `signature` on Messages), a seal follows. A client that sends the seal back restores the call and the result
for the model. Chat has no such field, so there the line is only text.

A call of a client's tool ends the reply. It is sent unchanged, whole or not, after the reply's calls of hosted tools
have run and after their results. The gateway answers a call of a tool that nobody has.

Laws: a client that leaves cancels running calls; sealed calls are restored exactly, or not at all.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.agent import Agent
from callboard.agent.run import Run, SharedOptions
from callboard.core import (
    ArgumentsPiece,
    AssistantCanister,
    Canister,
    Content,
    Ending,
    Event,
    InvocationCanister,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    ReasoningContent,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyExtra,
    ReplyFailed,
    Request,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    TextualContent,
    ToolDeclaration,
    Usage,
)
from callboard.execution import ParallelExecutor
from callboard.loop import Limits
from callboard.modes import Plan
from callboard.servers.gateway.dispatch import Candidates, stream_reply
from callboard.servers.gateway.exchange import Batches, ReplyRecord
from callboard.servers.gateway.http_errors import HttpError
from callboard.tools import Invoker, Policy
from callboard.tools.search import ToolSearch

_MARK = "callboard.hosted.1."
_encode = msgspec.json.Encoder().encode


class _Sealed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls and their results. If `joined`, calls of the client's tools from the same reply follow."""

    calls: tuple[InvocationCanister, ...]
    results: tuple[ResultCanister, ...]
    joined: bool = False


_decode = msgspec.json.Decoder(_Sealed).decode


def format_call(call: InvocationCanister) -> str:
    """Return a call as text, such as `add({"a":1})`."""
    arguments = call.raw if call.arguments is None else _encode(dict(call.arguments)).decode()
    return f"{call.name}({arguments})"


def format_result(result: ResultCanister) -> str:
    """Return a result as the rest of its call's line, such as ` -> 2`."""
    texts = [
        part.text if isinstance(part, TextualContent) else f"[{part.__struct_config__.tag}]" for part in result.content
    ]
    return f" -> {''.join(texts)}\n"


def seal(calls: Sequence[InvocationCanister], results: Sequence[ResultCanister], *, joined: bool) -> str:
    """Return the calls and results, in the same order, as the opaque part of the reasoning that shows them."""
    sealed = _Sealed(
        tuple([replace(each, timestamp=None) for each in calls]),
        tuple([replace(each, timestamp=None) for each in results]),
        joined,
    )
    return _MARK + base64.urlsafe_b64encode(_encode(sealed)).decode()


def restore_calls(canisters: Sequence[Canister]) -> Sequence[Canister]:
    """Return the conversation with the sealed calls and results instead of the reasoning that showed them."""
    if not any(_has_seal(each) for each in canisters):
        return canisters
    restored: list[Canister] = []
    waiting: tuple[ResultCanister, ...] = ()
    for canister in canisters:
        if not isinstance(canister, InvocationCanister):
            restored += waiting
            waiting = ()
        if not (isinstance(canister, AssistantCanister) and _has_seal(canister)):
            restored.append(canister)
            continue
        content: list[Content] = []
        for part in canister.content:
            sealed = _open_seal(part.opaque) if isinstance(part, ReasoningContent) else None
            if sealed is None or not isinstance(part, ReasoningContent):
                content.append(part)
                continue
            if thought := part.text.removesuffix(_format_sealed(sealed)).rstrip("\n"):
                content.append(replace(part, text=thought, opaque=""))
            restored += [replace(canister, content=tuple(content))] if content else []
            restored += [*waiting, *sealed.calls]
            content, waiting = [], ()
            if sealed.joined:
                waiting = sealed.results
            else:
                restored += sealed.results
        restored += [replace(canister, content=tuple(content))] if content else []
    return [*restored, *waiting]


def _has_seal(canister: Canister) -> bool:
    return isinstance(canister, AssistantCanister) and any(
        isinstance(part, ReasoningContent) and part.opaque.startswith(_MARK) for part in canister.content
    )


def _open_seal(opaque: str) -> _Sealed | None:
    """Return the contents of a seal, or None if it is not one of ours."""
    if not opaque.startswith(_MARK):
        return None
    try:
        return _decode(base64.b64decode(opaque.removeprefix(_MARK), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _format_sealed(sealed: _Sealed) -> str:
    results = {each.invocation_id: each for each in sealed.results}
    return "".join(
        [
            format_call(each) + (format_result(results[each.identifier]) if each.identifier in results else "")
            for each in sealed.calls
        ]
    )


log = logging.getLogger("callboard.gateway")

_DRAIN_SECONDS = 1.0
"""Seconds that a backend has to end its answer after a round's last event, so that the connection can be reused."""
_MINTED_IDENTIFIER = re.compile(r"call_\d+_[a-z]?\d+")
"""Identifiers that `identify_in_turn` makes. They count canisters, and a client may not see all of them."""
_ALLOWED = Policy([("*", "allow")])
_Call: TypeAlias = InvocationStarted | ArgumentsPiece | InvocationEnded | InvocationIncomplete


class _NoValidation:
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)


async def _never_called(*_: object) -> None:
    raise AssertionError("a client's tool does not run here")


_CLIENT_TOOL = Invoker("", _never_called, {}, validator=_NoValidation(), deferred=True)
"""Placeholder for each of the client's tools, whose results come from outside."""


async def stream_rounds(
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
) -> Batches:
    """Yield the batches of one reply, in as many rounds as it takes.

    Args:
        candidates: The backends to ask.
        request: The client's request, with the declarations of the hosted tools.
        record: The record of the whole reply.
        plan: The plan of the first backend's model.
        client_tools: The client's own tools.
        hosted_tools: The tools that may run here.
        search: The search for hosted tools, if there are too many to declare.
        limits: Limits of the rounds.
        client_canisters: Number of canisters that the client sent. It is part of the calls' identifiers.
    """
    calls = _ClientCalls([tool.name for tool in client_tools], client_canisters)
    model = _Backends(candidates, request.model, record, plan, calls)
    shared = SharedOptions({}, None, None)
    active = dataclasses.replace(
        Agent(model, policy=_ALLOWED).set_up(shared),
        invokers={**dict.fromkeys(calls.names, _CLIENT_TOOL), **hosted_tools},
        search=search,
        executor=_ShownCalls(hosted_tools, calls),
        request=request,
    )
    loop = active.loop(request.canisters, limits=limits)
    length = len(request.canisters)
    run: Run[str] = Run(loop, active, shared, history_length=length, clock=lambda: datetime.now(UTC))
    reply = _ReplyOfRounds(calls)
    async with run:
        async for event in run:
            if isinstance(event, RunEnded):
                if event.state == "incomplete":
                    log.info("a reply ended after %d rounds: %s", run.result.rounds, run.result.why)
                events = reply.end(event)
                record.set_end(events)
            else:
                events = reply.feed(event)
            if events:
                yield events


class _Backends:
    """The backends as the model of a run. The backend that answered a round is asked first in the next round."""

    def __init__(self, candidates: Candidates, name: str, record: ReplyRecord, plan: Plan, calls: _ClientCalls) -> None:
        self.name = name
        self.plan = plan
        self._candidates = candidates
        self._record = record
        self._calls = calls

    async def batches(self, request: Request, /) -> Batches:
        record, calls = self._record, self._calls
        is_first = not calls.rounds
        calls.begin_round()
        try:
            if not is_first:
                await record.costs.check()
        except HttpError as error:
            yield [error.failure]
            return
        answered = record.backend_name
        candidates = sorted(self._candidates, key=lambda each: each[0].name != answered)
        async with aclosing(stream_reply(candidates, replace(request, conversation=()), record)) as batches:
            async for events in batches:
                record.end = None  # the end of a round is not the end of the reply
                # The record has already logged a missed call, with the backend's name.
                yield [calls.feed(event) for event in events if getattr(event, "code", "") != "missed_call"]
                if isinstance(events[-1], (ReplyEnded, ReplyFailed)):
                    break
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    async for _ in batches:
                        pass


class _ClientCalls:
    """The calls of the client's tools in all rounds."""

    def __init__(self, names: Sequence[str], client_canisters: int) -> None:
        self.names = frozenset(names)
        self.events: list[Event] = []
        """Events of the calls, to send at the end of the reply."""
        self.rounds = 0
        self._client_canisters = client_canisters
        self._indices: dict[int, int | None] = {}
        """The reply's index of each call of this round. None for calls that run here."""
        self._count = 0

    def begin_round(self) -> None:
        self.rounds += 1
        self._indices = {}

    def feed(self, event: Event) -> Event:
        """Keep the event of a client's call. The run sees every call as complete."""
        if not isinstance(event, _Call):
            return event
        if event.index not in self._indices:
            is_theirs = getattr(event, "name", "") in self.names
            self._indices[event.index] = self._count if is_theirs else None
            self._count += is_theirs
        index = self._indices[event.index]
        if index is None:
            return event
        renumbered = replace(event, index=index)
        if not isinstance(event, ArgumentsPiece) and _MINTED_IDENTIFIER.fullmatch(event.identifier):
            renumbered = replace(renumbered, identifier=f"call_{self._client_canisters}_{self.rounds}_{index}")
        self.events.append(renumbered)
        if isinstance(event, (InvocationEnded, InvocationIncomplete)):
            return InvocationEnded(event.index, event.identifier, event.name, {}, event.raw)
        return event


class _ShownCalls(ParallelExecutor):
    """Runs calls, and shows them and their results as reasoning."""

    def __init__(self, invokers: Mapping[str, Invoker], client_calls: _ClientCalls) -> None:
        super().__init__(invokers)
        self._client_calls = client_calls

    async def run(
        self, invocations: Sequence[InvocationCanister], answered: Mapping[str, ResultCanister] | None = None
    ) -> AsyncGenerator[Event]:
        results: list[ResultCanister] = []
        yield ReasoningPiece(format_call(invocations[0]))
        async with aclosing(super().run(invocations, answered)) as events:
            async for event in events:
                if not isinstance(event, ResultReady):
                    if getattr(event, "code", "") != "failed_call":  # the result says this, and is logged
                        log.warning("%s", getattr(event, "text", event))
                    continue
                call, result = invocations[len(results)], event.canister
                results.append(result)
                log.info("%s ran here: %s", call.name[:64], result.error.category if result.error else "done")
                text = format_result(result)
                if len(results) < len(invocations):
                    yield ReasoningPiece(text + format_call(invocations[len(results)]))
                else:
                    yield ReasoningPiece(text, seal(invocations, results, joined=bool(self._client_calls.events)))
                yield event


class _ReplyOfRounds:
    """Turns the events of a run into the events of one reply."""

    def __init__(self, calls: _ClientCalls) -> None:
        self._calls = calls
        self._round = 0
        self._last_text_round = 0
        """The last round that had text."""
        self._is_replying = False
        self._ends_in_reasoning = False
        self._has_usage = False
        self._reason: Ending = "stop"
        self._failed: ReplyFailed | None = None

    def feed(self, event: Event) -> list[Event]:
        """Return the events to send to the client now."""
        match event:
            case RoundStarted(number=number):
                self._round, self._is_replying = number, True
            case TextPiece(text=text):
                begins = bool(text) and 0 < self._last_text_round < self._round
                if text:
                    self._last_text_round, self._ends_in_reasoning = self._round, False
                return [TextPiece("\n\n"), event] if begins else [event]
            case ReasoningPiece(text=text) if not self._is_replying:
                begins, self._ends_in_reasoning = self._ends_in_reasoning, False
                return [replace(event, text="\n" + text)] if begins else [event]
            case ReasoningPiece() | RefusalPiece():
                self._ends_in_reasoning = isinstance(event, ReasoningPiece)
                return [event]
            case Usage():
                self._has_usage = True
            case ReplyEnded(reason=reason):
                self._reason, self._is_replying = reason, False
            case ReplyFailed():
                self._failed, self._is_replying = event, False
            case _ if isinstance(event, (_Call, ResultReady)):
                pass
            case Note(code="incomplete") | Logprobs() | ReplyExtra():
                return [event]
            case _ if self._round == 1:
                return [event]
            case _:
                pass
        return []

    def end(self, ended: RunEnded) -> list[Event]:
        usage = [ended.usage] if self._has_usage else []
        if self._failed is not None:
            return [*usage, self._failed]
        reason = self._reason
        if reason in ("stop", "invocations"):
            reason = "invocations" if self._calls.events else "stop"
        return [*self._calls.events, *usage, ReplyEnded(reason)]

"""A run as a state machine.

Owns what follows from each event: which reply is asked for, which invocations run, when it is over.
Knows no wire, no dialect, no HTTP, and no clock: the time comes with the event.
Laws: only a completed reply decides anything, so text before a call never ends a run; every invocation
in the transcript gets its result; constant work an event, whatever the history's length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from callboard.core import (
    ApprovalAnswered,
    AssistantCanister,
    Canister,
    Ending,
    Event,
    Fold,
    InvocationCanister,
    InvocationIncomplete,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    Usage,
    error_result,
)
from callboard.loop.actions import Action, AskApproval, CallModel, Execute, Finish
from callboard.tools import Invoker, Policy, refusal

MAX_ROUNDS = 20
MAX_EMPTY = 2
"""Empty replies that end a run."""

_SHORTFALLS: Mapping[Ending, str] = {
    "length": "the reply reached its length limit",
    "filter": "the provider's filter ended the reply",
}
_encode = msgspec.json.Encoder(order="sorted").encode

AnswerAfter: TypeAlias = Literal["model", "results"]
"""When the last reply is asked for: when the model makes no more calls, or once its calls have results."""


class Loop:
    """Feeds on the events of replies, results and approvals; gives actions.

    `canisters` are the conversation so far, `invokers` what may be called. `max_rounds` bounds the replies
    that may call; then one more is asked for without calls, and the run is incomplete.
    `transcript` grows by what happens; `usage` is the sum over the replies.
    """

    def __init__(
        self,
        canisters: Iterable[Canister],
        invokers: Mapping[str, Invoker],
        *,
        max_rounds: int = MAX_ROUNDS,
        policy: Policy | None = None,
        answer_after: AnswerAfter = "model",
    ) -> None:
        self.transcript: list[Canister] = [*canisters]
        self.usage = Usage()
        self.rounds = 0
        self._invokers = invokers
        self._max_rounds = max_rounds
        self._policy = policy or Policy()
        self._answer_after = answer_after
        self._fold = Fold()
        self._reply: list[Canister] = []
        self._reply_usage = Usage()
        self._cut: dict[str, str] = {}
        self._last = False
        self._shortfall = ""
        """Why the run will not have completed, however it goes on."""
        self._empty = 0
        self._invocations: tuple[InvocationCanister, ...] = ()
        self._answered: dict[str, ResultCanister] = {}
        self._asked: dict[str, InvocationCanister] = {}
        self._results: dict[str, ResultCanister] = {}
        self._waiting: set[str] = set()
        self._previous: dict[tuple[str, bytes], ResultCanister] = {}
        """What the calls of the round before gave, where they gave something."""
        self._repeated = False

    def start(self) -> list[Action]:
        return [self._call_model()]

    def feed(self, event: Event, now: datetime) -> list[Action]:
        match event:
            case ResultReady(canister=result):
                return self._take_result(result, now)
            case ApprovalAnswered(invocation=invocation, verdict=verdict):
                if self._asked.pop(invocation.identifier, None) is not None and verdict == "deny":
                    self._answered[invocation.identifier] = _denied(invocation, "the answer was no")
                return [] if self._asked else [self._execute()]
            case Usage():
                # Some providers tell it with every piece; the last one counts.
                self._reply_usage = event
            case InvocationIncomplete(identifier=identifier, why=why):
                self._cut[identifier] = why
            case _:
                pass
        self._reply += self._fold.feed(event)
        match event:
            case ReplyEnded(reason="retry"):
                self._end_reply()
                self._reply = []
            case ReplyEnded(reason=reason):
                said = self._keep_reply(now)
                return self._decide(said, reason, now)
            case ReplyFailed(message=message):
                said = self._keep_reply(now)
                self._settle("the reply failed before the call could run", now)
                return [Finish("failed", said, message)]
            case _:
                pass
        return []

    def stop(self, now: datetime) -> Finish:
        """Somebody ends the run from outside: what was said is kept, what was called and has no result gets one."""
        self._reply += self._fold.finish("cancelled")
        said = self._keep_reply(now) if self._reply else ""
        self._settle("the run was cancelled", now)
        return Finish("cancelled", said, "cancelled")

    # Replies.

    def _call_model(self) -> CallModel:
        self.rounds += 1
        return CallModel(self.rounds, tuple(self.transcript), self._last)

    def _end_reply(self) -> None:
        self.usage += self._reply_usage
        self._reply_usage = Usage()

    def _keep_reply(self, now: datetime) -> str:
        """The reply goes into the transcript. Its text."""
        self._end_reply()
        reply, self._reply = [msgspec.structs.replace(each, timestamp=now) for each in self._reply], []
        self.transcript += reply
        self._invocations = tuple([each for each in reply if isinstance(each, InvocationCanister)])
        self._answered = {}
        self._asked = {}
        self._results = {}
        self._waiting = {each.identifier for each in self._invocations}
        return "".join([each.text for each in reply if isinstance(each, AssistantCanister)])

    def _decide(self, said: str, reason: Ending, now: datetime) -> list[Action]:
        if self._invocations and self._last:
            self._settle("no more calls are taken in this run", now)
            return [Finish("incomplete", said, self._shortfall or "the model called instead of answering")]
        if self._invocations:
            return self._permit()
        why = self._shortfall or _SHORTFALLS.get(reason, "")
        if said or why or reason == "refusal":
            return [Finish("incomplete" if why else "completed", said, why)]
        self._empty += 1
        if self._empty < MAX_EMPTY:
            return [self._call_model()]
        return [Finish("incomplete", said, "the model replied nothing")]

    # Invocations.

    def _permit(self) -> list[Action]:
        """Settles what needs no running and asks for what needs a person."""
        questions: list[Action] = []
        self._repeated = all(_key(each) in self._previous for each in self._invocations)
        for invocation in self._invocations:
            identifier = invocation.identifier
            refused = refusal(invocation, self._invokers, self._cut.get(identifier, ""))
            if refused is not None:
                self._answered[identifier] = refused
            elif self._repeated:
                earlier = self._previous[_key(invocation)]
                self._answered[identifier] = msgspec.structs.replace(earlier, invocation_id=identifier)
            else:
                permission, why = self._policy.decide(self._invokers[invocation.name])
                if permission == "deny":
                    self._answered[identifier] = _denied(invocation, why)
                elif permission == "ask":
                    self._asked[identifier] = invocation
                    questions.append(AskApproval(invocation, why))
        return questions or [self._execute()]

    def _execute(self) -> Execute:
        return Execute(self._invocations, self._answered)

    def _take_result(self, result: ResultCanister, now: datetime) -> list[Action]:
        self._results[result.invocation_id] = result
        self._waiting.discard(result.invocation_id)
        return [] if self._waiting else self._next_round(now)

    def _next_round(self, now: datetime) -> list[Action]:
        results = [self._results[each.identifier] for each in self._invocations]
        self.transcript += [msgspec.structs.replace(each, timestamp=now) for each in results]
        sound = all(each.error is None for each in results)
        self._previous = {
            _key(invocation): result
            for invocation, result in zip(self._invocations, results, strict=True)
            if result.error is None
        }
        self._invocations = ()
        if self._repeated or (sound and self._answer_after == "results"):
            self._last = True
        elif self.rounds >= self._max_rounds:
            self._last = True
            self._shortfall = f"no answer within {self._max_rounds} rounds"
        return [self._call_model()]

    def _settle(self, why: str, now: datetime) -> None:
        """Every invocation that has no result gets one that says why."""
        for invocation in self._invocations:
            result = self._results.get(invocation.identifier) or error_result(invocation.identifier, "cancelled", why)
            self.transcript.append(msgspec.structs.replace(result, timestamp=now))
        self._invocations = ()


def _denied(invocation: InvocationCanister, why: str) -> ResultCanister:
    return error_result(invocation.identifier, "permission", f"{invocation.name} may not run: {why}")


def _key(invocation: InvocationCanister) -> tuple[str, bytes]:
    """What makes two invocations the same call."""
    return invocation.name, _encode(invocation.arguments)

"""Where a job's time, tokens and money went: its rounds, and the calls of each.

`TraceBuilder` makes the rounds of a job's entries. Jobs that were recorded before rounds were measured have no times.

Law: each round and each call is there once, in the order in which they began, whatever the job came to.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.coding.job import PhaseStarted, Step
from callboard.core import InvocationEnded, InvocationIncomplete, ResultReady, RoundStarted
from callboard.core.canisters import ToolError
from callboard.jobs.entries import JobEntry, ReplyTook
from callboard.jobs.steps import EntrySteps

CallState: TypeAlias = Literal["done", "failed", "open"]
"""Of a call: whether it has a result, and which; an open one has none."""
MAX_FAILURE: Final = 300
"""Characters of why a call failed."""


class CallSpan(msgspec.Struct, kw_only=True):
    """One call. It begins when the reply that made it has ended: calls of one reply may wait for each other."""

    identifier: str
    name: str
    began_at: datetime | None = None
    ended_at: datetime | None = None
    state: CallState = "open"
    failure: str = ""
    """Its category and the beginning of its message."""

    @property
    def seconds(self) -> float | None:
        """How long it took, None where that is not known."""
        return _seconds(self.began_at, self.ended_at)


class RoundSpan(msgspec.Struct, kw_only=True):
    """One round: the reply, and what it called."""

    number: int
    phase: str = ""
    began_at: datetime | None = None
    replied_at: datetime | None = None
    usage: dict[str, int] = {}
    cost: float | None = None
    calls: list[CallSpan] = []

    @property
    def seconds(self) -> float | None:
        """How long the model took, None where that is not known."""
        return _seconds(self.began_at, self.replied_at)

    @property
    def ended_at(self) -> datetime | None:
        """When the reply and its calls had ended."""
        return max([each for each in (self.replied_at, *[call.ended_at for call in self.calls]) if each], default=None)


class TraceBuilder:
    """A stage: feed it the steps of a job; `rounds` grows by what they say."""

    def __init__(self) -> None:
        self.rounds: list[RoundSpan] = []
        self._stage = EntrySteps()
        self._phase = ""
        self._calls: dict[str, CallSpan] = {}
        """By identifiers: those that have no result yet."""

    def feed(self, step: Step) -> None:
        """Take the next step."""
        match step:
            case PhaseStarted(name=name):
                self._phase = name
            case RoundStarted():
                # Of a round that was interrupted the next process says that it begins, too.
                if (
                    not self.rounds
                    or self.rounds[-1].calls
                    or self.rounds[-1].began_at is not None
                    or self.rounds[-1].phase != self._phase
                ):
                    self._begin_round()
            case (
                InvocationEnded(identifier=identifier, name=name)
                | InvocationIncomplete(identifier=identifier, name=name)
            ):
                call = CallSpan(identifier=identifier, name=name)
                (self.rounds or self._begin_round())[-1].calls.append(call)
                self._calls[identifier] = call
            case ResultReady(canister=result):
                self._end_call(result.invocation_id, result.timestamp, result.error)
            case _:
                pass

    def feed_entry(self, entry: JobEntry) -> None:
        """Take the next entry of a durable job."""
        for step in self._stage.feed(entry):
            self.feed(step)
        if (took := entry.took) is not None:
            replied_at = getattr(entry.item, "timestamp", None) or took.began_at
            self._measure(took, replied_at)

    def _begin_round(self) -> list[RoundSpan]:
        self.rounds.append(RoundSpan(number=len(self.rounds) + 1, phase=self._phase))
        return self.rounds

    def _end_call(self, identifier: str, at: datetime | None, error: ToolError | None) -> None:
        call = self._calls.pop(identifier, None)
        if call is not None:
            call.state, call.ended_at = "done" if error is None else "failed", at
            call.failure = "" if error is None else f"{error.category}: {error.message}"[:MAX_FAILURE]

    def _measure(self, took: ReplyTook, replied_at: datetime) -> None:
        span = (self.rounds or self._begin_round())[-1]
        span.began_at, span.replied_at = took.began_at, replied_at
        span.usage, span.cost = took.usage, took.cost
        for call in span.calls:
            call.began_at = replied_at


def describe_trace(rounds: list[RoundSpan]) -> list[dict[str, Any]]:
    """The rounds as JSON has them."""
    return [
        {
            **msgspec.to_builtins(each),
            "seconds": each.seconds,
            "calls": [{**msgspec.to_builtins(call), "seconds": call.seconds} for call in each.calls],
        }
        for each in rounds
    ]


def _seconds(began_at: datetime | None, ended_at: datetime | None) -> float | None:
    return None if began_at is None or ended_at is None else (ended_at - began_at).total_seconds()

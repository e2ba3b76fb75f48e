"""The invocations of one reply, until each has its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

import msgspec

from callboard.core import InvocationCanister, ResultCanister
from callboard.tools import edited_result

Key: TypeAlias = tuple[str, bytes]
"""What makes two invocations the same call: the tool, and the arguments in whatever order."""

_encode = msgspec.json.Encoder(order="sorted").encode


class PendingCalls:
    """`answered` has the results of invocations that do not run, `questions` the invocations that wait for a person,
    `deferred` those whose results come from outside, after the run, `edited` those that run with a person's arguments;
    `decided` names those that a person has decided about before.
    """

    def __init__(self, invocations: Iterable[InvocationCanister] = (), decided: Collection[str] = ()) -> None:
        self.invocations = tuple(invocations)
        self.decided = decided
        self.answered: dict[str, ResultCanister] = {}
        self.questions: dict[str, InvocationCanister] = {}
        self.deferred: dict[str, InvocationCanister] = {}
        self.edited: dict[str, InvocationCanister] = {}
        self._results: dict[str, ResultCanister] = {}
        self._waiting = {each.identifier for each in self.invocations}

    @property
    def running(self) -> tuple[InvocationCanister, ...]:
        """Those that are executed or answered now, in the order of the calls."""
        return tuple(
            [
                self.edited.get(each.identifier, each)
                for each in self.invocations
                if each.identifier not in self.deferred
            ]
        )

    @property
    def pending(self) -> tuple[InvocationCanister, ...]:
        return tuple(self.deferred.values())

    def defer(self, invocation: InvocationCanister) -> None:
        self.deferred[invocation.identifier] = invocation
        self._waiting.discard(invocation.identifier)

    def take(self, result: ResultCanister) -> bool:
        """Keep a result. Whether it was the last one that was waited for."""
        self._results[result.invocation_id] = self.mark_edited(result)
        self._waiting.discard(result.invocation_id)
        return not self._waiting

    def mark_edited(self, result: ResultCanister) -> ResultCanister:
        """The result, which says so where its call ran with a person's arguments."""
        edited = self.edited.get(result.invocation_id)
        return edited_result(edited, result) if edited else result

    def results(self) -> list[tuple[InvocationCanister, ResultCanister | None]]:
        """Each invocation with its result, None where there is none yet."""
        return [(each, self._results.get(each.identifier)) for each in self.invocations]


def call_key(invocation: InvocationCanister) -> Key:
    """The name and the canonical arguments; the raw text where the arguments are no object."""
    arguments = invocation.arguments
    raw = invocation.raw.encode("utf-8", "surrogatepass") if arguments is None else _encode(arguments)
    return invocation.name, raw

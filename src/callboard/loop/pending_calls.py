"""The invocations of a reply: until each has its result, and as they are read again from a conversation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from callboard.core import AssistantCanister, Canister, InvocationCanister, ResultCanister
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


class CalledTurn(NamedTuple):
    """A reply that called, and the results behind it by the identifiers of their calls; `end` is where they begin.

    An interrupted run may have fewer results than calls: each is kept when it is there, whatever the others do.
    """

    invocations: tuple[InvocationCanister, ...]
    results: dict[str, ResultCanister]
    end: int

    @property
    def pairs(self) -> list[tuple[InvocationCanister, ResultCanister]]:
        """The calls that have a result, with it."""
        return [(each, self.results[each.identifier]) for each in self.invocations if each.identifier in self.results]


def find_called_turns(transcript: Sequence[Canister], begin: int = 0) -> Iterator[CalledTurn]:
    """The replies that called, from the place `begin` of a conversation on."""

    def kind_of(canister: Canister) -> Literal["reply", "result", "else"]:
        if isinstance(canister, (AssistantCanister, InvocationCanister)):
            return "reply"
        return "result" if isinstance(canister, ResultCanister) else "else"

    groups = [(kind, [*canisters]) for kind, canisters in groupby(transcript[begin:], kind_of)]
    place = begin
    for (_, canisters), (following, results) in pairwise([*groups, ("else", [])]):
        place += len(canisters)
        invocations = tuple([each for each in canisters if isinstance(each, InvocationCanister)])
        if invocations:
            behind = [each for each in results if isinstance(each, ResultCanister)] if following == "result" else []
            yield CalledTurn(invocations, {each.invocation_id: each for each in behind}, place)

"""The invocations of a reply until each has its result, and as they are read back from a conversation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from callboard.core import AssistantCanister, Canister, InvocationCanister, ResultCanister
from callboard.tools import edited_result

Key: TypeAlias = tuple[str, bytes]
"""Identity of a call: the tool and its arguments, in any order."""

_encode = msgspec.json.Encoder(order="sorted").encode


class PendingCalls:
    """The calls of a reply: `answered` has the results of calls that do not run. The calls in `questions` wait for a
    person, the results of `deferred` calls come from outside, after the run. The `edited` calls run with a person's
    arguments. `decided` names the calls that a person has decided about before.
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
        """The calls that are executed or answered now, in their order."""
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
        """Add a result. Return whether all results are there now."""
        self._results[result.invocation_id] = self.mark_edited(result)
        self._waiting.discard(result.invocation_id)
        return not self._waiting

    def mark_edited(self, result: ResultCanister) -> ResultCanister:
        """Return the result, with a note if a person edited the arguments of its call."""
        edited = self.edited.get(result.invocation_id)
        return edited_result(edited, result) if edited else result

    def results(self) -> list[tuple[InvocationCanister, ResultCanister | None]]:
        """Return each invocation with its result, or None if it has none yet."""
        return [(each, self._results.get(each.identifier)) for each in self.invocations]


def call_key(invocation: InvocationCanister) -> Key:
    """Return the name and the canonical arguments, or the raw text if the arguments are not an object."""
    arguments = invocation.arguments
    raw = invocation.raw.encode("utf-8", "surrogatepass") if arguments is None else _encode(arguments)
    return invocation.name, raw


class CalledTurn(NamedTuple):
    """A reply that called, and its results by the identifiers of their calls. The results begin at `end`.

    An interrupted run may have fewer results than calls, because each result is saved separately.
    """

    invocations: tuple[InvocationCanister, ...]
    results: dict[str, ResultCanister]
    end: int

    @property
    def pairs(self) -> list[tuple[InvocationCanister, ResultCanister]]:
        """The calls that have a result, with their results."""
        return [(each, self.results[each.identifier]) for each in self.invocations if each.identifier in self.results]


def find_called_turns(transcript: Sequence[Canister], begin: int = 0) -> Iterator[CalledTurn]:
    """Yield the replies that called, from position `begin` of a conversation."""

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

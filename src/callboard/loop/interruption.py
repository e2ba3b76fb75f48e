"""Find in a conversation where an interrupted run stood: the replies that called, and what came of their calls.

The results of the last of them may be fewer than its calls: each is kept when it is there, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from callboard.core import AssistantCanister, Canister, InvocationCanister, ResultCanister


class CalledTurn(NamedTuple):
    """A reply that called, and the results behind it by the identifiers of their calls; `end` is where they begin."""

    invocations: tuple[InvocationCanister, ...]
    results: dict[str, ResultCanister]
    end: int

    @property
    def pairs(self) -> list[tuple[InvocationCanister, ResultCanister]]:
        """The calls that have a result, with it."""
        return [(each, self.results[each.identifier]) for each in self.invocations if each.identifier in self.results]


def find_called_turns(transcript: Sequence[Canister], begin: int = 0) -> Iterator[CalledTurn]:
    """The replies that called, from the place `begin` of a conversation on."""
    groups = [(kind, [*canisters]) for kind, canisters in groupby(transcript[begin:], _kind)]
    place = begin
    for (_, canisters), (following, results) in pairwise([*groups, ("else", [])]):
        place += len(canisters)
        invocations = tuple([each for each in canisters if isinstance(each, InvocationCanister)])
        if invocations:
            behind = [each for each in results if isinstance(each, ResultCanister)] if following == "result" else []
            yield CalledTurn(invocations, {each.invocation_id: each for each in behind}, place)


def _kind(canister: Canister) -> Literal["reply", "result", "else"]:
    if isinstance(canister, (AssistantCanister, InvocationCanister)):
        return "reply"
    return "result" if isinstance(canister, ResultCanister) else "else"

"""A conversation as turns, the way providers want it.

Owns which canisters are one reply and which result belongs to which invocation. Knows no wire.
Law: every invocation has exactly one result, in the order of the calls; constant work a canister.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    DocumentCanister,
    InvocationCanister,
    ResultCanister,
    SupervisorCanister,
    UserCanister,
    contents,
)

NOT_RUN = "No result: the call was not run."
"""What stands where an invocation has no result: providers refuse a call without one."""


class Turn(msgspec.Struct, frozen=True):
    """What the model said in one go: neighbouring assistant and invocation canisters, and a result a call."""

    said: tuple[AssistantCanister, ...]
    invocations: tuple[InvocationCanister, ...]
    results: tuple[ResultCanister, ...]


Step: TypeAlias = Turn | UserCanister | SupervisorCanister | DocumentCanister | ResultCanister
"""A turn, or a canister that is none of one; such a result answers no invocation."""


def turns(canisters: Sequence[Canister]) -> list[Step]:
    """The canisters as steps.

    A result belongs to the last turn before it that asked for its identifier, wherever it stands.
    """
    answers, orphans = pairs(canisters)
    steps: list[Step] = []
    said: list[AssistantCanister] = []
    calls: list[InvocationCanister] = []
    results: list[ResultCanister] = []

    def close() -> None:
        if said or calls:
            steps.append(Turn(tuple(said), tuple(calls), tuple(results)))
            said.clear()
            calls.clear()
            results.clear()

    for place, canister in enumerate(canisters):
        match canister:
            case AssistantCanister():
                said.append(canister)
            case InvocationCanister(identifier=identifier):
                calls.append(canister)
                results.append(answers.get(place) or ResultCanister(contents(NOT_RUN), invocation_id=identifier))
            case ResultCanister():
                close()
                if place in orphans:
                    steps.append(canister)
            case _:
                close()
                steps.append(canister)
    close()
    return steps


def aside(text: str) -> str:
    """Instructions that stand among messages, as a text of the user's: tags tell whose they are."""
    return f"<system>\n{text}\n</system>"


def settled(canisters: Sequence[Canister]) -> int:
    """How many canisters, from the first, are steps that nothing behind them changes.

    Their steps and the steps of the rest are the steps of the whole.
    """
    count = 0
    waiting: dict[str, int] = {}
    left = 0
    for place, canister in enumerate(canisters, 1):
        match canister:
            case AssistantCanister():
                continue
            case InvocationCanister(identifier=identifier):
                waiting[identifier] = waiting.get(identifier, 0) + 1
                left += 1
                continue
            case ResultCanister(invocation_id=identifier) if waiting.get(identifier):
                waiting[identifier] -= 1
                left -= 1
            case _:
                pass
        if not left:
            count = place
    return count


def pairs(canisters: Sequence[Canister]) -> tuple[dict[int, ResultCanister], set[int]]:
    """The result of each invocation by the invocation's place, and the places of results that answer none."""
    answers: dict[int, ResultCanister] = {}
    orphans: set[int] = set()
    turn = 0
    waiting: dict[str, tuple[int, deque[int]]] = {}
    for place, canister in enumerate(canisters):
        match canister:
            case InvocationCanister(identifier=identifier):
                since, places = waiting.get(identifier, (-1, deque()))
                if since != turn:
                    places = deque()
                    waiting[identifier] = (turn, places)
                places.append(place)
            case AssistantCanister():
                pass
            case ResultCanister(invocation_id=identifier):
                turn += 1
                _, places = waiting.get(identifier, (-1, deque()))
                if places:
                    answers[places.popleft()] = canister
                else:
                    orphans.add(place)
            case _:
                turn += 1
    return answers, orphans

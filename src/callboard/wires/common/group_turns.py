"""Group a conversation into turns as providers want them, and put results where they belong.

Clients cut histories and reorder items, but a result belongs to a call before it. So `reorder_results` puts the whole
conversation in order once, where it comes in.

Laws: every invocation has exactly one result, in the order of the calls; constant work a canister. Reordering adds and
removes nothing, and gives a conversation in order back as the very same object.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from callboard import core
from callboard.core import contents

NOT_RUN = "No result: the call was not run."
"""The result of an invocation that has none: providers refuse a call without a result."""
WITHOUT_CALL = "place of a result without a call"
SECOND = "place of a second result of a call"


class Turn(msgspec.Struct):
    """One reply of the model: adjacent assistant and invocation canisters, and a result for each call."""

    reply: list[core.AssistantCanister | core.InvocationCanister] = []
    invocations: list[core.InvocationCanister] = []
    results: list[core.ResultCanister] = []


Step: TypeAlias = Turn | core.UserCanister | core.SupervisorCanister | core.DocumentCanister | core.ResultCanister
"""A turn, or a canister outside of one; such a result answers no invocation."""
_REPLY = (core.InvocationCanister, core.AssistantCanister)


def group_turns(canisters: Sequence[core.Canister]) -> list[Step]:
    """The canisters as steps.

    A result belongs to the last turn before it that asked for its identifier, at any distance.
    """
    answers, orphans = _match_results(canisters)
    steps: list[Step] = []
    turn: Turn | None = None
    for index, canister in enumerate(canisters):
        if isinstance(canister, core.ResultCanister):
            turn = None
            if index in orphans:
                steps.append(canister)
        elif isinstance(canister, _REPLY):
            if turn is None:
                turn = Turn()
                steps.append(turn)
            turn.reply.append(canister)
            if isinstance(canister, core.InvocationCanister):
                turn.invocations.append(canister)
                result = answers.get(index)
                turn.results.append(result or core.ResultCanister(contents(NOT_RUN), invocation_id=canister.identifier))
        else:
            turn = None
            steps.append(canister)
    return steps


def tag_instructions(text: str) -> str:
    """Instructions between messages, as a text of the user with tags that say what they are."""
    return f"<system>\n{text}\n</system>"


def _match_results(canisters: Sequence[core.Canister]) -> tuple[dict[int, core.ResultCanister], set[int]]:
    """The result of each invocation by the invocation's index, and the indices of results that answer none."""
    answers: dict[int, core.ResultCanister] = {}
    orphans: set[int] = set()
    turn_start = 0
    waiting: dict[str, deque[int]] = {}
    for index, canister in enumerate(canisters):
        if isinstance(canister, core.InvocationCanister):
            calls = waiting.get(canister.identifier)
            if not calls or calls[0] < turn_start:
                calls = waiting[canister.identifier] = deque()
            calls.append(index)
        elif isinstance(canister, core.ResultCanister):
            turn_start = index + 1
            if calls := waiting.get(canister.invocation_id):
                answers[calls.popleft()] = canister
            else:
                orphans.add(index)
        elif not isinstance(canister, core.AssistantCanister):
            turn_start = index + 1
    return answers, orphans


def reorder_results(canisters: Sequence[core.Canister]) -> tuple[Sequence[core.Canister], tuple[str, ...]]:
    """Move results that come before their call to the end of that call's turn.

    Args:
        canisters: The whole conversation.

    Returns:
        The conversation, and a name for each result that answers no call: a model reads it as the user's text.
    """
    answers, orphans = _match_results(canisters)
    if not orphans:
        return canisters, ()
    unanswered: dict[str, deque[int]] = defaultdict(deque)
    moved: dict[int, list[core.Canister]] = defaultdict(list)
    for index, canister in enumerate(canisters):
        if isinstance(canister, core.InvocationCanister) and index not in answers:
            unanswered[canister.identifier].append(index)
    removed: set[int] = set()
    for index, canister in enumerate(canisters):
        if index in orphans and isinstance(canister, core.ResultCanister):
            calls = unanswered[canister.invocation_id]
            while calls and calls[0] < index:
                calls.popleft()
            if calls:
                moved[calls.popleft()].append(canister)
                removed.add(index)
    if removed:
        canisters = tuple(_reorder(canisters, moved, removed))
        _, orphans = _match_results(canisters)  # two turns may have become one
    called: set[str] = set()
    unmatched: list[str] = []
    for index, canister in enumerate(canisters):
        if isinstance(canister, core.InvocationCanister):
            called.add(canister.identifier)
        elif index in orphans and isinstance(canister, core.ResultCanister):
            unmatched.append(SECOND if canister.invocation_id in called else WITHOUT_CALL)
    return canisters, tuple(unmatched)


def _reorder(
    canisters: Sequence[core.Canister], moved: dict[int, list[core.Canister]], removed: set[int]
) -> Iterator[core.Canister]:
    """Each moved result after the last canister of its call's turn: earlier, it would split a parallel batch."""
    waiting: list[core.Canister] = []
    for index, canister in enumerate(canisters):
        if index in removed:
            continue
        if waiting and not isinstance(canister, _REPLY):
            yield from waiting
            waiting = []
        yield canister
        waiting += moved.get(index, ())
    yield from waiting

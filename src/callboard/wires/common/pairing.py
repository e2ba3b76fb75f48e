"""Results that a client sent in another place than behind their calls.

`paired` moves a result that stands before its call behind that call's turn, and names what stays without a call.
Clients cut histories and reorder items; the wires, which encode a conversation piece by piece, look only backwards
for the call of a result, so the whole conversation is put in order once, where it comes in.

Laws: nothing is added and nothing is removed; a conversation in order stays the very same object; linear.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from callboard.core import AssistantCanister, Canister, InvocationCanister, ResultCanister
from callboard.wires.common.group_turns import pairs

WITHOUT_CALL = "place of a result without a call"
SECOND = "place of a second result of a call"


def paired(canisters: Sequence[Canister]) -> tuple[Sequence[Canister], tuple[str, ...]]:
    """Put results behind their calls.

    Args:
        canisters: The whole conversation.

    Returns:
        The conversation, and what is told of results that answer no call: a model reads them as the user's text.
    """
    answers, orphans = pairs(canisters)
    if not orphans:
        return canisters, ()
    unanswered: dict[str, deque[int]] = defaultdict(deque)
    called: set[str] = set()
    moved: dict[int, list[Canister]] = defaultdict(list)
    left: list[str] = []
    for place, canister in enumerate(canisters):
        if isinstance(canister, InvocationCanister) and place not in answers:
            unanswered[canister.identifier].append(place)
    gone: set[int] = set()
    for place, canister in enumerate(canisters):
        if isinstance(canister, InvocationCanister):
            called.add(canister.identifier)
        elif place in orphans and isinstance(canister, ResultCanister):
            calls = unanswered[canister.invocation_id]
            while calls and calls[0] < place:
                calls.popleft()
            if calls:
                moved[calls.popleft()].append(canister)
                gone.add(place)
            else:
                left.append(SECOND if canister.invocation_id in called else WITHOUT_CALL)
    return (tuple(_reordered(canisters, moved, gone)) if gone else canisters), tuple(left)


def _reordered(canisters: Sequence[Canister], moved: dict[int, list[Canister]], gone: set[int]) -> Iterator[Canister]:
    """Each moved result behind the last canister of its call's turn: before, it would split a parallel batch."""
    waiting: list[Canister] = []
    for place, canister in enumerate(canisters):
        if place in gone:
            continue
        if waiting and not isinstance(canister, AssistantCanister | InvocationCanister):
            yield from waiting
            waiting = []
        yield canister
        waiting += moved.get(place, ())
    yield from waiting

"""Which canisters are one turn, and which result belongs to which call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    ResultCanister,
    SupervisorCanister,
    UserCanister,
)
from callboard.wires.common.group_turns import NOT_RUN, Turn, count_settled, group_turns


def call(identifier):
    return InvocationCanister(identifier, "f", {})


def result(identifier, text="ok"):
    return ResultCanister(text, invocation_id=identifier)


U, S, T = UserCanister("u"), SupervisorCanister("s"), AssistantCanister("t")


def turn(said=(), calls=(), results=()):
    return Turn(tuple(said), tuple(calls), tuple(results))


@table(
    ("canisters", "steps"),
    [
        ([], []),
        ([S, U, T, U], [S, U, turn([T]), U]),
        (
            [T, call("a"), T, call("b")],
            [turn([T, T], [call("a"), call("b")], [result("a", NOT_RUN), result("b", NOT_RUN)])],
        ),
        (
            [call("a"), call("b"), result("b"), result("a")],
            [turn([], [call("a"), call("b")], [result("a"), result("b")])],
        ),
        (
            [call("a"), result("a"), call("b"), result("b")],
            [turn([], [call("a")], [result("a")]), turn([], [call("b")], [result("b")])],
        ),
        ([call("a"), U, result("a")], [turn([], [call("a")], [result("a")]), U]),
        ([U, result("x"), T], [U, result("x"), turn([T])]),
        ([result("a"), call("a")], [result("a"), turn([], [call("a")], [result("a", NOT_RUN)])]),
        (
            [call("a"), result("a", "1"), result("a", "2")],
            [turn([], [call("a")], [result("a", "1")]), result("a", "2")],
        ),
        (
            [call("a"), U, call("a"), result("a", "2")],
            [turn([], [call("a")], [result("a", NOT_RUN)]), U, turn([], [call("a")], [result("a", "2")])],
        ),
        (
            [call("a"), call("a"), result("a", "1"), result("a", "2")],
            [turn([], [call("a"), call("a")], [result("a", "1"), result("a", "2")])],
        ),
    ],
    ids=[
        "nothing",
        "no calls",
        "neighbours are one turn, missing results are made",
        "results in the order of the calls",
        "a result ends a turn",
        "a late result is moved to its call",
        "a result without its call",
        "a result before its call",
        "a second result",
        "an identifier used again belongs to the last turn",
        "an identifier twice in one turn",
    ],
)
def test_turns(canisters, steps):
    assert group_turns(canisters) == steps


@table(
    ("canisters", "count"),
    [
        ([], 0),
        ([S, U, T], 2),
        ([U, call("a")], 1),
        ([U, call("a"), result("a")], 3),
        ([U, call("a"), call("b"), result("a")], 1),
        ([U, call("a"), U, result("a"), T], 4),
        ([U, result("x"), call("a")], 2),
    ],
)
def test_settled(canisters, count):
    assert count_settled(canisters) == count


conversations = st.lists(
    st.one_of(st.sampled_from([U, S, T]), st.sampled_from("ab").map(call), st.sampled_from("ab").map(result))
)


@given(conversations, conversations)
def test_nothing_behind_a_settled_beginning_changes_its_steps(canisters, more):
    count = count_settled(canisters)
    whole = canisters + more
    assert group_turns(whole[:count]) + group_turns(whole[count:]) == group_turns(whole)

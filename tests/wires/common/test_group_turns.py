"""Which canisters are one turn, and which result belongs to which call."""

from __future__ import annotations

from tests.tables import table

from callboard import core
from callboard.wires.common.group_turns import NOT_RUN, Turn, group_turns


def call(identifier):
    return core.InvocationCanister(identifier, "f", {})


def result(identifier, text="ok"):
    return core.ResultCanister(text, invocation_id=identifier)


U, S, T = core.UserCanister("u"), core.SupervisorCanister("s"), core.AssistantCanister("t")


def turn(reply, results=()):
    return Turn(reply, [each for each in reply if isinstance(each, core.InvocationCanister)], list(results))


@table(
    ("canisters", "steps"),
    [
        ([], []),
        ([S, U, T, U], [S, U, turn([T]), U]),
        (
            [T, call("a"), T, call("b")],
            [turn([T, call("a"), T, call("b")], [result("a", NOT_RUN), result("b", NOT_RUN)])],
        ),
        (
            [call("a"), call("b"), result("b"), result("a")],
            [turn([call("a"), call("b")], [result("a"), result("b")])],
        ),
        (
            [call("a"), result("a"), call("b"), result("b")],
            [turn([call("a")], [result("a")]), turn([call("b")], [result("b")])],
        ),
        ([call("a"), U, result("a")], [turn([call("a")], [result("a")]), U]),
        ([U, result("x"), T], [U, result("x"), turn([T])]),
        ([result("a"), call("a")], [result("a"), turn([call("a")], [result("a", NOT_RUN)])]),
        (
            [call("a"), result("a", "1"), result("a", "2")],
            [turn([call("a")], [result("a", "1")]), result("a", "2")],
        ),
        (
            [call("a"), U, call("a"), result("a", "2")],
            [turn([call("a")], [result("a", NOT_RUN)]), U, turn([call("a")], [result("a", "2")])],
        ),
        (
            [call("a"), call("a"), result("a", "1"), result("a", "2")],
            [turn([call("a"), call("a")], [result("a", "1"), result("a", "2")])],
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

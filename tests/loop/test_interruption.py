"""The replies that called are found with what came of their calls."""

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.loop.pending_calls import find_called_turns


def call(identifier):
    return InvocationCanister(identifier=identifier, name="look", arguments={})


def result(identifier):
    return ResultCanister("seen", invocation_id=identifier)


CONVERSATION = [
    UserCanister("Go."),
    AssistantCanister("I look."),
    call("a"),
    call("b"),
    result("b"),
    result("a"),
    AssistantCanister("Nothing."),
    UserCanister("Again."),
    call("c"),
    call("d"),
    result("d"),
]


def test_a_reply_has_its_calls_and_results_in_the_order_of_the_calls():
    turns = [*find_called_turns(CONVERSATION)]
    assert [[each.identifier for each in turn.invocations] for turn in turns] == [["a", "b"], ["c", "d"]]
    assert [[each.identifier for each, _ in turn.pairs] for turn in turns] == [["a", "b"], ["d"]]
    assert [turn.end for turn in turns] == [4, 10]


def test_turns_are_found_from_a_place_on():
    assert [turn.end for turn in find_called_turns(CONVERSATION, 7)] == [10]


def test_a_reply_without_results_and_a_conversation_without_calls():
    assert [turn.results for turn in find_called_turns([UserCanister("Go."), call("a")])] == [{}]
    assert [*find_called_turns([UserCanister("Go."), AssistantCanister("Hi.")])] == []
    assert [*find_called_turns([])] == []

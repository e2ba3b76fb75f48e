"""Results that a client sent in another place than behind their calls."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.wires.common.group_turns import NOT_RUN, SECOND, WITHOUT_CALL, Turn, group_turns, reorder_results


def call(identifier):
    return InvocationCanister(identifier, "f", {})


def result(identifier, text="ok"):
    return ResultCanister(text, invocation_id=identifier)


U, T = UserCanister("u"), AssistantCanister("t")


@table(
    ("canisters", "ordered", "told"),
    [
        ([result("a"), call("a"), T], [call("a"), T, result("a")], ()),
        ([U, result("a"), call("a"), call("b"), result("b")], [U, call("a"), call("b"), result("a"), result("b")], ()),
        ([result("a"), U, call("a"), U], [U, call("a"), result("a"), U], ()),
        (
            [result("a", "1"), result("a", "2"), call("a")],
            [result("a", "2"), call("a"), result("a", "1")],
            (WITHOUT_CALL,),
        ),
        (
            [result("a", "1"), call("a"), result("a", "2")],
            [result("a", "1"), call("a"), result("a", "2")],
            (WITHOUT_CALL,),
        ),
        (
            [call("a"), result("a", "1"), U, result("a", "2")],
            [call("a"), result("a", "1"), U, result("a", "2")],
            (SECOND,),
        ),
    ],
    ids=["before", "in a batch", "before what the user said", "two before", "the one behind counts", "a second one"],
)
def test_a_result_stands_behind_its_call(canisters, ordered, told):
    assert [*reorder_results(canisters)[0]] == ordered
    assert reorder_results(canisters)[1] == told


conversations = st.lists(
    st.one_of(st.sampled_from([U, T]), st.sampled_from("abc").map(call), st.sampled_from("abc").map(result))
)


@example([call("b"), result("a"), call("a"), call("b"), result("b"), result("b")])
@given(conversations)
def test_nothing_is_added_or_lost_and_no_result_is_told_without_need(canisters):
    ordered, told = reorder_results(canisters)
    assert Counter(map(id, ordered)) == Counter(map(id, canisters))
    assert [each for each in ordered if not isinstance(each, ResultCanister)] == [
        each for each in canisters if not isinstance(each, ResultCanister)
    ]
    steps = group_turns(ordered)
    assert len(told) == sum(isinstance(step, ResultCanister) for step in steps)
    assert reorder_results(ordered) == (ordered, told)


@given(conversations)
def test_a_conversation_in_order_stays_the_same_object(canisters):
    ordered = []
    for step in group_turns(canisters):
        if isinstance(step, Turn):
            ordered += [
                *[each for each in step.reply if each not in step.invocations],
                *step.invocations,
                *step.results,
            ]
        elif not isinstance(step, ResultCanister):
            ordered.append(step)
    assert reorder_results(ordered)[0] is ordered


@given(st.permutations([call("a"), call("b"), result("a", "1"), result("b", "2")]))
def test_any_order_of_calls_and_outputs_is_paired(items):
    ordered, told = reorder_results([U, *items])
    results = {
        text for step in group_turns(ordered) if isinstance(step, Turn) for text in [each.text for each in step.results]
    }
    assert (results, told) == ({"1", "2"}, ())
    assert NOT_RUN not in results

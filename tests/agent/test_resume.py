"""Calls that wait are decided later, and run then."""

import asyncio
import json

import pytest
from tests.tables import table

from callboard import Agent, Limits, core, tool
from callboard.agent.resume import find_waiting_calls
from callboard.errors import CallerError
from callboard.testing import Call, ScriptedModel
from callboard.tools import Invoker, Policy


class Desk:
    """An agent that books rooms, which wants approval, and what it booked."""

    def __init__(self, replies=("Done.",), **options):
        self.booked = []

        @tool(approval=True)
        def book(room: int) -> str:
            """Book a room."""
            self.booked.append(room)
            return f"booked {room}"

        @tool
        def add(a: int, b: int) -> int:
            return a + b

        self.model = ScriptedModel(replies)
        self.tools = [book, add]
        self.agent = Agent(self.model, self.tools, **options)


def waiting(*rooms):
    """The canisters of a run that ended with calls that wait, as another process reads them."""
    calls = [Call("book", {"room": room}, identifier=f"c{room}") for room in rooms]
    desk = Desk([[*calls, Call("add", {"a": 1, "b": 2}, identifier="sum")]], approve=lambda *_: "defer")
    result = desk.agent.run_sync("Book.")
    assert (result.state, desk.booked, len(result.pending)) == ("pending", [], len(rooms))
    return [core.decode_canister(core.encode_line(each)) for each in result.canisters]


def results_by_call(result):
    return {each.invocation_id: each.text for each in result.canisters if isinstance(each, core.ResultCanister)}


@table("answer", ["allow", True, core.Allow(), core.Allow({"room": 7})])
def test_an_approval_that_is_granted_later_runs_the_tool(answer):
    desk = Desk()
    result = desk.agent.run_sync(history=waiting(7), approvals={"c7": answer})
    assert desk.booked == [7]
    assert result.output == "Done."
    assert results_by_call(result) == {"c7": "booked 7"}
    assert [each.text for each in desk.model.requests[0].canisters[-2:]] == ["3", "booked 7"]


@table(("answer", "why"), [("deny", "the answer was no"), (False, "the answer was no"), (core.Deny("full"), "full")])
def test_a_denial_later_is_told_with_its_reason(answer, why):
    desk = Desk()
    result = desk.agent.run_sync(history=waiting(7), approvals={"c7": answer})
    assert desk.booked == []
    assert results_by_call(result) == {"c7": f"Error: book may not run: {why}"}


def test_edited_arguments_run_later_and_the_model_reads_them():
    desk = Desk()
    result = desk.agent.run_sync(history=waiting(7), approvals={"c7": core.Allow({"room": 8})})
    assert desk.booked == [8]
    assert results_by_call(result) == {
        "c7": 'The arguments of this call were edited before it ran: {"room":8}\nbooked 8'
    }


def test_the_events_of_a_resumed_run_begin_with_the_decisions():
    desk = Desk()
    run = desk.agent.stream(history=waiting(7, 8), approvals={"c8": "deny", "c7": "allow"})

    async def follow():
        return [event async for event in run]

    events = asyncio.run(follow())
    heads = [
        event for event in events if isinstance(event, (core.ApprovalAnswered, core.ResultReady, core.RoundStarted))
    ]
    assert [type(each) for each in heads] == [core.ApprovalAnswered] * 2 + [core.ResultReady] * 2 + [core.RoundStarted]
    assert [each.canister.invocation_id for each in heads[2:4]] == ["c7", "c8"]


def test_decisions_results_and_silence_stand_beside_each_other():
    desk = Desk()
    result = desk.agent.run_sync(
        history=waiting(7, 8, 9), approvals={"c7": "allow"}, results={"c8": core.ToolError("execution", "no such room")}
    )
    assert desk.booked == [7]
    assert results_by_call(result) == {
        "c7": "booked 7",
        "c8": "Error: no such room",
        "c9": "Error: no result was given",
    }


def test_a_call_that_is_deferred_again_waits_on():
    desk = Desk()
    history = waiting(7, 8)
    result = desk.agent.run_sync(history=history, approvals={"c7": "allow", "c8": "defer"})
    assert (result.state, [each.identifier for each in result.pending]) == ("pending", ["c8"])
    again = desk.agent.run_sync(history=[*history, *result.canisters], approvals={"c8": "allow"})
    assert desk.booked == [7, 8]
    assert again.output == "Done."


def test_what_the_user_says_next_stands_behind_the_results():
    desk = Desk()
    result = desk.agent.run_sync("And breakfast.", history=waiting(7), approvals={"c7": "allow"})
    assert [type(each) for each in result.canisters[:2]] == [core.ResultCanister, core.UserCanister]
    assert desk.model.requests[0].canisters[-1].text == "And breakfast."


def test_a_resumed_call_counts_and_is_bounded():
    desk = Desk(limits=Limits(calls=1))
    result = desk.agent.run_sync(history=waiting(7), approvals={"c7": "allow"})
    assert result.why == "no answer within 1 calls"


# It fails closed.


def test_a_call_that_the_rules_deny_by_now_does_not_run():
    desk = Desk(policy=Policy([("book", "deny")]))
    result = desk.agent.run_sync(history=waiting(7), approvals={"c7": "allow"})
    assert desk.booked == []
    assert results_by_call(result) == {"c7": "Error: book may not run: the rule 'book' says deny"}


def test_a_call_that_does_not_fit_its_tool_by_now_does_not_run():
    desk = Desk()
    history = [core.UserCanister("Book."), core.InvocationCanister("c7", "book", {"rom": 7}, "")]
    result = desk.agent.run_sync(history=history, approvals={"c7": "allow"})
    assert desk.booked == []
    assert result.canisters[0].error.category == "validation"


def test_a_tool_that_is_gone_by_now_is_told():
    result = Agent(ScriptedModel(["Done."])).run_sync(history=waiting(7), approvals={"c7": "allow"})
    assert result.canisters[0].error.category == "not_found"


@table(
    ("approvals", "results", "message"),
    [
        ({"c8": "allow"}, {}, "^c8: no call waits for this approval; there wait c7"),
        ({"sum": "allow"}, {}, "^sum: no call waits for this approval"),
        ({"c7": "allow"}, {"c7": "booked"}, r"^approvals\.c7: the call is decided twice"),
        ({"c7": "yes"}, {}, r"^approvals\.c7: the approval answered 'yes', which is neither"),
        ({"c7": None}, {}, r"^approvals\.c7: the approval answered None"),
        ({"c7": 1}, {}, r"^approvals\.c7: the approval answered 1"),
        ({"c7": {"room": 8}}, {}, r"^approvals\.c7: the approval answered a dict"),
        ({"c7": core.Allow}, {}, r"^approvals\.c7: "),
        ({"c7": core.Allow({"room": "big"})}, {}, r"^approvals\.c7: the arguments of book were edited, and do not fit"),
        ({"c7": core.Allow("8")}, {}, r"^approvals\.c7: the edited arguments are '8', not a mapping"),
    ],
)
def test_a_decision_that_cannot_be_meant_is_refused_before_anything_runs(approvals, results, message):
    desk = Desk()
    with pytest.raises(CallerError, match=message):
        desk.agent.run_sync(history=waiting(7), approvals=approvals, results=results)
    assert (desk.booked, desk.model.requests) == ([], [])


def test_edited_arguments_that_a_rule_denies_are_refused():
    class NotEight(Policy):
        def decide(self, _invoker, arguments):
            return ("deny" if arguments["room"] == 8 else "ask"), "8 is no room"

    desk = Desk(policy=NotEight())
    with pytest.raises(CallerError, match=r"^approvals\.c7: book may not run: its arguments were edited, and 8 is no"):
        desk.agent.run_sync(history=waiting(7), approvals={"c7": core.Allow({"room": 8})})
    assert desk.booked == []


def test_a_decision_about_one_of_two_calls_of_an_identifier_is_refused():
    twice = [core.InvocationCanister("c", "book", {"room": room}, json.dumps({"room": room})) for room in (7, 8)]
    desk = Desk()
    with pytest.raises(CallerError, match=r"^approvals\.c: several calls of this identifier wait"):
        desk.agent.run_sync(history=[core.UserCanister("Book."), *twice], approvals={"c": "allow"})
    assert desk.booked == []


def test_no_call_waits_in_a_history_that_is_whole():
    with pytest.raises(CallerError, match="no call of the history waits"):
        Desk().agent.run_sync(history=[core.UserCanister("Hi")], approvals={"c7": "allow"})


def test_a_prompt_does_not_follow_a_call_that_still_waits():
    desk = Desk()
    with pytest.raises(CallerError, match="a prompt cannot follow a call that still waits"):
        desk.agent.run_sync("And?", history=waiting(7), approvals={"c7": "defer"})
    outside = Agent(desk.model, [Invoker.of(desk.tools[0]).replace(deferred=True)])
    with pytest.raises(CallerError, match="a prompt cannot follow a call that still waits"):
        outside.run_sync("And?", history=waiting(7), approvals={"c7": "allow"})


def test_a_call_whose_result_comes_from_outside_waits_for_it_when_it_is_allowed():
    desk = Desk()
    outside = Agent(desk.model, [Invoker.of(desk.tools[0]).replace(deferred=True)])
    result = outside.run_sync(history=waiting(7), approvals={"c7": "allow"})
    assert (result.state, [each.identifier for each in result.pending]) == ("pending", ["c7"])


def test_a_resumed_run_that_is_cancelled_keeps_what_the_user_said():
    history = waiting(7)

    async def scenario():
        begun = asyncio.Event()

        @tool(approval=True)
        async def book(room: int) -> str:
            begun.set()
            await asyncio.Event().wait()
            return f"booked {room}"

        run = Agent(ScriptedModel([]), [book]).stream("And?", history=history, approvals={"c7": "allow"})

        async def follow():
            async for _ in run:
                pass

        task = asyncio.create_task(follow())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return run.result

    result = asyncio.run(scenario())
    assert result.state == "cancelled"
    assert results_by_call(result) == {"c7": "Error: the run was cancelled"}
    assert result.canisters[-1].text == "And?"


def test_calls_that_wait_are_found_in_their_order():
    history = [
        core.InvocationCanister("a", "f", {}),
        core.InvocationCanister("b", "f", {}),
        core.InvocationCanister("c", "f", {}),
    ]
    results = [core.ResultCanister(invocation_id="b", content="x"), core.InvocationCanister("b", "g", {})]
    assert [(each.identifier, each.name) for each in find_waiting_calls([*history, *results])] == [
        ("a", "f"), ("c", "f"), ("b", "g"),
    ]  # fmt: skip

"""A conversation is handed to another agent."""

import pytest
from tests.agent.runs import follow, instructions_of, result_texts

from callboard import Agent, Context, Limits, core, tool
from callboard.testing import Call, ScriptedModel
from callboard.tools import Ensemble, Invoker, Policy

GO = Call("transfer_to_billing")


@tool
def look(context: Context) -> str:
    return str(dict(context.auxdata))


@tool
def refund(amount: int) -> str:
    return f"refunded {amount}"


def billing(replies, **options):
    return Agent(ScriptedModel(replies), [refund], instructions="You do the billing.", **options)


def triage(replies, other, **options):
    tools = [look, other.as_handoff("billing", "Answers questions about invoices.")]
    return Agent(ScriptedModel(replies), tools, **{"instructions": "You sort.", **options})


def test_the_other_agent_goes_on_in_the_same_conversation():
    other = billing([Call("refund", {"amount": 5}), "You have 5 back."])
    agent = triage([["Let me see.", GO]], other)
    run = agent.stream("I want 5 back.")
    events = follow(run)
    result = run.result
    assert result.output == "You have 5 back."
    assert result.agent is run.agent is other
    assert [each for each in events if isinstance(each, core.HandedOver)] == [core.HandedOver("billing")]
    assert core.decode_event(core.encode_line(core.HandedOver("billing"))) == core.HandedOver("billing")
    assert result_texts(result) == ["The conversation is with billing now.", "refunded 5"]
    request = other.model.requests[0]
    assert instructions_of(request) == ["You do the billing."]
    assert [each.name for each in request.tools] == ["refund"]
    assert [each.text for each in request.canisters if isinstance(each, core.UserCanister)] == ["I want 5 back."]
    assert instructions_of(agent.model.requests[0]) == ["You sort."]
    assert result.rounds == 3


def test_the_agent_that_had_the_conversation_last_goes_on_with_it():
    other = billing(["Here.", "Gladly."])
    first = triage([GO], other).run_sync("?")
    assert first.agent is other
    second = other.run_sync("More.", history=first.canisters)
    assert second.output == "Gladly."
    assert instructions_of(other.model.requests[1]) == ["You do the billing."]


def test_an_agent_without_instructions_is_not_given_those_of_the_other():
    other = Agent(ScriptedModel(["Hello."]))
    triage([GO], other).run_sync("?")
    assert instructions_of(other.model.requests[0]) == []


def test_the_output_is_of_the_type_of_the_last_agent():
    other = billing(['{"answer": "five"}', '{"answer": 5}'], output=int)
    result = triage([GO], other).run_sync("?")
    assert result.output == 5
    assert "valid integer" in other.model.requests[1].canisters[-1].text


def test_auxdata_and_what_a_run_was_given_go_along():
    seen = []

    @tool
    def peek(context: Context) -> str:
        seen.append(dict(context.auxdata))
        return "peeked"

    other = Agent(ScriptedModel([Call("peek"), "Done."]), [peek], auxdata={"a": 1, "b": 1})
    triage([GO], other, auxdata={"b": 2}).run_sync("?", auxdata={"c": 3})
    assert seen == [{"a": 1, "b": 2, "c": 3}]


def test_what_one_run_was_given_instead_is_the_first_agents():
    other = billing(["Done."])
    model = ScriptedModel([GO])
    triage([], other).run_sync("?", model=model, instructions="Sort at once.", tool_choice="required")
    assert instructions_of(model.requests[0]) == ["Sort at once."]
    assert instructions_of(other.model.requests[0]) == ["You do the billing."]
    assert other.model.requests[0].tool_choice == "auto"


def test_the_other_agents_choice_of_a_tool_holds_until_it_has_called():
    other = billing([Call("refund", {"amount": 5}), "Done."], tool_choice=core.NamedTool("refund"))
    triage([GO], other).run_sync("?")
    assert [each.tool_choice for each in other.model.requests] == [core.NamedTool("refund"), "auto"]


def circle(replies, back, **options):
    """Two agents that hand the conversation to and fro."""
    desk = Ensemble("desk", [look])
    first = Agent(ScriptedModel(replies), ensembles=[desk], instructions="First.", **options)
    second = Agent(ScriptedModel(back), [first.as_handoff("first", "The first.")], instructions="Second.")
    desk.add_invoker(second.as_handoff("second", "The second."))
    return first, second


def test_a_conversation_that_is_handed_back_is_with_the_first_agent_again():
    first, second = circle([Call("transfer_to_second"), "Mine."], [Call("transfer_to_first")])
    run = first.stream("?", instructions="Of the run.")
    events = follow(run)
    assert [each.agent for each in events if isinstance(each, core.HandedOver)] == ["second", "first"]
    assert (run.result.output, run.result.agent) == ("Mine.", first)
    assert [instructions_of(each) for each in first.model.requests] == [["Of the run."]] * 2
    assert second.model.requests[0].tools[0].name == "transfer_to_first"


def test_a_conversation_that_is_handed_round_for_ever_ends_at_the_limit():
    to, fro = Call("transfer_to_second"), Call("transfer_to_first")
    first, _ = circle([to] * 3, [fro] * 3, limits=Limits(rounds=5))
    result = first.run_sync("?")
    assert (result.state, result.rounds) == ("incomplete", 6)
    assert result.why == "no answer within 5 rounds"


def test_usage_and_cost_are_of_all_agents_and_by_the_prices_of_each():
    def model(*replies, price):
        profile = {"prices": {"input": price, "output": 0.0}}
        return ScriptedModel([[core.Usage(1_000_000, 10), each] for each in replies], profile=profile)

    other = Agent(model("Done.", price=3.0))
    first = Agent(model(GO, price=2.0), [other.as_handoff("billing", "Bills.")])
    result = first.run_sync("?")
    assert result.usage == core.Usage(2_000_000, 20)
    assert result.cost == pytest.approx(5.0)


def test_only_the_first_handoff_of_a_reply_counts():
    other, third = billing(["Done."]), Agent(ScriptedModel([]))
    tools = [other.as_handoff("billing", "Bills."), third.as_handoff("third", "Third."), look]
    result = Agent(ScriptedModel([[Call("look"), GO, Call("transfer_to_third")]]), tools).run_sync("?")
    assert result.agent is other
    assert result_texts(result)[2].startswith("Error: the conversation was not handed over: another handoff")


def test_a_conversation_is_not_handed_over_while_calls_of_the_reply_wait():
    other = billing([])
    tools = [other.as_handoff("billing", "Bills."), Invoker.of(refund).replace(deferred=True)]
    agent = Agent(ScriptedModel([[GO, Call("refund", {"amount": 5})]]), tools)
    result = agent.run_sync("?")
    assert (result.state, result.agent) == ("pending", agent)
    assert result_texts(result)[0].startswith(
        "Error: the conversation was not handed over: calls of the same reply wait"
    )


def test_a_handoff_that_is_denied_does_not_happen():
    other = billing([])
    agent = triage([GO, "I stay."], other, policy=Policy([("transfer_to_*", "deny")]))
    result = agent.run_sync("?")
    assert (result.output, result.agent) == ("I stay.", agent)


def test_a_handoff_that_a_hook_answers_with_an_error_does_not_happen():
    def before(invocation):
        return core.error_result(invocation.identifier, "permission", "not now")

    agent = triage([GO, "I stay."], billing([]), before_call=before)
    assert agent.run_sync("?").agent is agent


def test_who_is_asked_follows_the_conversation():
    asked = []

    def asking(name):
        return lambda invocation, _why: asked.append((name, invocation.name)) or True

    def run(own, of_run):
        asked.clear()
        refunds = Call("refund", {"amount": 1})
        other = billing([refunds, "Done."], policy=Policy([("refund", "ask")]), approve=own)
        triage([GO], other, approve=asking("first")).run_sync("?", approve=of_run)
        return asked

    assert run(None, None) == [("first", "refund")]
    assert run(asking("own"), None) == [("own", "refund")]
    assert run(asking("own"), asking("run")) == [("run", "refund")]


def test_the_last_reply_of_a_model_that_answers_after_results_is_not_the_other_agents():
    other = billing([Call("refund", {"amount": 5}), "Done."])
    result = triage([GO], other, answer_after="results").run_sync("?")
    assert result.output == "Done."


def test_a_handoff_of_a_resumed_run_takes_place():
    other = billing(["Done."])
    agent = triage([GO], other, policy=Policy([("transfer_to_*", "ask")]), approve=lambda *_: "defer")
    first = agent.run_sync("?")
    assert first.state == "pending"
    second = agent.run_sync(history=first.canisters, approvals={first.pending[0].identifier: "allow"})
    assert (second.output, second.agent) == ("Done.", other)


def test_a_conversation_that_is_rolled_back_is_with_the_first_agent_again():
    @tool
    def fail() -> str:
        raise ValueError("no luck")

    other = Agent(ScriptedModel([Call("fail")]), [fail], on_error="fail_fast")
    agent = triage([GO], other)
    run = agent.stream("?")
    follow(run)
    assert (run.result.state, run.result.agent, run.result.canisters) == ("failed", agent, ())

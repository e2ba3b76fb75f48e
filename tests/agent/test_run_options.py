"""What one run is given besides its prompt, in the place of what its agent has."""

import asyncio

import pytest
from tests.agent.runs import add, instructions_of
from tests.tables import table

from callboard import Agent, Context, Limits, tool
from callboard.core import Controls, NamedTool, SupervisorCanister, UserCanister
from callboard.errors import CallerError
from callboard.testing import Call, ScriptedModel
from callboard.tools import Ensemble

SUM = Call("add", {"a": 1, "b": 2})


# The model.


def test_one_run_asks_another_model():
    own, other = ScriptedModel(["own"]), ScriptedModel(["other"])
    agent = Agent(own)
    assert agent.run_sync("?", model=other).output == "other"
    assert agent.run_sync("?").output == "own"
    assert len(own.requests) == len(other.requests) == 1


def test_a_model_by_name_is_closed_when_its_run_has_ended(monkeypatch):
    class Closing(ScriptedModel):
        closed = False

        async def aclose(self):
            self.closed = True

    made = []

    def access(_name):
        made.append(Closing(["hello"]))
        return made[0]

    monkeypatch.setattr("callboard.agent.agent.open_model", access)
    assert Agent(ScriptedModel([])).run_sync("?", model="openai:gpt-4o").output == "hello"
    assert made[0].closed


# Instructions.


def later(function):
    async def instruct(context):
        return function(context)

    return instruct


@table("wrap", [lambda function: function, later])
def test_instructions_are_a_function_of_the_context(wrap):
    model = ScriptedModel(["1", "2"])
    agent = Agent(
        model, instructions=wrap(lambda context: f"Speak {context.auxdata['tongue']}."), auxdata={"tongue": "Dutch"}
    )
    first = agent.run_sync("?")
    assert isinstance(first.canisters[0], SupervisorCanister)
    agent.run_sync("?", history=first.canisters, auxdata={"tongue": "Norse"})
    assert [instructions_of(request) for request in model.requests] == [["Speak Dutch."], ["Speak Norse."]]


def test_the_instructions_of_a_run_stand_in_the_place_of_all_others():
    model = ScriptedModel(["1"])
    history = [SupervisorCanister("Written by the caller."), UserCanister("Hi")]
    result = Agent(model, instructions="The agent's.").run_sync("?", history=history, instructions="The run's.")
    assert instructions_of(model.requests[0]) == ["The run's."]
    assert result.canisters[0] == UserCanister("?")


def test_instructions_that_a_caller_wrote_into_the_history_stay():
    model = ScriptedModel(["1"])
    Agent(model, instructions="The agent's.").run_sync("?", history=[SupervisorCanister("The caller's.")])
    assert instructions_of(model.requests[0]) == ["The caller's."]


def test_another_agent_that_goes_on_with_a_conversation_has_its_own_instructions():
    first = Agent(ScriptedModel(["1"]), instructions="Be brief.").run_sync("?")
    model = ScriptedModel(["2", "3"])
    Agent(model, instructions="Be long.").run_sync("?", history=first.canisters)
    Agent(model).run_sync("?", history=first.canisters)
    assert [instructions_of(request) for request in model.requests] == [["Be long."], ["Be brief."]]


def test_a_typed_output_is_asked_for_beside_a_runs_own_instructions():
    model = ScriptedModel(['{"answer": 3}'])
    assert Agent(model, output=int).run_sync("?", instructions="Count.").output == 3
    assert instructions_of(model.requests[0])[0].startswith("Count.\n\nWhen you are done, answer with one JSON object")


@table("value", [None, 3, ["Be brief."]])
def test_a_function_that_gives_no_instructions_is_told(value):
    with pytest.raises(CallerError, match=r"^instructions: the function gave a "):
        Agent(ScriptedModel(["1"]), instructions=lambda _: value).run_sync("?")


def test_instructions_that_fail_end_the_run():
    def fail(_context):
        raise KeyError("tongue")

    with pytest.raises(KeyError):
        Agent(ScriptedModel(["1"]), instructions=fail).run_sync("?")


# Limits and controls.


def test_one_run_has_other_limits():
    model = ScriptedModel([SUM, "one", SUM, "two"])
    agent = Agent(model, [add], limits=Limits(rounds=5))
    assert agent.run_sync("?", limits=Limits(rounds=1)).why == "no answer within 1 rounds"
    assert agent.run_sync("?").state == "completed"


def test_what_a_run_sets_of_the_controls_stands_beside_the_agents():
    model = ScriptedModel(["1", "2"])
    agent = Agent(model, controls=Controls(temperature=0.5, max_tokens=10))
    agent.run_sync("?", controls=Controls(temperature=0.0, stop=("END",)))
    agent.run_sync("?")
    assert model.requests[0].controls == Controls(temperature=0.0, max_tokens=10, stop=("END",))
    assert model.requests[1].controls == Controls(temperature=0.5, max_tokens=10)


# The choice of a tool.


@table("choice", ["required", NamedTool("add")])
@table("of_run", [False, True])
def test_who_is_made_to_call_and_has_called_is_free_to_answer(choice, of_run):
    model = ScriptedModel([SUM, SUM, "3"])
    agent = Agent(model, [add], tool_choice="auto" if of_run else choice)
    agent.run_sync("?", **({"tool_choice": choice} if of_run else {}))
    assert [request.tool_choice for request in model.requests][:2] == [choice, "auto"]
    assert model.requests[-1].tool_choice in ("auto", "none")


def test_none_forbids_calls_for_the_whole_run():
    model = ScriptedModel(["no"])
    Agent(model, [add]).run_sync("?", tool_choice="none")
    assert model.requests[0].tool_choice == "none"


@table(
    ("choice", "tools", "message"),
    [
        (NamedTool("ad"), [add], "tool_choice: no tool 'ad'; did you mean 'add'"),
        ("required", [], "tool_choice: there is no tool that could be called"),
        ("requird", [add], "tool_choice: a str is not valid; give 'auto', 'none', 'required' or NamedTool"),
        ("add", [add], "tool_choice: a str is not valid"),
    ],
)
def test_the_choice_of_a_tool_that_is_not_there_is_refused(choice, tools, message):
    with pytest.raises(CallerError, match=f"^{message}"):
        Agent(ScriptedModel(["1"]), tools).run_sync("?", tool_choice=choice)


# What is no option.


@table(
    ("name", "value"),
    [
        ("model", 3),
        ("instructions", 3),
        ("instructions", ["Be brief."]),
        ("limits", {"rounds": 1}),
        ("controls", {"temperature": 1}),
        ("controls", Controls(temperature="hot")),
        ("controls", Controls(max_tokens=-1)),
        ("tool_choice", []),
        ("auxdata", [1]),
        ("approve", "allow"),
        ("results", [1]),
        ("approvals", ["allow"]),
        ("context", {"auxdata": {}}),
    ],
)
def test_what_a_run_cannot_be_given_is_refused_by_its_name(name, value):
    with pytest.raises(CallerError, match=f"^{name}"):
        Agent(ScriptedModel(["1"])).stream("?", **{name: value})


@table("bound", ["3", float("nan"), [1], True])
def test_a_limit_that_is_no_number_is_refused(bound):
    with pytest.raises(CallerError, match=r"^limits\.rounds: "):
        Limits(rounds=bound)


def test_the_context_of_no_run_gives_its_auxdata():
    seen = []

    @tool
    def look(context: Context) -> str:
        seen.append(dict(context.auxdata))
        return "looked"

    agent = Agent(ScriptedModel([Call("look"), "done"]), ensembles=[Ensemble("eyes", [look])], auxdata={"a": 1, "b": 1})
    asyncio.run(agent.run("?", context=Context({"b": 2, "c": 2}), auxdata={"c": 3}))
    assert seen == [{"a": 1, "b": 2, "c": 3}]

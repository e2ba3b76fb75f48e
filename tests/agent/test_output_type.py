"""What a run's output is: text or a value of a type, checked, and asked for again where it is wrong."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal, Never

import pytest
from tests.agent.runs import follow, multiply
from tests.tables import table

from callboard import Agent, Limits, core
from callboard.errors import CallerError, NoOutput
from callboard.testing import Call, FakeBackend, ScriptedModel
from callboard.tools import Invoker


@dataclass
class Weather:
    city: str
    degrees: float
    sky: Literal["clear", "grey"] = "clear"


@dataclass
class Point:
    answer: int


@dataclass
class Tree:
    """A type that refers to itself."""

    name: str
    children: "list[Tree]" = field(default_factory=list)


@table(
    ("kind", "said", "output"),
    [
        (Weather, 'Here:\n```json\n{"city": "Oslo", "degrees": "3.5"}\n```', Weather("Oslo", 3.5)),
        (int, '{"answer": 42}', 42),
        (list[str], '{"answer": ["a", "b"]}', ["a", "b"]),
        (list[str], '["a", "b"]', ["a", "b"]),
        (int, " 42\n", 42),
        (bool, "true", True),
        (int | None, "null", None),
        (str, "plain words", "plain words"),
        (int, "5", 5),
        (int, " 5\n", 5),
        (int, '"5"', 5),
        (int, "```json\n5\n```", 5),
        (float, "<think>Half of it.</think>\n0.5", 0.5),
        (list[str], '["a"]', ["a"]),
        (list[str], "[]", []),
        (list[str], 'Here they are: ["a", "b"]', ["a", "b"]),
        (Literal["red", "green"], '"red"', "red"),
        (Weather | Point, '{"city": "Oslo", "degrees": 3.5}', Weather("Oslo", 3.5)),
        (Weather | Point, '{"answer": {"city": "Oslo", "degrees": 3.5}}', Weather("Oslo", 3.5)),
        (Weather | Point, '{"answer": 1}', Point(1)),
        (Any, '{"answer": 5}', 5),
        (Tree, '{"name": "a", "children": [{"name": "b"}]}', Tree("a", [Tree("b", [])])),
        (list[Tree], '{"answer": [{"name": "b"}]}', [Tree("b", [])]),
    ],
)
def test_the_output_has_the_type_that_was_asked_for(kind, said, output):
    model = ScriptedModel([said])
    assert Agent(model, output=kind).run_sync("?").output == output


@table(
    ("kind", "said", "wrong"),
    [
        (list[str], "5", "answer\n  Input should be a valid"),
        (int, '["a"]', "answer\n  Input should be a valid integer"),
        (int, "null", "answer\n  Input should be a valid integer"),
        (int, '{"answer": "x"}', "answer\n  Input should be a valid integer"),
        (int, "It is 5.", "answer\n  Input should be a valid integer"),
    ],
)
def test_a_value_that_does_not_validate_is_told(kind, said, wrong):
    model = ScriptedModel([said, said])
    result = Agent(model, output=kind).run_sync("?")
    assert result.state == "incomplete"
    assert wrong in result.why


def test_a_wrong_output_is_told_and_mended():
    model = ScriptedModel(['{"city": "Oslo"}', '{"city": "Oslo", "degrees": 3}'])
    result = Agent(model, output=Weather).run_sync("?")
    assert result.output == Weather("Oslo", 3.0)
    assert "degrees\n  Field required" in model.requests[1].canisters[-1].text


def test_words_are_no_null():
    assert Agent(ScriptedModel(["no", '{"answer": 3}']), output=int | None).run_sync("?").output == 3


def test_an_output_that_stays_wrong_leaves_the_run_incomplete():
    result = Agent(ScriptedModel(["no", "no"]), output=Weather).run_sync("?")
    assert (result.state, result.text) == ("incomplete", "no")
    assert "Input should be" in result.why


@table("kind", [{"type": "object"}, None, 3, "Weather", [int], Weather("Oslo", 3), len, type, Never, (int, str), ...])
def test_an_output_that_is_no_type_is_the_callers_mistake(kind):
    with pytest.raises(CallerError, match=r"^output: .*; give a type that JSON can say") as raised:
        Agent(ScriptedModel([]), output=kind)
    assert type(raised.value) is CallerError


@table("kind", [str, Weather])
@table(
    ("script", "state", "why", "text"),
    [
        ([[core.TextPiece("Hel"), core.ReplyEnded("length")]], "incomplete", "its length limit", "Hel"),
        (
            [[core.TextPiece("Let me. "), Call("multiply", {"a": 6, "b": 7})]],
            "pending",
            "1 call waits",
            "",
        ),
    ],
)
def test_the_output_of_a_run_that_did_not_complete_raises_its_state_and_reason(kind, script, state, why, text):
    result = Agent(ScriptedModel(script), [Invoker.of(multiply).replace(deferred=True)], output=kind).run_sync("?")
    with pytest.raises(NoOutput, match=f"it is {state}: .*{why}") as raised:
        _ = result.output
    assert (raised.value.state, raised.value.why, result.text) == (state, result.why, text)


def test_the_result_of_a_run_that_is_under_way_cannot_be_read():
    run = Agent(ScriptedModel(["Hello."])).stream("?")
    assert not run.ended
    with pytest.raises(CallerError, match="the run is not over"):
        _ = run.result
    follow(run)
    assert (run.ended, run.result.output) == (True, "Hello.")


def test_the_model_is_told_the_schema_and_held_to_it_where_that_can_be():
    async def scenario(profile):
        async with FakeBackend(['{"answer": 3}']) as backend:
            agent = Agent("m", output=int, base_url=backend.url, profile=profile)
            assert (await agent.run("?")).output == 3
            return backend.requests[0].body

    free, held = (asyncio.run(scenario({"supports_json_schema": constrains})) for constrains in (False, True))
    assert "integer" in free["messages"][0]["content"]
    assert "response_format" not in free
    assert held["response_format"]["json_schema"]["schema"]["properties"]["answer"]["type"] == "integer"


def test_a_refusal_has_no_output_of_the_type():
    model = ScriptedModel([[core.RefusalPiece("I will not."), core.ReplyEnded("refusal")]])
    result = Agent(model, output=int).run_sync("?")
    assert (result.state, result.text) == ("completed", "I will not.")
    with pytest.raises(NoOutput, match="the model refused to answer"):
        _ = result.output
    assert result.canisters[-1].content == (core.RefusalContent("I will not."),)


# Validators.


@table("asynchronous", [False, True])
def test_an_output_validator_may_refuse_an_output(asynchronous):
    said = []

    def check(text):
        said.append(text)
        return None if len(said) == 3 else f"{len(said)}: the tests fail"

    async def check_later(text):
        await asyncio.sleep(0)
        return check(text)

    model = ScriptedModel(["Done.", "Done!", "Done?"])
    validator = check_later if asynchronous else check
    result = Agent(model, output_validator=validator, limits=Limits(output_retries=2)).run_sync("Mend it.")
    assert (result.state, result.output, said) == ("completed", "Done?", ["Done.", "Done!", "Done?"])
    assert [each.text for each in model.requests[2].canisters[1:]] == [
        "Done.", "1: the tests fail", "Done!", "2: the tests fail",
    ]  # fmt: skip


def test_an_output_validator_gets_the_value_behind_the_check_of_its_type():
    model = ScriptedModel(['{"city": "Oslo"}', '{"city": "Oslo", "degrees": 70}', '{"city": "Oslo", "degrees": "7"}'])
    values = []

    def check(weather):
        values.append(weather)
        return "That is too warm." if weather.degrees > 50 else ""

    result = Agent(model, output=Weather, output_validator=check, limits=Limits(output_retries=2)).run_sync("?")
    assert values == [Weather("Oslo", 70.0), Weather("Oslo", 7.0)]
    assert (result.output is values[1], result.rounds) == (True, 3)
    assert model.requests[2].canisters[-1].text == "That is too warm."


@table("retries", [0, 1, 3])
def test_a_refused_output_is_asked_for_again_as_often_as_the_limits_say(retries):
    model = ScriptedModel(["Done."] * (retries + 1))
    agent = Agent(model, output_validator=lambda _: "the tests fail", limits=Limits(output_retries=retries))
    result = agent.run_sync("Mend it.")
    assert (result.state, result.why, result.text) == ("incomplete", "the tests fail", "Done.")
    model.assert_complete()


@table("given", [True, False, 0, ["no"]])
def test_an_output_validator_that_gives_no_text_is_the_callers_mistake(given):
    with pytest.raises(CallerError, match=r"output_validator: it gave a .* as a text, or None"):
        Agent(ScriptedModel(["Done."]), output_validator=lambda _: given).run_sync("?")


def test_the_time_of_a_run_bounds_its_output_validator_too():
    async def check(_):
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(["Done."]), output_validator=check, limits=Limits(seconds=0.01))
    result = agent.run_sync("?")
    assert (result.state, result.why, result.text) == ("incomplete", "0.01 seconds are over", "Done.")

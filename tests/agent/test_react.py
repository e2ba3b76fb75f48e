"""Seed 001's agent: its states, its results, and what its original got wrong."""

import asyncio
import inspect
import json

import pytest
from tests.agent.runs import add
from tests.tables import table

from callboard import core
from callboard.adapters import ToolCallingMode
from callboard.agent import react
from callboard.agent.react import FinalAnswer, NoAnswer, ReactAgent, ReactResult, StepLimitReached
from callboard.errors import CallerError, ProviderError
from callboard.testing import Call, FakeBackend, ScriptedModel, StatusReply

ADD = Call("add", {"a": 2, "b": 3})
OTHER = Call("add", {"a": 5, "b": 5})
CUT = [core.TextPiece("It is"), core.ReplyEnded("length")]


def ask(replies, **options):
    return ReactAgent([add], ScriptedModel(replies)).run_sync("What is 2 and 3?", return_result=True, **options)


def test_the_constructor_and_run_are_the_seeds():
    parameters = {name: each.default for name, each in inspect.signature(ReactAgent).parameters.items()}
    assert list(parameters.items())[1:7] == [
        ("model", "gpt-4o-mini"),
        ("api_key", None),
        ("prompt_file", None),
        ("temperature", 0.7),
        ("max_tokens", None),
        ("tool_calling_mode", ToolCallingMode.AUTO),
    ]
    options = {name: each.default for name, each in inspect.signature(ReactAgent.run).parameters.items()}
    assert list(options.items())[2:] == [("max_steps", 10), ("verbose", False), ("return_result", False)]
    assert react.RunResult is ReactResult


def test_an_answer_is_a_string():
    assert ReactAgent([add], ScriptedModel([ADD, "5"])).run_sync("What is 2 and 3?") == "5"
    assert asyncio.run(ReactAgent([add], ScriptedModel(["5"])).run("What is 2 and 3?")) == "5"


def test_a_result_says_how_it_came():
    result = ask([[ADD, core.Usage(10, 5)], ["5", core.Usage(20, 1)]])
    assert (result.output, result.state, result.steps_taken, result.error) == ("5", "completed", 2, None)
    answer = result.final_answer
    assert (answer.value, answer.source) == ("5", "normal")
    assert answer.timestamp.tzinfo is not None
    assert result.duration_seconds >= 0
    assert result.metadata["usage"] == core.Usage(30, 6)
    assert [type(each).__name__ for each in result.metadata["canisters"]] == [
        "SupervisorCanister",
        "UserCanister",
        "InvocationCanister",
        "ResultCanister",
        "AssistantCanister",
    ]


def test_the_model_is_told_its_mistakes_and_goes_on():
    mistakes = [Call("ad", {}), Call("add", {"a": "x"}), ADD, "5"]
    result = ask(mistakes)
    assert (result.output, result.state, result.steps_taken) == ("5", "completed", 4)
    told = [each.text for each in result.metadata["canisters"] if isinstance(each, core.ResultCanister)]
    assert told == [
        "Error: no tool 'ad'; did you mean 'add'?",
        "Error: ArgValidationError: a\n  Input should be a valid integer\nb\n  Field required",
        "5",
    ]


def test_when_the_steps_run_out_a_last_reply_is_asked_for_without_tools():
    model = ScriptedModel([ADD, OTHER, "Five, I think."])
    result = ReactAgent([add], model).run_sync("What is 2 and 3?", max_steps=2, return_result=True)
    assert (result.output, result.state, result.steps_taken, result.error) == (
        "Five, I think.",
        "step_limit_reached",
        2,
        None,
    )
    assert (result.final_answer.value, result.final_answer.source) == ("Five, I think.", "final_attempt")
    assert [request.tool_choice for request in model.requests] == ["auto", "auto", "none"]
    assert {request.controls.temperature for request in model.requests} == {0.7}


@table("last", [[], [Call("add", {"a": 1, "b": 1})], ["Once more.", Call("add", {"a": 1, "b": 1})]])
def test_when_even_that_gives_nothing_it_says_so(last):
    result = ask([ADD, OTHER, last], max_steps=2)
    assert (result.state, result.final_answer, result.steps_taken) == ("step_limit_reached", None, 2)
    error = result.error
    assert isinstance(error, StepLimitReached)
    assert (error.steps_taken, error.final_attempt_made) == (2, True)
    with pytest.raises(StepLimitReached, match=r"^Exceeded max steps without an answer\.; raise max_steps"):
        ReactAgent([add], ScriptedModel([ADD, OTHER, last])).run_sync("What is 2 and 3?", max_steps=2)


@table(
    ("replies", "why"),
    [([CUT], "the reply reached its length limit"), ([[], []], "the model replied nothing")],
)
def test_a_reply_that_is_no_answer_is_an_error(replies, why):
    result = ask(replies)
    assert (result.state, result.final_answer, str(result.error)) == ("error", None, why)
    with pytest.raises(NoAnswer, match=why):
        ReactAgent([add], ScriptedModel(replies)).run_sync("What is 2 and 3?")


def test_a_refusal_is_what_the_model_answered():
    result = ask([[core.RefusalPiece("I will not."), core.ReplyEnded("refusal")]])
    assert (result.output, result.state, result.final_answer.value) == ("I will not.", "completed", "I will not.")


def test_verbose_tells_the_steps(capsys):
    ask([ADD, "5"], verbose=True)
    assert capsys.readouterr().err.splitlines() == ["step 1", '  add {"a":2,"b":3}', "  -> 5", "step 2", "completed"]
    ask([ADD, "5"])
    assert capsys.readouterr() == ("", "")


@table(
    ("tools", "said"),
    [
        ([], "ReactAgent needs at least one tool"),
        ([add, add], "local: two tools are named 'add'; rename one: @tool(name=...)"),
        ([add, 5], "5 is not a tool; pass a function, a Tool or an Invoker"),
    ],
)
def test_tools_that_cannot_be(tools, said):
    with pytest.raises(ValueError, match=f"^{said.replace('(', '[(]').replace(')', '[)]')}$"):
        ReactAgent(tools, ScriptedModel([]))


def test_models_that_cannot_be():
    with pytest.raises(CallerError, match="it wants an API key; set OPENAI_API_KEY"):
        ReactAgent([add])
    with pytest.raises(ValueError, match="'json' is not a valid ToolCallingMode"):
        ReactAgent([add], tool_calling_mode="json")
    with pytest.raises(CallerError, match="a Model has its own mode, key and URL; give its name instead"):
        ReactAgent([add], ScriptedModel([]), tool_calling_mode="native")


@table(
    ("parameter", "value"),
    [
        *[("temperature", value) for value in ("hot", -1, float("nan"), float("inf"), True)],
        *[("max_tokens", value) for value in (0, -1, 1.5, "9", True)],
    ],
)
def test_a_temperature_and_a_limit_that_cannot_be_are_refused_at_once(parameter, value):
    with pytest.raises(CallerError, match=f"^{parameter}: a {type(value).__name__} is not valid; give a "):
        ReactAgent([add], ScriptedModel([]), **{parameter: value})


@table("steps", [0, -1, "3", 1.5])
def test_steps_that_cannot_be_are_refused(steps):
    agent = ReactAgent([add], ScriptedModel([]))
    with pytest.raises(CallerError, match=r"^max_steps: .* is not valid; give a count"):
        agent.run_sync("What is 2 and 3?", max_steps=steps)


def test_a_prompt_file_may_hold_braces(tmp_path):
    file = tmp_path / "prompt.md"
    file.write_text('Tools:\n{tools}\nSay {"answer": 5} or {that}.', "utf-8")
    model = ScriptedModel(["5"])
    ReactAgent([add], model, prompt_file=str(file)).run_sync("What is 2 and 3?")
    assert model.requests[0].canisters[0].text == 'Tools:\n- add: Add two numbers.\nSay {"answer": 5} or {that}.'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, r"none\.md: the prompt cannot be read: .*No such file"),
        (b"\xff", "the prompt cannot be read: .*utf-8"),
        (b"a" * (react.MAX_PROMPT_FILE + 1), "the prompt is larger than 1024 KB"),
    ],
)
def test_a_prompt_file_that_cannot_be_read(tmp_path, data, said):
    file = tmp_path / "none.md"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(CallerError, match=said):
        ReactAgent([add], ScriptedModel([]), prompt_file=file)


# Over the wire.

CALL = {"tool": "add", "arguments": {"a": 2, "b": 3}}
NATIVE_CALL = [
    core.InvocationStarted(0, "call_1", "add"),
    core.InvocationEnded(0, "call_1", "add", {"a": 2, "b": 3}, '{"a": 2, "b": 3}'),
    core.ReplyEnded("invocations"),
]


def converse(replies, model="gpt-4o-mini", runs=1, **options):
    """The outputs and the bodies that were asked with."""

    async def scenario():
        async with FakeBackend(replies) as backend:
            agent = ReactAgent([add], model, base_url=backend.url, **options)
            outputs = await asyncio.gather(*[agent.run("What is 2 and 3?") for _ in range(runs)])
            return outputs, backend.requests

    return asyncio.run(scenario())


@table(
    ("model", "mode", "declared"),
    [
        ("gpt-4o-mini", "auto", "response_format"),
        ("claude-3-5-sonnet", "auto", "tools"),
        ("mistral-7b", "native", "tools"),
        ("gpt-5", "auto", "tools"),
        ("some-local-model", "auto", "messages"),
        ("gpt-4o-mini", "validated", "messages"),
        ("local-model", "auto", "messages"),
        ("openai:local-model", "auto", "response_format"),
        ("gpt-4o-mini", ToolCallingMode.PARSED, "messages"),
    ],
)
def test_the_mode_decides_how_it_is_asked(model, mode, declared):
    def reply(body):
        if any(
            each["role"] == "tool" or "Tool 1 (add) output:\n5" in (each["content"] or "") for each in body["messages"]
        ):
            return '{"answer": "5"}' if "response_format" in body else "5"
        if "tools" in body:
            return NATIVE_CALL
        return json.dumps({"action": CALL} if "response_format" in body else CALL)

    outputs, requests = converse(reply, model, tool_calling_mode=mode, api_key="k", temperature=None, max_tokens=99)
    assert outputs == ["5"]
    body = requests[0].body
    assert {"tools", "response_format"} & body.keys() == {declared} - {"messages"}
    assert (body["model"], body["max_tokens"]) == (model.removeprefix("openai:"), 99)
    assert "temperature" not in body
    assert requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(("model", "constrained"), [("gpt-4o-mini", True), ("local-model", False)])
async def test_the_environment_says_where_and_with_which_key(model, constrained, monkeypatch):
    async with FakeBackend(['{"answer": "5"}' if constrained else "5"]) as backend:
        monkeypatch.setenv("OPENAI_BASE_URL", backend.url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert await ReactAgent([add], model).run("What is 2 and 3?") == "5"
        assert backend.requests[0].headers["authorization"] == "Bearer secret"
        assert backend.requests[0].body["temperature"] == 0.7
        assert ("response_format" in backend.requests[0].body) is constrained


def test_runs_at_once_do_not_close_each_other():
    outputs, _ = converse(lambda _: '{"answer": "5"}', runs=5)
    assert outputs == ["5"] * 5


def test_a_thought_is_no_answer():
    outputs, _ = converse(['{"scratchpad": "I think."}', '{"answer": "5"}'])
    assert outputs == ["5"]


def test_a_provider_that_refuses_is_an_error():
    with pytest.raises(ProviderError, match="the fake backend answers 401"):
        converse([StatusReply(401)])


def test_the_values_are_frozen_and_comparable():
    answer = FinalAnswer("5")
    assert answer == FinalAnswer("5", timestamp=answer.timestamp)
    with pytest.raises(AttributeError):
        answer.value = "6"


SEED_CALL = {"tool": "add", "arguments": {"a": 2, "b": 3}, "scratchpad": "Add them."}


def converse_in(mode, replies):
    outputs, requests = converse(replies, "some-local-model", tool_calling_mode=mode)
    return outputs[0], [request.body["messages"] for request in requests]


@table("mode", ["validated", "parsed"])
@table(
    "call",
    [
        json.dumps(SEED_CALL),
        f"I will add them.\n\n{json.dumps(SEED_CALL)}",
        f"I will add them: {json.dumps(SEED_CALL)}",
        f"```json\n{json.dumps(SEED_CALL)}\n```",
        json.dumps({"scratchpad": "First.", "tool": "add", "arguments": {"a": 2, "b": 3}}),
    ],
)
@table("answer", ["5", '{"answer": "5"}', '{"answer": "5", "scratchpad": "Directly."}'])
def test_the_payloads_of_the_specification_in_text(mode, call, answer):
    output, asked = converse_in(mode, [call, answer])
    assert output == "5"
    assert "5" in asked[1][-1]["content"]


@table("mode", ["validated", "parsed"])
def test_a_scratchpad_alone_does_not_end_a_run(mode):
    output, asked = converse_in(mode, ['{"scratchpad": "I should add."}', json.dumps(SEED_CALL), '{"answer": "5"}'])
    assert (output, len(asked)) == ("5", 3)


@table("mode", ["validated", "parsed"])
def test_the_last_reply_is_read_as_an_answer_too(mode):
    calls = [json.dumps({"tool": "add", "arguments": {"a": each, "b": 3}}) for each in range(10)]
    assert converse_in(mode, [*calls, '{"answer": "5", "scratchpad": "Enough."}'])[0] == "5"


@table("mode", ["validated", "parsed"])
@table("text", ['{"name": "Ada"}', 'Such as {"a": 1}.', "f() { return {1}; }"])
def test_other_json_is_the_answer(mode, text):
    assert converse_in(mode, [text])[0] == text

"""What an agent can besides asking and calling: typed output, hooks, deferred calls, failing fast, being a tool."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal, Never

import pytest
from msgspec.structs import replace

from callboard import Agent, Conversation, Limits, access_model, tool
from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    Note,
    RefusalContent,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    RolledBack,
    RunEnded,
    TextPiece,
    ToolError,
    Usage,
    UserCanister,
    error_result,
)
from callboard.errors import CallerError, NoOutput, ProviderError, ToolExecutionFailure
from callboard.loop import Fabricated, History
from callboard.providers import FallbackModel
from callboard.testing import Call, FakeBackend, ScriptedModel, Silence
from callboard.tools import Ensemble, Invoker, Policy


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


@tool
def multiply(a: int, b: int) -> int:
    """Multiply."""
    return a * b


@tool
def broken() -> str:
    """Fail."""
    raise RuntimeError("no luck")


def follow(run):
    async def scenario():
        return [event async for event in run]

    return asyncio.run(scenario())


# Typed output.


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "kind", [{"type": "object"}, None, 3, "Weather", [int], Weather("Oslo", 3), len, type, Never, (int, str), ...]
)
def test_an_output_that_is_no_type_is_the_callers_mistake(kind):
    with pytest.raises(CallerError, match=r"^output: .*; give a type that JSON can say") as raised:
        Agent(ScriptedModel([]), output=kind)
    assert type(raised.value) is CallerError


@pytest.mark.parametrize("kind", [str, Weather])
@pytest.mark.parametrize(
    ("script", "state", "why", "text"),
    [
        ([[TextPiece("Hel"), ReplyEnded("length")]], "incomplete", "its length limit", "Hel"),
        (
            [[TextPiece("Let me. "), Call("multiply", {"a": 6, "b": 7})]],
            "pending",
            "1 calls wait for their results",
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

    free, held = (asyncio.run(scenario({"constrains": constrains})) for constrains in (False, True))
    assert "integer" in free["messages"][0]["content"]
    assert "response_format" not in free
    assert held["response_format"]["json_schema"]["schema"]["properties"]["answer"]["type"] == "integer"


def test_a_refusal_has_no_output_of_the_type():
    model = ScriptedModel([[RefusalPiece("I will not."), ReplyEnded("refusal")]])
    result = Agent(model, output=int).run_sync("?")
    assert (result.state, result.text) == ("completed", "I will not.")
    with pytest.raises(NoOutput, match="the model refused to answer"):
        _ = result.output
    assert result.canisters[-1].content == (RefusalContent("I will not."),)


# Hooks.


def test_hooks_see_each_call_and_may_change_it():
    seen = []

    async def before(invocation):
        seen.append(invocation.name)
        if invocation.arguments == {"a": 1, "b": 1}:
            return error_result("?", "permission", "not this one")
        return InvocationCanister("?", invocation.name, {**invocation.arguments, "b": 10})

    async def after(_, result):
        return ResultCanister(invocation_id="?", content=f"{result.text}!")

    script = [[Call("multiply", {"a": 2, "b": 3}), Call("multiply", {"a": 1, "b": 1})], "ok"]
    result = Agent(ScriptedModel(script), [multiply], before_call=before, after_call=after).run_sync("?")
    results = [each for each in result.canisters if isinstance(each, ResultCanister)]
    assert [each.text for each in results] == ["20!", "Error: not this one"]
    assert [each.invocation_id for each in results] == ["call_1_0", "call_1_1"]
    assert seen == ["multiply", "multiply"]


# Deferred calls.


async def elsewhere(_context, _arguments):
    raise AssertionError


BOOK = Invoker("book", elsewhere, {"type": "object"}, description="Books a room.", deferred=True)


def test_a_run_ends_with_pending_calls_and_goes_on_with_their_results():
    model = ScriptedModel([["I'll book.", Call("book"), Call("multiply", {"a": 2, "b": 3})], "Booked room 7."])
    agent = Agent(model, [BOOK, multiply])
    first = agent.run_sync("Book a room.")
    assert (first.state, [each.name for each in first.pending]) == ("pending", ["book"])
    (pending,) = first.pending
    second = agent.run_sync(history=first.canisters, results={pending.identifier: {"room": 7}})
    assert (second.state, second.output) == ("completed", "Booked room 7.")
    assert [each.text for each in model.requests[1].canisters if isinstance(each, ResultCanister)] == [
        "6",
        '{"room":7}',
    ]


def test_a_person_may_answer_later():
    async def later(_invocation, _why):
        return "defer"

    model = ScriptedModel([Call("multiply", {"a": 2, "b": 3}), "no"])
    agent = Agent(model, [multiply], policy=Policy([("*", "ask")]), approve=later)
    first = agent.run_sync("?")
    (pending,) = first.pending
    refused = ToolError("permission", "the answer was no")
    second = agent.run_sync(history=first.canisters, results={pending.identifier: refused})
    assert second.canisters[0].error == refused


def test_a_pending_call_that_gets_no_result_is_told_so():
    model = ScriptedModel([Call("book"), "Then not."])
    agent = Agent(model, [BOOK])
    first = agent.run_sync("Book.")
    agent.run_sync("Forget it.", history=first.canisters)
    *_, result, said = model.requests[1].canisters
    assert result.error.category == "cancelled"
    assert said == UserCanister("Forget it.")


def test_a_result_that_nobody_waits_for_is_refused():
    with pytest.raises(CallerError, match="call_9: no call waits for this result"):
        Agent(ScriptedModel([])).run_sync(results={"call_9": 1})


# Failing fast.


def test_fail_fast_rolls_the_conversation_back(tmp_path):
    conversation = Conversation.begin(tmp_path)
    script = ["Hi.", ["Let me.", Call("broken")]]
    agent = Agent(ScriptedModel(script), [broken], on_error="fail_fast", store=conversation)
    agent.run_sync("Hello")
    run = agent.stream("Do it.", history=conversation.canisters)
    alert, rolled_back, ended = follow(run)[-3:]
    assert alert == Note("alert", "Tool 'broken' failed: RuntimeError: no luck")
    assert rolled_back == RolledBack(2)
    assert ended == RunEnded("failed", "", Usage())
    assert conversation.canisters == [UserCanister("Hello"), AssistantCanister("Hi.")]
    assert Conversation.resume(conversation.identifier, tmp_path).canisters == conversation.canisters
    assert b"Let me." in conversation.path.read_bytes()


def test_instructions_are_no_part_of_what_is_rolled_back_to(tmp_path):
    conversation = Conversation.begin(tmp_path)
    Agent(ScriptedModel(["Hi."]), store=conversation).run_sync("Hello")
    agent = Agent(
        ScriptedModel([Call("broken")]), [broken], instructions="Be brief.", on_error="fail_fast", store=conversation
    )
    run = agent.stream("Do it.", history=conversation.canisters)
    assert RolledBack(2) in follow(run)
    assert Conversation.resume(conversation.identifier, tmp_path).canisters == [
        UserCanister("Hello"),
        AssistantCanister("Hi."),
    ]


def test_fail_fast_raises_from_run():
    agent = Agent(ScriptedModel([Call("broken")]), [broken], on_error="fail_fast")
    with pytest.raises(ToolExecutionFailure, match="Tool 'broken' failed"):
        agent.run_sync("Do it.")


# An agent as a tool.


def test_an_agent_is_a_tool_of_another():
    inner = Agent(ScriptedModel([Call("multiply", {"a": 6, "b": 7}), "42"]), [multiply])
    outer = Agent(
        ScriptedModel([Call("ask_mathematician", {"prompt": "6 times 7?"}), "It is 42."]),
        [inner.as_tool("ask_mathematician", "Knows numbers.")],
    )
    result = outer.run_sync("What is 6 times 7?")
    assert [each.text for each in result.canisters if isinstance(each, ResultCanister)] == ["42"]
    assert outer.roster.declarations[0].description == "Knows numbers."


def test_an_agent_that_gives_no_answer_is_an_error_of_the_tool():
    inner = Agent(ScriptedModel([[], []])).as_tool("ask", "Asks.")
    result = Agent(ScriptedModel([Call("ask", {"prompt": "?"}), "ok"]), [inner]).run_sync("?")
    assert "ask gave no answer: the model replied nothing" in result.canisters[2].text


# Time and money.


def test_seconds_end_a_reply_that_never_comes():
    async def scenario():
        async with FakeBackend([Silence()]) as backend:
            result = await Agent("m", base_url=backend.url, limits=Limits(seconds=0.2)).run("?")
            await backend.disconnected.wait()
            return result

    result = asyncio.run(scenario())
    assert (result.state, result.why) == ("incomplete", "0.2 seconds are over")


def test_usage_and_cost_are_on_the_result():
    profile = {"price_input": 2.0, "price_output": 10.0}
    model = ScriptedModel([["Hi.", Usage(1000, 100)]], profile=profile)
    result = Agent(model).run_sync("?")
    assert (result.usage, result.cost) == (Usage(1000, 100), 0.003)
    assert Agent(ScriptedModel(["Hi."])).run_sync("?").cost is None


# What a program that builds on an agent decides.


@pytest.mark.parametrize("asynchronous", [False, True])
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


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_refused_output_is_asked_for_again_as_often_as_the_limits_say(retries):
    model = ScriptedModel(["Done."] * (retries + 1))
    agent = Agent(model, output_validator=lambda _: "the tests fail", limits=Limits(output_retries=retries))
    result = agent.run_sync("Mend it.")
    assert (result.state, result.why, result.text) == ("incomplete", "the tests fail", "Done.")
    model.assert_complete()


@pytest.mark.parametrize("given", [True, False, 0, ["no"]])
def test_an_output_validator_that_gives_no_text_is_the_callers_mistake(given):
    with pytest.raises(CallerError, match=r"output_validator: it gave a .* as a text, or None"):
        Agent(ScriptedModel(["Done."]), output_validator=lambda _: given).run_sync("?")


def test_the_time_of_a_run_bounds_its_output_validator_too():
    async def check(_):
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(["Done."]), output_validator=check, limits=Limits(seconds=0.01))
    result = agent.run_sync("?")
    assert (result.state, result.why, result.text) == ("incomplete", "0.01 seconds are over", "Done.")


def test_calls_that_are_made_again_may_be_told():
    model = ScriptedModel([Call("multiply", {"a": 2, "b": 3}), Call("multiply", {"b": 3, "a": 2}), "6"])
    result = Agent(model, [multiply], on_repeated_call="tell").run_sync("?")
    assert (result.state, result.output) == ("completed", "6")
    told = model.requests[2].canisters[-1].text
    assert told.startswith("You made this call in round 1 already")
    assert told.endswith("\n6")
    assert model.requests[2].tool_choice == "auto"


@pytest.mark.parametrize(("given", "choices"), [(None, ["auto", "none"]), ("model", ["auto", "auto"])])
def test_when_the_answer_comes_may_be_said(given, choices):
    model = ScriptedModel([Call("multiply", {"a": 2, "b": 3}), "6"], profile={"answer_after": "results"})
    Agent(model, [multiply], answer_after=given).run_sync("?")
    assert [request.tool_choice for request in model.requests] == choices


def test_a_view_decides_what_the_model_is_shown():
    @tool(idempotent=True)
    def look(at: int) -> str:
        """Look."""
        return f"{at} " + "x" * 4000

    model = ScriptedModel([*[Call("look", {"at": number}) for number in range(6)], "So."])
    view = History(limit=4000)
    result = Agent(model, [look], view=view, instructions="Be good.").run_sync("Look around.")
    assert len(result.canisters) == 2 + 2 * 6 + 1
    sizes = [len(request.canisters) for request in model.requests]
    assert sizes == [2, 4, 6, 8, 8, 8, 8]  # the last three rounds
    assert model.requests[-1].canisters[1].text.startswith("Look around.\nRounds 1 to ")
    assert "round 2: look at" not in model.requests[-1].canisters[1].text  # `at` says nothing of what a call was about
    assert view.invokers.keys() == {"look"}


def test_a_view_learns_from_what_the_backend_counts():
    view = History(limit=4000)
    script = [[Call("multiply", {"a": 2, "b": 3}), Usage(3000, 10), ReplyEnded("invocations")], "6"]
    Agent(ScriptedModel(script), [multiply], view=view).run_sync("?")
    assert view.tokens > 3000


def test_a_stage_stands_between_the_model_and_the_run():
    reply = [Call("multiply", {"a": 2, "b": 3}), "\nTool results:\nmultiply: 7\n"]
    model = ScriptedModel([reply, "6"])
    run = Agent(model, [multiply], stage=Fabricated).stream("?")
    events = follow(run)
    (note,) = [each for each in events if isinstance(each, Note)]
    assert note.text == "the model wrote a result itself, and it was cut: Tool results:\nmultiply: 7\n"
    (result,) = [each for each in run.result.canisters if isinstance(each, ResultCanister)]
    assert result.text.startswith("Part of your last reply was cut")
    assert result.text.endswith("\n6")
    assert "multiply: 7" not in "".join(
        each.text for each in run.result.canisters if isinstance(each, AssistantCanister)
    )
    assert (run.result.state, run.result.output) == ("completed", "6")


def test_a_stage_gives_what_it_holds_when_a_reply_breaks_off():
    model = ScriptedModel([["Observ", ReplyFailed("provider", "cut", "gone")]])
    run = Agent(model, stage=Fabricated).stream("?")
    follow(run)
    assert (run.result.state, run.result.text) == ("failed", "Observ")


def test_who_is_asked_may_differ_from_run_to_run():
    async def no(_invocation, _why):
        return "deny"

    async def yes(_invocation, _why):
        return "allow"

    script = [Call("multiply", {"a": 2, "b": 3}), "So."]
    agent = Agent(ScriptedModel(script * 2), [multiply], policy=Policy([("*", "ask")]), approve=no)
    assert agent.approve is no
    texts = [agent.run_sync("?", approve=each).canisters[2].text for each in (None, yes)]
    assert texts == ["Error: multiply may not run: the answer was no", "6"]


def test_rules_look_at_what_a_call_is_about():
    ran = []

    @tool(subjects={"command": "command"})
    def bash(command: str) -> str:
        """Run."""
        ran.append(command)
        return "ok"

    policy = Policy([("bash", "deny"), ("bash(git status*)", "allow")])
    script = [[Call("bash", {"command": "git status -s"}), Call("bash", {"command": "git status; rm x"})], "So."]
    result = Agent(ScriptedModel(script), [bash], policy=policy).run_sync("?")
    assert ran == ["git status -s"]
    assert result.canisters[-2].error == ToolError("permission", "bash may not run: the rule 'bash' says deny")


def test_one_call_at_a_time_in_their_order():
    under_way = []
    most = []

    @tool
    async def step(number: int) -> int:
        """Step."""
        under_way.append(number)
        await asyncio.sleep(0)
        most.append([*under_way])
        under_way.remove(number)
        return number

    script = [[Call("step", {"number": number}) for number in (3, 1, 2)], "So."]
    Agent(ScriptedModel(script * 2), [step], at_once=1).run_sync("?")
    assert most == [[3], [1], [2]]
    with pytest.raises(CallerError, match="at_once"):
        Agent(ScriptedModel(script), [step], at_once=0).stream("?")


def test_a_limit_of_results_is_the_callers():
    """It sees the call with its arguments, and results that went wrong; what it gives is what the model reads."""
    seen = []

    async def after(invocation, result):
        seen.append((invocation.name, invocation.arguments, result.error is None, len(result.text)))
        return ResultCanister(invocation_id="?", content=result.text[:5], error=result.error)

    @tool
    def look(size: int) -> str:
        """Look."""
        if size > 1000:
            raise OSError("too much")
        return "x" * size

    script = [[Call("look", {"size": 900}), Call("look", {"size": 9000}), Call("look", {"size": "many"})], "So."]
    result = Agent(ScriptedModel(script), [look], after_call=after, at_once=1).run_sync("?")
    assert seen == [
        ("look", {"size": 900}, True, 900),
        ("look", {"size": 9000}, False, len("Error: OSError: too much")),
        ("look", {"size": "many"}, False, len("Error: ArgValidationError: size\n  Input should be a valid integer")),
    ]
    assert [each.text for each in result.canisters if isinstance(each, ResultCanister)] == ["xxxxx", "Error", "Error"]


# Fallback and converse.


def test_where_a_model_fails_the_next_one_is_asked():
    down = ScriptedModel([[ReplyFailed("provider", "unreachable", "gone")]], name="first")
    up = ScriptedModel(["Here."], name="second")
    run = Agent(FallbackModel([down, up])).stream("?")
    events = follow(run)
    assert Note("alert", "first failed: gone; second is asked") in events
    assert run.result.output == "Here."


def test_a_failure_in_the_middle_stays_one_and_so_does_the_last():
    middle = ScriptedModel([["Once", ReplyFailed("provider", "cut", "gone")]])
    with pytest.raises(ProviderError, match="gone"):
        Agent(FallbackModel([middle, ScriptedModel(["never asked"])])).run_sync("?")
    last = ScriptedModel([[ReplyFailed("provider", "cut", "gone too")]])
    first = ScriptedModel([[ReplyFailed("provider", "cut", "gone")]])
    with pytest.raises(ProviderError, match="gone too"):
        Agent(FallbackModel([first, last])).run_sync("?")


def test_converse_gives_the_canisters_that_follow():
    async def scenario():
        async with FakeBackend(["The weather is fine."]) as backend:
            backend_model = access_model(
                "gpt-4o", base_url=backend.url, headers={"x-team": "a"}, extra_body={"user": "u"}
            )
            said = [UserCanister("Weather?")]
            canisters = await backend_model.converse(said, ensembles=[Ensemble("io", [multiply])])
            await backend_model.aclose()
            return canisters, backend.requests[-1]

    canisters, request = asyncio.run(scenario())
    assert [each.text for each in canisters] == ["The weather is fine."]
    assert request.headers["x-team"] == "a"
    assert request.body["user"] == "u"
    assert request.body["tools"][0]["function"]["name"] == "multiply"


def test_hooks_may_be_plain_functions():
    def before(invocation):
        return replace(invocation, arguments={"a": 4, "b": 5}) if invocation.arguments["a"] == 2 else None

    def after(invocation, result):
        return ResultCanister(f"{result.text}!", invocation_id=invocation.identifier)

    script = [[Call("multiply", {"a": 2, "b": 3}), Call("multiply", {"a": 1, "b": 1})], "Done."]
    result = Agent(ScriptedModel(script), [multiply], before_call=before, after_call=after).run_sync("?")
    assert [each.text for each in result.canisters if isinstance(each, ResultCanister)] == ["20!", "1!"]

"""What an agent can besides asking and calling: hooks, deferred calls, failing fast, being a tool."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.agent.runs import follow, multiply, result_texts
from tests.tables import table

from callboard import Agent, Conversation, Limits, access_model, core, tool
from callboard.errors import CallerError, ProviderError, ToolExecutionFailure
from callboard.loop import ContextWindow
from callboard.modes import HallucinatedResultFilter
from callboard.providers import FallbackModel
from callboard.testing import Call, FakeBackend, ScriptedModel, Silence
from callboard.tools import Ensemble, Invoker, Policy, Tool


@tool
def broken() -> str:
    """Fail."""
    raise RuntimeError("no luck")


# Hooks.


def test_hooks_see_each_call_and_may_change_it():
    seen = []

    async def before(invocation):
        seen.append(invocation.name)
        if invocation.arguments == {"a": 1, "b": 1}:
            return core.error_result("?", "permission", "not this one")
        return core.InvocationCanister("?", invocation.name, {**invocation.arguments, "b": 10})

    async def after(_, result):
        return core.ResultCanister(invocation_id="?", content=f"{result.text}!")

    script = [[Call("multiply", {"a": 2, "b": 3}), Call("multiply", {"a": 1, "b": 1})], "ok"]
    result = Agent(ScriptedModel(script), [multiply], before_call=before, after_call=after).run_sync("?")
    results = [each for each in result.canisters if isinstance(each, core.ResultCanister)]
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
    assert [each.text for each in model.requests[1].canisters if isinstance(each, core.ResultCanister)] == [
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
    refused = core.ToolError("permission", "the answer was no")
    second = agent.run_sync(history=first.canisters, results={pending.identifier: refused})
    assert second.canisters[0].error == refused


def test_a_pending_call_that_gets_no_result_is_told_so():
    model = ScriptedModel([Call("book"), "Then not."])
    agent = Agent(model, [BOOK])
    first = agent.run_sync("Book.")
    agent.run_sync("Forget it.", history=first.canisters)
    *_, result, said = model.requests[1].canisters
    assert result.error.category == "cancelled"
    assert said == core.UserCanister("Forget it.")


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
    assert alert == core.Note("alert", "Tool 'broken' failed: RuntimeError: no luck")
    assert rolled_back == core.RolledBack(2)
    assert ended == core.RunEnded("failed", "", core.Usage())
    assert conversation.canisters == [core.UserCanister("Hello"), core.AssistantCanister("Hi.")]
    assert Conversation.resume(conversation.identifier, tmp_path).canisters == conversation.canisters
    assert b"Let me." in conversation.path.read_bytes()


def test_instructions_are_no_part_of_what_is_rolled_back_to(tmp_path):
    conversation = Conversation.begin(tmp_path)
    Agent(ScriptedModel(["Hi."]), store=conversation).run_sync("Hello")
    agent = Agent(
        ScriptedModel([Call("broken")]), [broken], instructions="Be brief.", on_error="fail_fast", store=conversation
    )
    run = agent.stream("Do it.", history=conversation.canisters)
    assert core.RolledBack(2) in follow(run)
    assert Conversation.resume(conversation.identifier, tmp_path).canisters == [
        core.UserCanister("Hello"),
        core.AssistantCanister("Hi."),
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
    assert result_texts(result) == ["42"]
    assert outer.registry.declarations[0].description == "Knows numbers."


def test_an_agent_that_gives_no_answer_is_an_error_of_the_tool():
    inner = Agent(ScriptedModel([[], []])).as_tool("ask", "Asks.")
    result = Agent(ScriptedModel([Call("ask", {"prompt": "?"}), "ok"]), [inner]).run_sync("?")
    assert "ask gave no answer: the model replied nothing" in result.canisters[2].text


# Time and money.


async def test_seconds_end_a_reply_that_never_comes():
    async with FakeBackend([Silence()]) as backend:
        result = await Agent("m", base_url=backend.url, limits=Limits(seconds=1)).run("?")
        if backend.requests:  # else the time was over before
            await backend.disconnected.wait()
    assert (result.state, result.why) == ("incomplete", "1 seconds are over")


def test_usage_and_cost_are_on_the_result():
    profile = {"prices": {"input": 2.0, "output": 10.0}}
    model = ScriptedModel([["Hi.", core.Usage(1000, 100)]], profile=profile)
    result = Agent(model).run_sync("?")
    assert (result.usage, result.cost) == (core.Usage(1000, 100), 0.003)
    assert Agent(ScriptedModel(["Hi."])).run_sync("?").cost is None


# What a program that builds on an agent decides.


def test_calls_that_are_made_again_may_be_told():
    model = ScriptedModel([Call("multiply", {"a": 2, "b": 3}), Call("multiply", {"b": 3, "a": 2}), "6"])
    result = Agent(model, [multiply], on_repeated_call="warn").run_sync("?")
    assert (result.state, result.output) == ("completed", "6")
    told = model.requests[2].canisters[-1].text
    assert told.startswith("You made this call in round 1 already")
    assert told.endswith("\n6")
    assert model.requests[2].tool_choice == "auto"


@table(("given", "choices"), [(None, ["auto", "none"]), ("model", ["auto", "auto"])])
def test_when_the_answer_comes_may_be_said(given, choices):
    model = ScriptedModel([Call("multiply", {"a": 2, "b": 3}), "6"], profile={"answer_after": "results"})
    Agent(model, [multiply], answer_after=given).run_sync("?")
    assert [request.tool_choice for request in model.requests] == choices


def test_a_view_decides_what_the_model_is_shown():
    @tool(idempotent=True)
    def look(at: int) -> str:
        return f"{at} " + "x" * 4000

    model = ScriptedModel([*[Call("look", {"at": number}) for number in range(6)], "So."])
    window = ContextWindow(limit=4000)
    result = Agent(model, [look], context_window=window, instructions="Be good.").run_sync("Look around.")
    assert len(result.canisters) == 2 + 2 * 6 + 1
    sizes = [len(request.canisters) for request in model.requests]
    assert sizes == [2, 4, 6, 8, 8, 8, 8]  # the last three rounds
    assert model.requests[-1].canisters[1].text.startswith("Look around.\nRounds 1 to ")
    assert "round 2: look at" not in model.requests[-1].canisters[1].text  # `at` says nothing of what a call was about
    assert window.invokers.keys() == {"look"}


def test_a_view_learns_from_what_the_backend_counts():
    window = ContextWindow(limit=4000)
    script = [[Call("multiply", {"a": 2, "b": 3}), core.Usage(3000, 10), core.ReplyEnded("invocations")], "6"]
    Agent(ScriptedModel(script), [multiply], context_window=window).run_sync("?")
    assert window.tokens > 3000


def test_a_stage_stands_between_the_model_and_the_run():
    reply = [Call("multiply", {"a": 2, "b": 3}), "\nTool results:\nmultiply: 7\n"]
    model = ScriptedModel([reply, "6"])
    run = Agent(model, [multiply], event_filter=HallucinatedResultFilter).stream("?")
    events = follow(run)
    (note,) = [each for each in events if isinstance(each, core.Note)]
    assert note.text == "the model wrote a result itself, and it was cut: Tool results:\nmultiply: 7\n"
    (result,) = [each for each in run.result.canisters if isinstance(each, core.ResultCanister)]
    assert result.text.startswith("Part of your last reply was cut")
    assert result.text.endswith("\n6")
    assert "multiply: 7" not in "".join(
        each.text for each in run.result.canisters if isinstance(each, core.AssistantCanister)
    )
    assert (run.result.state, run.result.output) == ("completed", "6")


def test_a_stage_gives_what_it_holds_when_a_reply_breaks_off():
    model = ScriptedModel([["Observ", core.ReplyFailed("provider", "cut", "gone")]])
    run = Agent(model, event_filter=HallucinatedResultFilter).stream("?")
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
    assert result.canisters[-2].error == core.ToolError("permission", "bash may not run: the rule 'bash' says deny")


def test_one_call_at_a_time_in_their_order():
    under_way = []
    most = []

    @tool
    async def step(number: int) -> int:
        under_way.append(number)
        await asyncio.sleep(0)
        most.append([*under_way])
        under_way.remove(number)
        return number

    script = [[Call("step", {"number": number}) for number in (3, 1, 2)], "So."]
    Agent(ScriptedModel(script * 2), [step], max_parallel_calls=1).run_sync("?")
    assert most == [[3], [1], [2]]
    with pytest.raises(CallerError, match="max_parallel_calls"):
        Agent(ScriptedModel(script), [step], max_parallel_calls=0).stream("?")


def test_calls_that_only_look_run_together_between_calls_that_change_something():
    under_way, most = [], []

    async def step(number: int) -> int:
        under_way.append(number)
        await asyncio.sleep(0)
        most.append([*under_way])
        await asyncio.sleep(0)
        under_way.remove(number)
        return number

    tools = [Tool(step, name="look", idempotent=True), Tool(step, name="edit")]
    names = ["look", "look", "edit", "edit", "look", "missing", "look"]
    script = [[Call(name, {"number": number}) for number, name in enumerate(names)], "So."]
    result = Agent(ScriptedModel(script), tools, keep_order=True).run_sync("?")
    assert most == [[0, 1], [0, 1], [2], [3], [4, 6], [4, 6]]
    assert [text[:3] for text in result_texts(result)] == ["0", "1", "2", "3", "4", "Err", "6"]
    with pytest.raises(CallerError, match="keep_order: a str is not valid; give True or False"):
        Agent(ScriptedModel(script), tools, keep_order="yes")


async def test_no_call_runs_after_one_that_ended_the_run():
    """Even if the caller is busy with the result of the call before."""
    ran = []

    @tool
    def edit(number: int) -> int:
        ran.append(number)
        return number

    def after(*_):
        if ran[-1] == 1:
            raise OSError("full")

    async def listen(run):
        async for _ in run:
            for _ in range(200):
                await asyncio.sleep(0)

    script = [[Call("edit", {"number": number}) for number in range(4)], "So."]
    with pytest.raises(OSError, match="full"):
        await listen(Agent(ScriptedModel(script), [edit], keep_order=True, after_call=after).stream("?"))
    assert ran == [0, 1]


def test_a_limit_of_results_is_the_callers():
    """It sees the call with its arguments, and results that went wrong; what it gives is what the model reads."""
    seen = []

    async def after(invocation, result):
        seen.append((invocation.name, invocation.arguments, result.error is None, len(result.text)))
        return core.ResultCanister(invocation_id="?", content=result.text[:5], error=result.error)

    @tool
    def look(size: int) -> str:
        if size > 1000:
            raise OSError("too much")
        return "x" * size

    script = [[Call("look", {"size": 900}), Call("look", {"size": 9000}), Call("look", {"size": "many"})], "So."]
    result = Agent(ScriptedModel(script), [look], after_call=after, max_parallel_calls=1).run_sync("?")
    assert seen == [
        ("look", {"size": 900}, True, 900),
        ("look", {"size": 9000}, False, len("Error: OSError: too much")),
        ("look", {"size": "many"}, False, len("Error: ArgValidationError: size\n  Input should be a valid integer")),
    ]
    assert result_texts(result) == ["xxxxx", "Error", "Error"]


# Fallback and converse.


def test_where_a_model_fails_the_next_one_is_asked():
    down = ScriptedModel([[core.ReplyFailed("provider", "unreachable", "gone")]], name="first")
    up = ScriptedModel(["Here."], name="second")
    run = Agent(FallbackModel([down, up])).stream("?")
    events = follow(run)
    assert core.Note("alert", "first failed: gone; second is asked") in events
    assert run.result.output == "Here."


def test_a_failure_in_the_middle_stays_one_and_so_does_the_last():
    middle = ScriptedModel([["Once", core.ReplyFailed("provider", "cut", "gone")]])
    with pytest.raises(ProviderError, match="gone"):
        Agent(FallbackModel([middle, ScriptedModel(["never asked"])])).run_sync("?")
    last = ScriptedModel([[core.ReplyFailed("provider", "cut", "gone too")]])
    first = ScriptedModel([[core.ReplyFailed("provider", "cut", "gone")]])
    with pytest.raises(ProviderError, match="gone too"):
        Agent(FallbackModel([first, last])).run_sync("?")


async def test_converse_gives_the_canisters_that_follow():
    async with FakeBackend(["The weather is fine."]) as backend:
        backend_model = access_model("gpt-4o", base_url=backend.url, headers={"x-team": "a"}, extra_body={"user": "u"})
        said = [core.UserCanister("Weather?")]
        canisters = await backend_model.converse(said, ensembles=[Ensemble("io", [multiply])])
        await backend_model.aclose()
        request = backend.requests[-1]
    assert [each.text for each in canisters] == ["The weather is fine."]
    assert request.headers["x-team"] == "a"
    assert request.body["user"] == "u"
    assert request.body["tools"][0]["function"]["name"] == "multiply"


def test_hooks_may_be_plain_functions():
    def before(invocation):
        return replace(invocation, arguments={"a": 4, "b": 5}) if invocation.arguments["a"] == 2 else None

    def after(invocation, result):
        return core.ResultCanister(f"{result.text}!", invocation_id=invocation.identifier)

    script = [[Call("multiply", {"a": 2, "b": 3}), Call("multiply", {"a": 1, "b": 1})], "Done."]
    result = Agent(ScriptedModel(script), [multiply], before_call=before, after_call=after).run_sync("?")
    assert result_texts(result) == ["20!", "1!"]

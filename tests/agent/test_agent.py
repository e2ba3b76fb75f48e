from __future__ import annotations

import asyncio
import json
import queue
import threading
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from tests.agent.runs import multiply
from tests.tables import table

from callboard import Agent, Context, Ensemble, RunResult, Tool, core, tool
from callboard.errors import CallerError, ProviderError
from callboard.testing import Call, FakeBackend, Html, ScriptedModel, Silence, StatusReply

NOW = datetime(2025, 11, 18, tzinfo=UTC)


@tool
def get_weather(location: str) -> str:
    """Fetches weather for specified location.

    Args:
        location: City and state

    """
    assert location
    return '{"temperature": 62, "conditions": "Partly cloudy"}'


# Seed 000, "Complete Conversation Example". Its assistant canister without content is no canister of ours.
QUESTION = core.UserCanister("What's the weather in SF?")
INVOCATION = core.InvocationCanister(
    "call_abc123", "get_weather", {"location": "San Francisco, CA"}, '{"location":"San Francisco, CA"}'
)
RESULT = core.ResultCanister(
    invocation_id="call_abc123", content='{"temperature": 62, "conditions": "Partly cloudy"}', error=None
)
ANSWER = core.AssistantCanister("The weather in San Francisco is 62°F and partly cloudy.")


def test_the_seeds_complete_conversation():
    model = ScriptedModel([Call("get_weather", {"location": "San Francisco, CA"}, "call_abc123"), ANSWER.text])
    result = Agent(model, [get_weather], clock=lambda: NOW).run_sync(QUESTION.text)
    assert result.canisters == (QUESTION, INVOCATION, RESULT, ANSWER)
    assert {each.timestamp for each in result.canisters} == {NOW}
    assert (result.output, result.state, result.rounds, result.why) == (ANSWER.text, "completed", 2, "")
    assert [[*request.canisters] for request in model.requests] == [[QUESTION], [QUESTION, INVOCATION, RESULT]]
    model.assert_complete()


async def test_the_seeds_complete_conversation_on_the_wire():
    said = [
        {"role": "user", "content": "What's the weather in SF?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_abc123",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"location":"San Francisco, CA"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_abc123", "content": RESULT.text},
        {"role": "assistant", "content": ANSWER.text},
        {"role": "user", "content": "And now?"},
    ]
    calling = [
        core.ReplyStarted(),
        core.InvocationStarted(0, "call_abc123", "get_weather"),
        core.ArgumentsPiece(0, '{"location":'),
        core.ArgumentsPiece(0, '"San Francisco, CA"}'),
        core.InvocationEnded(0, "call_abc123", "get_weather", INVOCATION.arguments, INVOCATION.raw),
        core.ReplyEnded("invocations"),
    ]
    async with FakeBackend([calling, ANSWER.text, "It is still cloudy."]) as backend:
        agent = Agent("gpt-4o", [get_weather], base_url=backend.url)
        result = await agent.run(QUESTION.text)
        assert result.canisters == (QUESTION, INVOCATION, RESULT, ANSWER)
        # As the seed has it, the canister without content included, it may go on.
        history = [QUESTION, core.AssistantCanister(None), INVOCATION, RESULT, ANSWER]
        await agent.run("And now?", history=history)
        backend.assert_complete()
    assert [asked.body["messages"] for asked in backend.requests] == [said[:1], said[:3], said]


def test_without_tools():
    model = ScriptedModel(["Hello."])
    agent = Agent(model)
    result = agent.run_sync("Hi")
    said = (core.UserCanister("Hi"), core.AssistantCanister("Hello."))
    assert result == RunResult("Hello.", "completed", said, core.Usage(), 1, agent=agent, _output="Hello.")
    assert model.requests[0].tools == ()


def test_what_the_model_is_asked():
    files = Ensemble("files", [get_weather])
    model = ScriptedModel(["Hello."])
    agent = Agent(
        model, [multiply], ensembles=[files], instructions="Be brief.", controls=core.Controls(temperature=0.5)
    )
    agent.run_sync("Hi")
    (request,) = model.requests
    assert [*request.canisters] == [core.SupervisorCanister("Be brief."), core.UserCanister("Hi")]
    assert [each.name for each in request.tools] == ["multiply", "get_weather"]
    assert (request.tool_choice, request.controls, request.stream) == ("auto", core.Controls(temperature=0.5), True)


def test_tools_that_share_a_name_are_called_by_their_ensembles():
    @tool(name="get_weather")
    def other(location: str) -> str:
        """Get the weather of elsewhere."""
        return f"rain in {location}"

    model = ScriptedModel([Call("elsewhere__get_weather", {"location": "Oslo"}), "Rain."])
    result = Agent(model, [get_weather], ensembles=[Ensemble("elsewhere", [other])]).run_sync("Oslo?")
    assert [each.name for each in model.requests[0].tools] == ["local__get_weather", "elsewhere__get_weather"]
    assert result.canisters[2].text == "rain in Oslo"


def test_a_conversation_goes_on():
    model = ScriptedModel([Call("multiply", {"a": 6, "b": 7}), "It is 42.", "I said 42."])
    agent = Agent(model, [multiply], instructions="Be brief.")
    first = agent.run_sync("6 times 7?")
    second = agent.run_sync("What?", history=first.canisters)
    # The instructions are said once.
    assert [*model.requests[2].canisters] == [*first.canisters, core.UserCanister("What?")]
    assert second.canisters == (core.UserCanister("What?"), core.AssistantCanister("I said 42."))


@table(
    "history",
    [
        [core.UserCanister("Where?"), core.AssistantCanister("I will look.")],
        [
            core.UserCanister("Where?"),
            core.AssistantCanister((core.ReasoningContent("hm"),)),
            core.SupervisorCanister("Be brief."),
        ],
        [core.AssistantCanister("Hello.")],
    ],
    ids=["text", "a thought and an instruction", "a greeting"],
)
def test_a_history_that_ends_with_the_model_is_asked_to_go_on(history):
    model = ScriptedModel(["There."])
    result = Agent(model).run_sync(history=history)
    assert [each.text for each in result.canisters] == ["Go on.", "There."]
    assert model.requests[0].canisters[-1] == core.UserCanister("Go on.")


def test_a_history_that_ends_with_the_user_is_asked_as_it_is():
    model = ScriptedModel(["There."])
    Agent(model).run_sync(history=[core.UserCanister("Where?"), core.SupervisorCanister("Be brief.")])
    assert [each.text for each in model.requests[0].canisters] == ["Where?", "Be brief."]


def test_instructions_come_before_a_history_that_has_none():
    model = ScriptedModel(["Yes."])
    history = [core.UserCanister("Hi"), core.AssistantCanister("Hello.")]
    result = Agent(model, instructions="Be brief.").run_sync("Still there?", history=history)
    assert [type(each) for each in model.requests[0].canisters] == [
        core.SupervisorCanister,
        core.UserCanister,
        core.AssistantCanister,
        core.UserCanister,
    ]
    assert result.canisters == (core.UserCanister("Still there?"), core.AssistantCanister("Yes."))


def test_identifiers_are_unique_in_a_conversation():
    call = Call("multiply", {"a": 6, "b": 7})
    model = ScriptedModel(
        [[call, Call("multiply", {"a": 1, "b": 1})], Call("multiply", {"a": 2, "b": 2}), "4", call, "42"]
    )
    agent = Agent(model, [multiply])
    first = agent.run_sync("Multiply.")
    second = agent.run_sync("Again.", history=first.canisters)
    identifiers = [
        each.identifier for each in (*first.canisters, *second.canisters) if isinstance(each, core.InvocationCanister)
    ]
    assert len({*identifiers}) == len(identifiers) == 4


def test_auxdata_is_the_agents_and_the_runs():
    @tool
    def who(context: Context) -> str:
        """Say who asks."""
        return f"{context.auxdata['user']} at {context.auxdata['place']}"

    model = ScriptedModel([Call("who"), "ok", Call("who"), "ok"])
    agent = Agent(model, [who], auxdata={"user": "ada", "place": "home"})
    assert agent.run_sync("Who?").canisters[2].text == "ada at home"
    assert agent.run_sync("Who?", auxdata={"place": "work"}).canisters[2].text == "ada at work"


def test_a_namespace_lives_as_long_as_its_run():
    @tool
    def count(number: int, context: Context) -> int:
        """Count the calls."""
        context.namespace["calls"] = context.namespace.get("calls", 0) + number
        return context.namespace["calls"]

    script = [Call("count", {"number": 1}), Call("count", {"number": 2}), "ok"]
    model = ScriptedModel([*script, *script])
    agent = Agent(model, [count])
    for _ in range(2):
        said = agent.run_sync("Count.").canisters
        assert [each.text for each in said if isinstance(each, core.ResultCanister)] == ["1", "3"]


def test_usage_is_the_sum_of_the_replies():
    model = ScriptedModel(
        [[Call("multiply", {"a": 6, "b": 7}), core.Usage(10, 5, 2, 1)], ["42", core.Usage(1, 1), core.Usage(20, 3)]],
    )
    # Of several in one reply the last counts.
    assert Agent(model, [multiply]).run_sync("6 times 7?").usage == core.Usage(30, 8, 2, 1)


@table(
    ("arguments", "options", "message"),
    [
        (("mystery",), {}, "mystery: no provider is named"),
        (("mystery",), {"base_url": "http://127.0.0.1:1/v1", "mode": "magic"}, "no mode 'magic'"),
        (("mystery",), {"base_url": "http://127.0.0.1:1/v1", "profile": {"speed": 1}}, "no fact 'speed'"),
    ],
)
def test_what_a_caller_gets_wrong_is_told_at_once(arguments, options, message):
    with pytest.raises(CallerError) as caught:
        Agent(*arguments, **options)
    assert message in str(caught.value)


async def test_a_providers_failure_is_raised_by_run_and_is_the_end_of_a_stream():
    failed = core.ReplyFailed("provider", "overloaded", "too many requests", "{}")

    agent = Agent(ScriptedModel([[core.TextPiece("Hel"), failed], [failed]]), [multiply])
    with pytest.raises(ProviderError) as caught:
        await agent.run("Hi")
    assert (str(caught.value), caught.value.code, caught.value.excerpt) == ("too many requests", "overloaded", "{}")
    run = agent.stream("Hi")
    events = [event async for event in run]
    assert events[-2:] == [failed, core.RunEnded("failed", "")]
    assert (run.result.state, run.result.why) == ("failed", "too many requests")
    assert (run.failure.code, run.failure.party) == ("overloaded", "provider")


# Over HTTP, in each mode.

NATIVE = [
    core.ReplyStarted(),
    core.TextPiece("I shall "),
    core.TextPiece("multiply."),
    core.InvocationStarted(0, "call_1", "multiply"),
    core.ArgumentsPiece(0, '{"a":48213,'),
    core.ArgumentsPiece(0, '"b":9177}'),
    core.InvocationEnded(0, "call_1", "multiply", {"a": 48213, "b": 9177}, '{"a":48213,"b":9177}'),
    core.Usage(10, 5),
    core.ReplyEnded("invocations"),
]
FENCED = 'I shall multiply.\n```json\n{"name": "multiply", "arguments": {"a": 48213, "b": 9177}}\n```\n'
ACTION = '{"action": {"tool": "multiply", "arguments": {"a": 48213, "b": 9177}}}'
MODES = [
    ("native", NATIVE, "It is 442450701."),
    ("native", FENCED, "It is 442450701."),
    ("structured", ACTION, '{"action": {"answer": "It is 442450701."}}'),
    ("validated", FENCED, "It is 442450701."),
    ("parsed", FENCED, "It is 442450701."),
]
IDS = ["native", "native, leaked into the text", "structured", "validated", "parsed"]


@table("chunk_size", [None, 1, 7])
@table(("mode", "calling", "answer"), MODES, ids=IDS)
async def test_every_mode_calls_and_answers(mode, calling, answer, chunk_size):
    async with FakeBackend([calling, answer], chunk_size=chunk_size) as backend:
        run = Agent("fake-model", [multiply], base_url=backend.url, mode=mode).stream("48213 times 9177?")
        events = [event async for event in run]
        backend.assert_complete()
    result, requests = run.result, backend.requests
    assert (result.output, result.state, result.rounds) == ("It is 442450701.", "completed", 2)
    invocation, given = [
        each for each in result.canisters if isinstance(each, (core.InvocationCanister, core.ResultCanister))
    ]
    assert (invocation.name, invocation.arguments) == ("multiply", {"a": 48213, "b": 9177})
    assert (given.invocation_id, given.text, given.error) == (invocation.identifier, "442450701", None)
    said = "".join([event.text for event in events if isinstance(event, core.TextPiece)])
    # Neither a call nor what frames it is shown as text.
    assert said.replace("\n", "") == f"{'' if mode == 'structured' else 'I shall multiply.'}It is 442450701."
    first, second = [asked.body for asked in requests]
    assert (first["stream"], second["stream"]) == (True, True)
    assert ("tools" in first, "response_format" in first) == (mode == "native", mode == "structured")
    prompted = first["messages"][0]
    assert (prompted["role"] == "system" and "Multiply two whole numbers." in prompted["content"]) == (mode != "native")
    # What was said before is sent again as it was.
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert "442450701" in json.dumps(second["messages"])


def test_parsed_hands_arguments_over_as_they_are():
    called = FENCED.replace("48213", '"48213"')

    async def scenario(mode):
        async with FakeBackend([called, "ok"]) as backend:
            result = await Agent("fake-model", [multiply], base_url=backend.url, mode=mode).run("48213 times 9177?")
        return next(each.text for each in result.canisters if isinstance(each, core.ResultCanister))

    assert asyncio.run(scenario("validated")) == "442450701"
    assert asyncio.run(scenario("parsed")) == "48213" * 9177


async def test_a_scratchpad_is_reasoning():
    replies = ['{"action": {"scratchpad": "I know it."}}', '{"action": {"answer": "It is 42."}}']
    async with FakeBackend(replies) as backend:
        result = await Agent("fake-model", [multiply], base_url=backend.url, mode="structured").run("6 times 7?")
    assert (result.output, result.rounds) == ("It is 42.", 2)
    assert result.canisters[1].content[0].text == "I know it."


def test_a_leaked_call_is_told_like_any_other():
    async def scenario(calling):
        async with FakeBackend([calling, "ok"]) as backend:
            run = Agent("fake-model", [multiply], base_url=backend.url, mode="native").stream("48213 times 9177?")
            return [type(event) async for event in run]

    native, leaked = ([*dict.fromkeys(asyncio.run(scenario(calling)))] for calling in (NATIVE, FENCED))
    assert set(native) == set(leaked)
    assert native[-2:] == leaked[-2:] == [core.ResultReady, core.RunEnded]


@table("how", ["cancel", "break"])
async def test_leaving_in_the_middle_of_a_reply_reaches_the_backend(how):
    async with FakeBackend([Silence(after=[core.ReplyStarted(), core.TextPiece("Hel")])]) as backend:
        run = Agent("fake-model", [multiply], base_url=backend.url).stream("Hi")
        said = asyncio.Event()

        async def follow():
            async with run:
                async for event in run:
                    if isinstance(event, core.TextPiece):
                        said.set()
                        if how == "break":
                            break

        following = asyncio.create_task(follow())
        await said.wait()
        if how == "cancel":
            following.cancel()
        await backend.disconnected.wait()
        await asyncio.wait([following])
    result = run.result
    assert (result.state, result.text, result.why) == ("cancelled", "Hel", "cancelled")
    assert result.canisters == (core.UserCanister("Hi"), core.AssistantCanister("Hel"))


@table(
    ("reply", "code"),
    [
        (Html(), "malformed"),
        (StatusReply(401, {"error": {"message": "no such key"}}), "authentication_error"),
        (
            StatusReply(400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
            "context_length_exceeded",
        ),
    ],
)
async def test_what_a_backend_refuses(reply, code):
    async with FakeBackend([reply]) as backend:
        with pytest.raises(ProviderError) as caught:
            await Agent("fake-model", base_url=backend.url).run("Hi")
    assert caught.value.code == code


async def test_runs_at_once_share_an_agent():
    async with FakeBackend(lambda body: body["messages"][-1]["content"].upper()) as backend:
        agent = Agent("fake-model", base_url=backend.url)
        results = await asyncio.gather(*(agent.run(f"hello {number}") for number in range(10)))
        assert [result.output for result in results] == [f"HELLO {number}" for number in range(10)]


@contextmanager
def elsewhere(backend):
    """The backend in an event loop of its own."""
    started, over = queue.SimpleQueue(), asyncio.Event()

    async def serve():
        async with backend:
            started.put(asyncio.get_running_loop())
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop = started.get(timeout=120)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def test_an_agent_outlives_its_event_loops():
    backend = FakeBackend(["one", "two"])
    with elsewhere(backend):
        agent = Agent("fake-model", base_url=backend.url)
        assert [agent.run_sync("Hi").output for _ in range(2)] == ["one", "two"]


def test_a_tool_that_an_ensemble_gets_later_is_there_for_the_next_run():
    ensemble = Ensemble("late")
    model = ScriptedModel([[Call("added")], "None yet.", [Call("added")], "Done."])
    agent = Agent(model, ensembles=[ensemble])

    @tool
    def added() -> str:
        return "here"

    agent.run_sync("Go.")
    before = agent.registry
    ensemble.add_invoker(added)
    result = agent.run_sync("Go.")
    assert [len(request.tools) for request in model.requests] == [0, 0, 1, 1]
    assert result.canisters[2].text == "here"
    assert agent.registry is agent.registry is not before


async def test_what_is_printed_of_agents_runs_and_results_is_short():
    tools = [Tool(get_weather, name=f"tool_{number}") for number in range(7)]
    agent = Agent(ScriptedModel(["It is fine. " * 100]), tools)
    assert repr(agent) == "<Agent scripted: tool_0, tool_1, tool_2, tool_3, tool_4, 2 more>"
    assert repr(Agent(ScriptedModel([]))) == "<Agent scripted>"
    run = agent.stream("How is it?")
    assert repr(run) == "<Run of scripted: not begun>"

    async for _ in run:
        assert repr(run) in {"<Run of scripted: under way>", "<Run of scripted: completed>"}
    assert repr(run) == "<Run of scripted: completed>"
    assert repr(run.result) == "<RunResult completed: 'It is fine. ... It is fine. ', rounds=1, canisters=2>"

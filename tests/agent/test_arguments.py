"""What an agent is given: mistakes are told at once, and nothing of a history is lost."""

import asyncio

import pydantic
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.agent.runs import add
from tests.tables import table

from callboard import Agent, Context, Conversation, Ensemble, core, execute_invoker, tool
from callboard.errors import CallerError
from callboard.loop import ContextWindow
from callboard.testing import Call, ScriptedModel
from callboard.wires.chat import encode_messages

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


@tool
def subtract(a: int, b: int) -> int:
    return a - b


@table(
    ("arguments", "message"),
    [
        ({"on_error": "failfast"}, "on_error: 'failfast' is not valid; did you mean 'fail_fast'?"),
        (
            {"on_error": None, "on_repeated_call": "x"},
            "on_repeated_call: 'x' is not valid; there are run, final_answer, warn",
        ),
        ({"answer_after": "zz"}, "answer_after: 'zz' is not valid; there are model, results"),
        ({"on_error": 3}, "on_error: 3 is not valid; there are fail_fast, feedback"),
        ({"limits": 3}, "limits: a int is not valid; give Limits(...)"),
        ({"limits": {"rounds": 3}}, "limits: a dict is not valid; give Limits(...)"),
        ({"max_parallel_calls": "3"}, "max_parallel_calls: a str is not valid; give a count of calls, at least 1"),
        ({"max_parallel_calls": 0}, "max_parallel_calls: a int is not valid; give a count of calls, at least 1"),
        ({"auxdata": [1]}, "auxdata: a list is not valid; give a mapping"),
        ({"ensembles": "io"}, "ensembles: a tuple is not valid; give a list of Ensembles"),
        ({"ensembles": Ensemble("io")}, "ensembles: a Ensemble is not valid; give a list of Ensembles"),
        ({"policy": [("*", "deny")]}, "policy: a list is not valid; give a Policy"),
        ({"approve": "allow"}, "approve: a str is not valid; give a function of the invocation and the reason"),
        (
            {"controls": {"temperature": 0}},
            "controls: a dict is not valid; give Controls(...) with a temperature from 0",
        ),
        (
            {"controls": core.Controls(temperature="hot")},
            "controls: a Controls is not valid; give Controls(...) with a temp",
        ),
        (
            {"controls": core.Controls(max_tokens=0)},
            "controls: a Controls is not valid; give Controls(...) with a temp",
        ),
        ({"store": "file.jsonl"}, "store: a str is not valid; give a Store, such as Conversation.begin()"),
        ({"model": None}, "model: a NoneType is not valid; give a Model or the name of one, such as 'openai:gpt-4o'"),
        ({"model": ScriptedModel}, "model: a type is not valid; give a Model or the name of one, such as"),
        ({"mode": "native"}, "model: a Model has its own URL, mode and profile; give its name instead"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "model: a Model has its own URL, mode and profile"),
        ({"instructions": 3}, "instructions: "),
        ({"tool_choice": "requird"}, "tool_choice: "),
        ({"context_window": 3}, "context_window: "),
        ({"context_window": ContextWindow}, "context_window: "),
        ({"event_filter": "HallucinatedResultFilter"}, "event_filter: "),
        ({"clock": 3}, "clock: "),
        ({"base_url": 3}, "base_url: "),
        ({"mode": 3}, "mode: "),
        ({"profile": ["native"]}, "profile: "),
    ],
)
def test_what_an_agent_cannot_be_made_of_is_refused_at_once(arguments, message):
    with pytest.raises(CallerError) as caught:
        Agent(**{"model": ScriptedModel([]), **arguments})
    assert str(caught.value).startswith(message)


@table(
    ("tools", "names", "message"),
    [
        ([], ["io", "io"], "ensembles[1]: two ensembles are named 'io'; the other is at ensembles[0]"),
        ([add], ["io", "local"], "ensembles[1]: two ensembles are named 'local'; the other is at tools"),
    ],
)
@table("other", [add, subtract])
def test_ensembles_of_one_name_are_refused(tools, names, message, other):
    ensembles = [Ensemble(name, [other if at else add]) for at, name in enumerate(names)]
    with pytest.raises(CallerError) as caught:
        Agent(ScriptedModel([]), tools, ensembles=ensembles)
    assert str(caught.value) == message


def test_a_setting_that_is_changed_later_is_checked_too():
    agent = Agent(ScriptedModel([]), on_error="feedback")
    for name, value in {"on_error": "failfast", "limits": 3, "model": None}.items():
        with pytest.raises(CallerError, match=f"^{name}: "):
            setattr(agent, name, value)
    agent.on_error, agent.label = "fail_fast", "not a setting"
    assert (agent.on_error, agent.label) == ("fail_fast", "not a setting")


def test_an_ensemble_local_may_stand_alone():
    assert [*Agent(ScriptedModel([]), ensembles=[Ensemble("local", [add])]).registry] == ["add"]


def test_ensembles_may_come_from_a_generator():
    model = ScriptedModel(["Hi."])
    Agent(model, ensembles=(each for each in [Ensemble("local", [add])])).run_sync("Hi.")
    assert [each.name for each in model.requests[0].tools] == ["add"]


def test_a_tool_in_no_list_is_refused():
    with pytest.raises(CallerError, match="is not a list; put it into a list"):
        Agent(ScriptedModel([]), add)


# A history.

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is 2 and 3?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "5"},
    {"role": "assistant", "content": "5."},
]
CANISTERS = [
    core.SupervisorCanister("Be brief."),
    core.UserCanister("What is 2 and 3?"),
    core.InvocationCanister("c1", "add", {"a": 2, "b": 3}, '{"a": 2, "b": 3}'),
    core.ResultCanister("5", invocation_id="c1"),
    core.AssistantCanister("5."),
]


def test_a_history_may_be_messages_of_chat_completions():
    model = ScriptedModel(["Eleven."])
    Agent(model, [add]).run_sync("And 5 and 6?", history=MESSAGES)
    assert list(model.requests[0].canisters) == [*CANISTERS, core.UserCanister("And 5 and 6?")]


def test_canisters_and_messages_may_stand_side_by_side():
    model = ScriptedModel(["Eleven."])
    Agent(model, [add]).run_sync("And 5 and 6?", history=(each for each in [*CANISTERS[:2], *MESSAGES[2:]]))
    assert list(model.requests[0].canisters) == [*CANISTERS, core.UserCanister("And 5 and 6?")]


def check_shapes(messages):
    """Validate the messages as OpenAI's own library declares them."""
    pydantic.TypeAdapter(list[ChatCompletionMessageParam]).validate_python(messages, strict=True)
    return messages


def test_a_conversation_leaves_as_messages_and_returns_unchanged(tmp_path):
    model = ScriptedModel(["Five.", "Eleven."])
    said = core.AssistantCanister(
        (core.ReasoningContent("2 and 3.", origin=model.name), core.TextualContent("Adding."))
    )
    conversation = Conversation.begin(tmp_path)
    for canister in [*CANISTERS[:2], said, *CANISTERS[2:4]]:
        conversation.append(canister)
    result = Agent(model, [add], store=conversation).run_sync(history=conversation.canisters)
    assert result.messages() == [{"role": "assistant", "content": "Five."}]
    messages = check_shapes(conversation.messages())
    assert messages[2]["content"] == "Adding."
    assert messages[2]["tool_calls"][0]["id"] == "c1"
    assert messages[3:] == [MESSAGES[3], {"role": "assistant", "content": "Five."}]
    with_thoughts = conversation.messages(reasoning=True)
    assert with_thoughts[2] == {**messages[2], "reasoning_content": "2 and 3."}
    again = Agent(model, [add]).run_sync("And 5 and 6?", history=with_thoughts)
    seen = model.requests[1].canisters
    assert [type(each) for each in seen[:-1]] == [type(each) for each in conversation.canisters]
    assert encode_messages(seen[:-1], reasoning=True) == with_thoughts
    assert check_shapes(again.messages()) == [
        {"role": "user", "content": "And 5 and 6?"},
        {"role": "assistant", "content": "Eleven."},
    ]


def test_a_call_that_waits_leaves_without_a_result_and_still_waits_when_it_returns():
    @tool(deferred=True)
    def book(room: int) -> str:
        """Book a room."""

    agent = Agent(ScriptedModel([Call("book", {"room": 7}), "Booked."]), [book])
    first = agent.run_sync("Book room 7.")
    messages = check_shapes(first.messages())
    assert [each["role"] for each in messages] == ["user", "assistant"]
    results = {first.pending[0].identifier: "yes"}
    assert agent.run_sync(history=messages, results=results).output == "Booked."
    unanswered = [*first.canisters, core.UserCanister("Never mind.")]
    assert [each["role"] for each in encode_messages(unanswered)] == ["user", "assistant", "tool", "user"]


@table(
    ("history", "message"),
    [
        (None, "history: a NoneType is not a history; give a list of canisters or messages"),
        ("Hello", "history: a str is not a history; give a list of canisters or messages"),
        (MESSAGES[0], "history: a dict is not a history"),
        (["Hello"], "history[0]: a str is not a canister; give canisters, or messages such as"),
        ([CANISTERS[0], None], "history[1]: a NoneType is not a canister"),
        ([CANISTERS], "history[0]: a list is not a canister"),
        ([{"role": "usr", "content": "x"}], "history[0].role: not a chat request: Invalid value 'usr'"),
        ([{"content": "x"}], "history[0]: not a chat request: Object missing required field `role`"),
        ([CANISTERS[0], {"role": "user", "parts": [{"text": "x"}]}], "history[1]: a message without content"),
        ([{"role": "user", "content": [{"type": "tool_result"}]}], "history[0].content[0].type: not a chat request"),
        ([{"type": "function_call", "name": "add"}], "history[0]: not a chat request"),
    ],
)
def test_what_is_no_history_is_refused_with_its_place(history, message):
    model = ScriptedModel(["Hi."])
    with pytest.raises(CallerError) as caught:
        Agent(model).run_sync("Hi.", history=history)
    assert str(caught.value).startswith(message)
    assert model.requests == []


# A prompt.


@table(
    ("prompt", "canister"),
    [
        (core.UserCanister("Hi."), core.UserCanister("Hi.")),
        (["What is this?", core.PictureContent(PNG)], core.UserCanister(["What is this?", core.PictureContent(PNG)])),
        (core.PictureContent(PNG), core.UserCanister(core.PictureContent(PNG))),
    ],
)
def test_a_prompt_may_be_a_canister_or_contents(prompt, canister):
    model = ScriptedModel(["A picture."])
    Agent(model).run_sync(prompt)
    assert list(model.requests[0].canisters) == [canister]


@table(
    ("prompt", "message"),
    [
        ([{"role": "user", "content": "x"}], "a dict is not a content; give a text, TextualContent, PictureContent"),
        ({"role": "user"}, "a dict is not a content"),
        (b"Hi.", "a bytes is not a content"),
        (3, "a int is not a content"),
        ("", "prompt: there is nothing to ask; give a prompt or a history"),
    ],
)
def test_what_is_no_prompt_is_refused(prompt, message):
    with pytest.raises(CallerError) as caught:
        Agent(ScriptedModel(["Hi."])).run_sync(prompt)
    assert str(caught.value).startswith(message)


def test_run_sync_says_what_to_do_where_an_event_loop_runs():
    async def notebook():
        Agent(ScriptedModel(["Hi."])).run_sync("Hi.")

    with pytest.raises(CallerError, match=r"^run_sync cannot wait where an event loop runs; write `await agent.run\("):
        asyncio.run(notebook())


# What tools see.


def test_a_tool_cannot_change_the_auxdata_of_others():
    @tool
    def grab(context: Context) -> str:
        context.auxdata["role"] = "admin"
        return "done"

    auxdata = {"role": "guest"}
    result = Agent(ScriptedModel([Call("grab"), "No."]), [grab], auxdata=auxdata).run_sync("?")
    assert result.canisters[2].error.category == "execution"
    assert auxdata == {"role": "guest"}


def test_a_tool_sees_its_invoker_whoever_made_the_context():
    @tool
    def who(context: Context) -> str:
        """Say who."""
        return context.invoker.name if context.invoker else "nobody"

    invoker = Ensemble("local", [who]).access_invoker("who")
    assert asyncio.run(execute_invoker(invoker, {}, Context({"a": 1}))).text == "who"
    assert asyncio.run(invoker(Context(), {})) == "who"


def test_an_option_of_a_run_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'limit'; did you mean 'limits'"):
        Agent(ScriptedModel([])).stream("Hi", limit=3)

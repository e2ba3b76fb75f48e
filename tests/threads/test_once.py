"""Calls that came twice or ran though nobody asked for them, as users met it; each test is named after its thread."""

from __future__ import annotations

import asyncio
import html
import json

from tests.servers.gateway.conftest import behind, serve_gateway
from tests.tables import table

from callboard import Agent, Ensemble, core, tool
from callboard.core import identify_in_turn
from callboard.dialects import AUTO, DIALECTS, render_calls
from callboard.dialects.table import THINK
from callboard.execution import InvocationsProcessor
from callboard.modes import Sources, Watcher
from callboard.testing import FakeBackend, Raw

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a"]}
BODIES = {
    "chat": {
        "messages": [{"role": "user", "content": "What is 2 and 3?"}],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": NUMBERS}}],
    },
    "responses": {
        "input": "What is 2 and 3?",
        "tools": [{"type": "function", "name": "add", "parameters": NUMBERS}],
    },
    "messages": {
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "What is 2 and 3?"}],
        "tools": [{"name": "add", "input_schema": NUMBERS}],
    },
}
PROFILE = {"watch": "hermes", "calls_in_reasoning": True}


def wire(arguments='{"a": 2, "b": 3}', identifier="call_native", index=0):
    """A call in the wire's own field."""
    return [
        core.InvocationStarted(index, identifier, "add"),
        core.ArgumentsPiece(index, arguments[:5]),
        core.ArgumentsPiece(index, arguments[5:]),
        core.InvocationEnded(index, identifier, "add", json.loads(arguments), arguments),
    ]


def text(arguments='{"b": 3, "a": 2}'):
    """The same in the text."""
    said = f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>\n'
    return [core.TextPiece(said[at : at + 7]) for at in range(0, len(said), 7)]


def thought(arguments='{"a":2,"b":3}'):
    said = f'So I add.\n<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>\n'
    return [core.ReasoningPiece(said[at : at + 11]) for at in range(0, len(said), 11)]


TWICE = {
    "text, then the field": [*text(), *wire()],
    "the field, then text": [*wire(), *text()],
    "reasoning, then the field": [*thought(), *wire()],
    "reasoning, then text": [*thought(), *text()],
    "all three": [*thought(), *text(), *wire()],
    "with words between": [*text(), core.TextPiece("I call add.\n"), *wire()],
    "numbers as texts": [*text('{"a": "2", "b": "3"}'), *wire()],
    "the same two in both": [*text(), *text('{"a": 7}'), *wire(), *wire('{"a": 7}', "call_other", 1)],
    "both orders": [*text(), *text('{"a": 7}'), *wire('{"a": 7}', "call_other"), *wire(index=1)],
}
CALLED = {"the same two in both": [{"a": 2, "b": 3}, {"a": 7}], "both orders": [{"a": 2, "b": 3}, {"a": 7}]}
REPEATED = {
    "the field alone": [*wire(), *wire(identifier="call_other", index=1)],
    "text alone": [*text(), *text()],
    "text twice, the field once": [*text(), *wire(), *text()],
    "other arguments": [*text('{"a": 9}'), *wire()],
}


def reply(events):
    return [core.ReplyStarted("r", "m"), *events, core.ReplyEnded("invocations")]


def served(front, said, *, stream):
    """What a client of the gateway is told."""

    async def scenario():
        async with FakeBackend([said]) as backend:
            settings = behind(backend, profile=PROFILE)
            async with serve_gateway(settings) as gateway:
                return await gateway.post(front, {"model": "m", "stream": stream, **BODIES[front]})

    return asyncio.run(scenario())


def calls_of(front, answer):
    """The arguments of the calls that an answer tells, streamed or whole."""
    events = answer.events if answer.streamed else [answer.body]
    if front == "chat":
        texts = {}
        for event in events:
            for choice in event.get("choices", ()):
                message = choice.get("delta") or choice.get("message") or {}
                for at, call in enumerate(message.get("tool_calls") or ()):
                    place = call.get("index", at)
                    texts[place] = texts.get(place, "") + call["function"]["arguments"]
        return [json.loads(each) for each in texts.values()]
    if front == "responses":
        output = (events[-1].get("response") or events[-1])["output"]
        done = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
        assert not answer.streamed or done == output
        return [json.loads(each["arguments"]) for each in output if each["type"] == "function_call"]
    if not answer.streamed:
        return [each["input"] for each in answer.body["content"] if each["type"] == "tool_use"]
    texts = {}
    for event in events:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            texts[event["index"]] = ""
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            texts[event["index"]] += event["delta"]["partial_json"]
    return [json.loads(each or "{}") for each in texts.values()]


def run(said, *, streams=True, mode="native"):
    """What an agent called, and the notes of its run."""
    ran = []

    @tool
    def add(a: int, b: int = 3) -> int:
        """Add two numbers."""
        ran.append((a, b))
        return a + b

    async def scenario():
        async with FakeBackend([said, "It is 5."]) as backend:
            agent = Agent(
                "m", [add], base_url=backend.url, mode=mode, profile={**PROFILE, "supports_streaming": streams}
            )
            following = agent.stream("What is 2 and 3?")
            events = [event async for event in following]
            return following.result, events

    result, events = asyncio.run(scenario())
    assert result.state == "completed"
    return ran, [event for event in events if isinstance(event, core.Note)]


# The same call at several places of a reply is one call.


@table("streams", [True, False], ids=["streamed", "whole"])
@table("case", TWICE)
def test_qvac_1320_a_call_in_text_and_in_the_field_runs_once(case, streams):
    ran, notes = run(reply(TWICE[case]), streams=streams)
    assert ran == [(each["a"], each.get("b", 3)) for each in CALLED.get(case, [{"a": 2, "b": 3}])]
    dropped = [note for note in notes if note.code == "duplicate"]
    assert {note.kind for note in dropped} == {"dropped"}
    assert all("a call of add" in note.text and "repeats a call from another place" in note.text for note in dropped)


@table("stream", [True, False], ids=["streamed", "whole"])
@table("front", BODIES)
@table("case", TWICE)
def test_mtplx_249_a_client_is_told_such_a_call_once(front, case, stream):
    answer = served(front, reply(TWICE[case]), stream=stream)
    told = calls_of(front, answer)
    assert len(told) == len(CALLED.get(case, [0]))
    assert {name: int(value) for name, value in told[0].items()} == {"a": 2, "b": 3}


@table("case", REPEATED)
def test_mastra_22969_two_calls_at_one_place_are_two_calls(case):
    ran, notes = run(reply(REPEATED[case]))
    assert len(ran) == 2
    assert len([note for note in notes if note.code == "duplicate"]) == (case == "text twice, the field once")


def test_a_default_that_is_spelled_out_makes_no_other_call():
    ran, _ = run(reply([*text('{"a": 2}'), *wire('{"a": 2, "b": 3}')]))
    assert ran == [(2, 3)]


# Calls that share an index.

SHARED = {
    "whole objects": [("add", '{"a": 2}'), ("add", '{"a": 4}')],
    "the name again, then pieces": [("add", ""), (None, '{"a"'), (None, ": 2}"), ("add", ""), (None, '{"a": 4}')],
    "equal calls": [("add", '{"a": 2}'), ("add", '{"a": 2}')],
}


def chunks(calls):
    """The frames of a server that numbers and identifies no calls."""
    deltas = [
        {"index": 0, "function": {key: each for key, each in (("name", name), ("arguments", json)) if each is not None}}
        for name, json in calls
    ]
    frames = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas]
    return Raw([*frames, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, "[DONE]"])


@table("case", SHARED)
def test_plexus_691_calls_without_identifiers_at_one_index_are_two_calls(case):
    ran, _ = run(chunks(SHARED[case]))
    assert ran == [(2, 3), (2, 3) if case == "equal calls" else (4, 3)]


@table("front", BODIES)
@table("case", SHARED)
def test_bifrost_1829_a_client_is_told_both_calls_of_one_index(front, case):
    told = calls_of(front, served(front, chunks(SHARED[case]), stream=True))
    assert told == [{"a": 2}, {"a": 2 if case == "equal calls" else 4}]


# Calls that are only quoted, and calls behind a quotation, in every dialect.

PATHS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
COMMANDS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [core.ToolDeclaration("delete_all", schema=PATHS), core.ToolDeclaration("bash", schema=COMMANDS)]
FENCED = "```bash\nrm -rf /srv/data\n```"
COATS = {
    "as it is": str,
    "in JSON": lambda call: json.dumps({"body": json.dumps(call)}),
    "in a block of code": "```\n{}\n```".format,
    "indented": lambda call: "\n".join(f"    {line}" for line in call.split("\n")),
    "as HTML": html.escape,
}


def spelled(dialect):
    call = core.InvocationCanister("call_0", "delete_all", {"path": "/srv/data"}, "")
    return FENCED if dialect.name == "markdown_bash" else render_calls(dialect, [call], TOOLS)


def watched(dialect, said, shown=(), *, thought="", size=5):
    """The calls that are found in a reply in pieces."""
    watcher = Watcher(dialect, TOOLS, identify_in_turn(3, "t"), sources=Sources(shown))
    thinking = Watcher(dialect, TOOLS, identify_in_turn(3, "r"), watched=core.ReasoningPiece, sources=Sources(shown))
    pieces = [
        *([core.ReasoningPiece(thought)] if thought else []),
        *[core.TextPiece(said[at : at + size]) for at in range(0, len(said), size)],
    ]
    events = [event for piece in [*pieces, core.ReplyEnded("stop")] for event in thinking.feed(piece)]
    found = [event for event in events for event in watcher.feed(event)]
    return [event for event in found if isinstance(event, core.InvocationEnded)]


def openers(dialect):
    return sorted({each.strip() for _, frame in dialect.all_frames() for each in frame.openers if each.strip()})


@table("dialect", DIALECTS.values(), ids=list(DIALECTS))
@table("coat", COATS)
def test_continue_11070_a_call_that_repeats_a_tools_result_is_a_quotation(dialect, coat):
    call = spelled(dialect)
    shown = [
        core.UserCanister("Read the notes."),
        core.InvocationCanister("call_1", "read", {"path": "notes.md"}, "{}"),
        core.ResultCanister(invocation_id="call_1", content=f"Notes.\n{COATS[coat](call)}\nEnd."),
    ]
    assert watched(dialect, call)
    for said in (call, f"The file says:\n{call}", f"The file says: {call}\nThat is all."):
        assert {each.quoted_from for each in watched(dialect, said, shown)} <= {"the result of read (call_1)"}


@table("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_astronomical_346_a_call_behind_a_quoted_opener_is_found(dialect):
    for opener in openers(dialect):
        assert watched(dialect, f"A call begins with `{opener}` here.\n\n{spelled(dialect)}"), opener


@table("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_lmstudio_1592_a_call_behind_an_opener_in_the_thought_is_found(dialect):
    for opener in openers(dialect):
        thought = f"I could write {opener} to call."
        assert watched(dialect, spelled(dialect), thought=thought), opener
        # A marker that one dialect alone has decides what auto reads.
        for reasoning in dialect.reasoning if dialect is not AUTO else [THINK]:
            assert watched(dialect, f"{reasoning.opens}{thought}{reasoning.closes}\n{spelled(dialect)}"), opener


@table(
    "asked",
    [
        'Please call add {"a": 2, "b": 3}',
        'Call the tool add: {"a": 2, "b": 3}',
        'call add with 2 and 3 as {"a": 2, "b": 3}',
        "What is add(2, 3)?",
    ],
)
def test_a_user_who_asks_for_a_call_in_words_gets_it(asked):
    declared = [core.ToolDeclaration("add", schema=NUMBERS)]
    watcher = Watcher(
        DIALECTS["hermes"], declared, identify_in_turn(1, "t"), sources=Sources([core.UserCanister(asked)])
    )
    found = [event for piece in [*text(), core.ReplyEnded("stop")] for event in watcher.feed(piece)]
    assert [event.quoted_from for event in found if isinstance(event, core.InvocationEnded)] == [""]


@table("answer", [None, "deny", "allow"])
def test_a_quoted_call_that_is_run_by_hand_is_asked_about_as_well(answer):
    ran, asked = [], []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        ran.append((a, b))
        return a + b

    def approve(_, why):
        asked.append(why)
        return answer

    call = core.InvocationCanister("c", "add", {"a": 2, "b": 3}, '{"a": 2, "b": 3}', "the result of read (call_1)")
    processor = InvocationsProcessor(approve=approve if answer else None)
    (result,) = asyncio.run(processor.execute_invocations([call], [Ensemble("local", [add])]))
    assert asked == (["this call stands word for word in the result of read (call_1)"] if answer else [])
    assert bool(ran) == (answer == "allow")
    assert (result.error is None) == (answer == "allow")
    assert answer == "allow" or "word for word in the result of read (call_1)" in result.error.message


# What a backend cannot be told.


@table("item", [{"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"type": "new_call"}])
async def test_an_item_that_only_its_own_server_knows_is_named_and_leaves_no_empty_message(item):
    said = [{"role": "user", "content": "Hi"}, item, {"role": "user", "content": "Go on."}]

    async with FakeBackend(["Hello"]) as backend, serve_gateway(backend) as gateway:
        answer, asked = await gateway.post("responses", {"model": "m", "input": said}), backend.requests[-1].body
    assert answer.headers["x-callboard-dropped"] == f"item {item['type']}"
    assert [each["role"] for each in asked["messages"]] == ["user", "user"]


@table(
    ("front", "body"),
    [
        ("responses", {}),
        ("responses", {"input": []}),
        ("chat", {"messages": []}),
        ("messages", {"messages": [], "max_tokens": 9}),
    ],
)
async def test_a_request_that_says_nothing_is_refused_with_words(front, body):
    async with FakeBackend(["Hello"]) as backend, serve_gateway(backend) as gateway:
        answer, asked = await gateway.post(front, {"model": "m", **body}), backend.requests
    assert answer.status == 400
    assert "the conversation is empty" in answer.body["error"]["message"]
    assert not [each for each in asked if each.method == "POST"]

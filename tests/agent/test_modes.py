"""Every mode, over HTTP, on models of every kind, streamed and whole: one call and an answer."""

import asyncio

import msgspec
from tests.agent.runs import result_texts, results
from tests.tables import table

from callboard import Agent, core, tool
from callboard.testing import FakeBackend
from callboard.wires import WIRES

ARGUMENTS = {"query": "Python docs"}
NATIVE = [
    core.InvocationStarted(0, "call_a", "search"),
    core.InvocationEnded(0, "call_a", "search", ARGUMENTS, msgspec.json.encode(ARGUMENTS).decode()),
    core.ReplyEnded("invocations"),
]
FENCED = 'Looking.\n```json\n{"name": "search", "arguments": {"query": "Python docs"}}\n```\n'
ACTION = '{"action": {"tool": "search", "arguments": {"query": "Python docs"}}}'
REPLIES = {
    "native": (NATIVE, "They are at docs.python.org."),
    "structured": (ACTION, '{"action": {"answer": "They are at docs.python.org."}}'),
    "validated": (FENCED, "They are at docs.python.org."),
    "parsed": (FENCED, "They are at docs.python.org."),
}
MODELS = [
    "gpt-4o-mini",
    "gpt-3.5-turbo",
    "claude-3-5-sonnet",
    "llama-3-70b",
    "mistral-7b",
    "qwen3-coder:30b",
    "local-model",
]


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"Results for {query}"


@table("streams", [True, False], ids=["streamed", "whole"])
@table(("name", "wire"), [*((name, "") for name in MODELS), *(("some-model", wire) for wire in WIRES)])
@table("mode", REPLIES)
async def test_every_mode_on_every_model_and_wire(mode, name, wire, streams):
    async with FakeBackend(REPLIES[mode], chunk_size=7) as backend:
        profile = {"supports_streaming": streams, **({"wire": wire} if wire else {})}
        agent = Agent(name, [search], base_url=backend.url, mode=mode, profile=profile)
        result, first = await agent.run("Search for Python docs"), backend.requests[0].body
    assert (result.state, result.output) == ("completed", "They are at docs.python.org.")
    (call,) = [each for each in result.canisters if isinstance(each, core.InvocationCanister)]
    (answer,) = results(result.canisters)
    assert (call.name, call.arguments) == ("search", ARGUMENTS)
    assert (answer.invocation_id, answer.text) == (call.identifier, "Results for Python docs")
    if not wire:
        assert ("tools" in first, "response_format" in first) == (mode == "native", mode == "structured")
        assert bool(first.get("stream")) is streams


@table("name", ["gpt-4o-mini", "llama-3-70b", "local-model"])
async def test_calls_that_leak_into_text_are_found_in_native_mode_too(name):
    async with FakeBackend([FENCED, "There."], chunk_size=3) as backend:
        profile = {"watch": "auto"}
        result = await Agent(name, [search], base_url=backend.url, mode="native", profile=profile).run("?")
    assert [each.name for each in result.canisters if isinstance(each, core.InvocationCanister)] == ["search"]


# The last message of a request.

LAST = {
    "chat": lambda body: body["messages"][-1]["role"],
    "messages": lambda body: body["messages"][-1]["role"],
    "responses": lambda body: body["input"][-1].get("role") or body["input"][-1]["type"],
    "gemini": lambda body: body["contents"][-1]["role"],
}
THEIRS = {
    "chat": {"user", "tool"},
    "messages": {"user"},
    "responses": {"user", "function_call_output"},
    "gemini": {"user"},
}
THOUGHT = [core.ReasoningPiece("hm"), core.ReplyEnded("stop")]
THOUGHTS = dict.fromkeys(REPLIES, THOUGHT) | {"structured": '{"action": {"scratchpad": "hm"}}'}


@table("wire", WIRES)
@table("mode", REPLIES)
async def test_no_request_ends_with_what_the_model_said(mode, wire):
    """Behind a thought, a call, a refused finish and another thought, kept or not by the wire."""
    calling, answer = REPLIES[mode]
    thought = THOUGHTS[mode]
    refused = []

    def check(_):
        refused.append("Not yet.")
        return "Not yet." if len(refused) == 1 else ""

    async with FakeBackend([thought, calling, thought, thought, answer, thought, answer]) as backend:
        profile = {"wire": wire, "merge_system_messages": True, "reasoning_field": ""}
        options = {"base_url": backend.url, "mode": mode, "profile": profile, "output_validator": check}
        agent = Agent("some-model", [search], **options)
        result, bodies = await agent.run("Search for Python docs"), [each.body for each in backend.requests]
    assert (result.state, result.output, len(bodies)) == ("completed", "They are at docs.python.org.", 7)
    for body in bodies:
        assert LAST[wire](body) in THEIRS[wire], body


def structured(replies):
    async def scenario():
        async with FakeBackend(replies, chunk_size=3) as backend:
            result = await Agent("some-model", [search], base_url=backend.url, mode="structured").run("?")
            return result, [each.body["messages"] for each in backend.requests]

    return asyncio.run(scenario())


@table("other", ['{"foo":1}', "[1]", '{"action":null}'])
def test_a_structured_reply_of_another_shape_is_told_with_the_formats_and_asked_for_again(other):
    result, (_, again) = structured([other, '{"action": {"answer": "There."}}'])
    assert (result.state, result.output) == ("completed", "There.")
    assert again[-2] == {"role": "assistant", "content": other}
    assert again[-1]["role"] == "user"
    assert again[-1]["content"].startswith(
        "Error: the reply has none of the formats that were asked for. Reply with one"
    )
    assert '{"action": {"answer": "the answer"}}' in again[-1]["content"]


def test_a_structured_reply_that_stays_of_another_shape_is_no_answer():
    result, bodies = structured(['{"foo":1}'] * 2)
    assert (result.state, len(bodies)) == ("incomplete", 2)
    assert result.why.startswith("Error: the reply has none of the formats")


@table("mode", REPLIES)
async def test_a_flag_as_a_key_in_every_mode(mode):
    @tool(cli={"-q": "query"})
    def look(query: str) -> str:
        return f"Results for {query}"

    replies = {
        "native": [
            [
                core.InvocationStarted(0, "call_a", "look"),
                core.InvocationEnded(0, "call_a", "look", {"-q": "x"}, '{"-q": "x"}'),
                core.ReplyEnded("invocations"),
            ],
            "So.",
        ],
        "structured": [
            '{"action": {"tool": "look", "arguments": {"-q": "x"}}}',
            '{"action": {"answer": "So."}}',
        ],
        "validated": ['```json\n{"name": "look", "arguments": {"-q": "x"}}\n```\n', "So."],
        "parsed": ['```json\n{"name": "look", "arguments": {"-q": "x"}}\n```\n', "So."],
    }

    async with FakeBackend(replies[mode]) as backend:
        outcome = await Agent("local-model", [look], base_url=backend.url, mode=mode).run("?")
    assert result_texts(outcome) == ["Results for x"]

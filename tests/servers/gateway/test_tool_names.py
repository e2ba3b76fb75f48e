"""Tools whose names the backend's wire does not take: their calls reach the client under the client's own names."""

from __future__ import annotations

import json
from itertools import product

import pytest
from tests.servers.gateway.fronts import FRONTS, call_events, calls_of, posted, reply, request, row

from callboard.core import InvocationCanister, ToolDeclaration
from callboard.dialects import DIALECTS, render_calls
from callboard.testing import FakeBackend

NAMES = {
    "a dot": "files.read",
    "spaces": "read a file",
    "Chinese": "读取文件",
    "65 characters": "mcp__" + "a" * 60,
    "128 characters": "mcp__" + "b" * 123,
    "none to rename": "read_file",
}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ARGUMENTS = {"path": "a.txt"}


def body_of(front, name, *, stream, called=""):
    """A request with the tool and one that needs no other name, and after `called` the second one with its result."""
    tools = {name: SCHEMA, "search": {"type": "object", "properties": {"query": {"type": "string"}}}}
    past = (called, ARGUMENTS, "contents") if called else None
    return request(front, "Read it.", tools=tools, past=past, stream=stream)


def sent_names(wire, body):
    """The names of the declared tools and of the past calls, as the backend got them."""
    match wire:
        case "chat":
            tools = [tool["function"]["name"] for tool in body["tools"]]
            turns = [call for each in body["messages"] for call in each.get("tool_calls", ())]
            return tools, [call["function"]["name"] for call in turns]
        case "responses":
            past = [item["name"] for item in body["input"] if item["type"] == "function_call"]
            return [tool["name"] for tool in body["tools"]], past
        case "messages":
            parts = [part for each in body["messages"] if isinstance(each["content"], list) for part in each["content"]]
            return [tool["name"] for tool in body["tools"]], [each["name"] for each in parts if "name" in each]
        case _:
            parts = [part for each in body["contents"] for part in each["parts"]]
            past = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
            return [tool["name"] for tool in body["tools"][0]["functionDeclarations"]], past


def native(called):
    """Replies with a call in the wire's own field."""
    return lambda sent: reply(*call_events(called(sent), ARGUMENTS))


def in_text(called):
    """Replies with a call in the text, as Hermes models write it."""
    return lambda sent: f"<tool_call>\n{json.dumps({'name': called(sent), 'arguments': ARGUMENTS})}\n</tool_call>"


def in_parameters(called):
    """Replies with a call in the text, as Qwen's coders write it."""
    return lambda sent: (
        f"<tool_call>\n<function={called(sent)}>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
    )


SPOKEN = {
    "native": (native, False),
    "in text, as it was sent": (in_text, False),
    "in text, as the client named it": (in_text, True),
    "in parameters, as it was sent": (in_parameters, False),
}


@pytest.mark.parametrize(
    ("front", "wire"),
    [*[(front, "chat") for front in FRONTS], ("chat", "responses"), ("chat", "messages"), ("chat", "gemini")],
)
async def test_a_call_comes_back_under_the_clients_name(serving, behind, front, wire):
    """At first, and when the call stands in the history."""
    replies = []

    def replied(body):
        return replies[-1](body)

    async with FakeBackend(replied, chunk_size=9) as backend, serving(behind(backend, wire=wire)) as served:
        for name, spoken, stream in product(NAMES.values(), SPOKEN, (True, False)):
            with row(name, spoken, stream):
                reply_with, own = SPOKEN[spoken]
                replies.append(
                    reply_with(lambda body, name=name, own=own: name if own else sent_names(wire, body)[0][0])
                )
                backend.requests.clear()
                for called in ("", name):
                    answer = await served.post(front, body_of(front, name, stream=stream, called=called))
                    assert answer.status == 200, answer
                    assert calls_of(front, answer) == [(name, ARGUMENTS)]
                first, second = posted(backend)
                declared, past = sent_names(wire, second)
                assert past == declared[:1]
                assert declared == sent_names(wire, first)[0]
                if wire == "messages" and name.startswith("mcp__"):
                    assert declared[0] == name


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", ["qwen3_coder", "glm45", "pythonic", "deepseek_v31"])
async def test_a_prompt_has_another_name_if_the_dialect_cannot_spell_the_tools_own(serving, behind, dialect, stream):
    name = NAMES["spaces"]
    call = InvocationCanister("c1", "read_a_file", ARGUMENTS)
    said = render_calls(DIALECTS[dialect], [call], [ToolDeclaration("read_a_file", "", SCHEMA)])
    async with (
        FakeBackend([said, "Done."], chunk_size=9) as backend,
        serving(behind(backend, mode="validated", dialect=dialect)) as served,
    ):
        answer = await served.post("chat", body_of("chat", name, stream=stream))
        await served.post("chat", body_of("chat", name, stream=stream, called=name))
        calls, (first, second) = calls_of("chat", answer), posted(backend)
    assert calls == [(name, ARGUMENTS)]
    assert name not in str(first)
    assert said.strip() in second["messages"][2]["content"]


@pytest.mark.parametrize("dialect", ["", "hermes"])
async def test_a_prompt_names_tools_as_the_client_does(serving, behind, dialect):
    said = []
    async with (
        FakeBackend(lambda _: said.pop(), chunk_size=9) as backend,
        serving(behind(backend, mode="validated", dialect=dialect)) as served,
    ):
        for name, stream in product(NAMES.values(), (True, False)):
            with row(name, stream):
                said += ["Done.", in_text(lambda _, name=name: name)("")]
                backend.requests.clear()
                answer = await served.post("chat", body_of("chat", name, stream=stream))
                await served.post("chat", body_of("chat", name, stream=stream, called=name))
                first, second = posted(backend)
                assert calls_of("chat", answer) == [(name, ARGUMENTS)]
                assert name in first["messages"][0]["content"]
                assert name in second["messages"][2]["content"]

"""Tools whose names the backend's wire does not take: their calls reach the client under the client's own names."""

from __future__ import annotations

import asyncio
import json

import pytest

from callboard.core import (
    InvocationCanister,
    InvocationEnded,
    InvocationStarted,
    ReplyEnded,
    ReplyStarted,
    ToolDeclaration,
)
from callboard.dialects import DIALECTS, render_calls
from callboard.testing import FakeBackend

FRONTS = ["chat", "responses", "messages", "gemini"]
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
    arguments = json.dumps(ARGUMENTS)
    if front == "responses":
        past = [
            {"type": "function_call", "call_id": "c1", "name": called, "arguments": arguments},
            {"type": "function_call_output", "call_id": "c1", "output": "contents"},
        ]
        said = [{"type": "message", "role": "user", "content": "Read it."}, *(past if called else [])]
        declared = [{"type": "function", "name": each, "parameters": schema} for each, schema in tools.items()]
        return {"model": "m", "stream": stream, "input": said, "tools": declared}
    if front == "chat":
        call = {"id": "c1", "type": "function", "function": {"name": called, "arguments": arguments}}
        past = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "contents"},
        ]
        said = [{"role": "user", "content": "Read it."}, *(past if called else [])]
        declared = [{"type": "function", "function": {"name": n, "parameters": schema}} for n, schema in tools.items()]
        return {"model": "m", "stream": stream, "messages": said, "tools": declared}
    if front == "messages":
        past = [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": called, "input": ARGUMENTS}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "contents"}]},
        ]
        said = [{"role": "user", "content": "Read it."}, *(past if called else [])]
        declared = [{"name": each, "input_schema": schema} for each, schema in tools.items()]
        return {"model": "m", "stream": stream, "max_tokens": 100, "messages": said, "tools": declared}
    past = [
        {"role": "model", "parts": [{"functionCall": {"name": called, "args": ARGUMENTS}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": called, "response": {"output": "contents"}}}]},
    ]
    said = [{"role": "user", "parts": [{"text": "Read it."}]}, *(past if called else [])]
    declared = [{"name": each, "parametersJsonSchema": schema} for each, schema in tools.items()]
    return {"model": "m", "stream": stream, "contents": said, "tools": [{"functionDeclarations": declared}]}


def calls_of(front, answer):
    """The names and arguments of the calls that the client got."""
    return [(name, json.loads(text)) for name, text in _calls(front, answer)]


def _calls(front, answer):
    every = answer.events if answer.streamed else [answer.body]
    match front:
        case "chat":
            calls = {}
            for event in every:
                for choice in event["choices"]:
                    for at, call in enumerate(choice.get("delta", choice.get("message")).get("tool_calls") or ()):
                        calls.setdefault(call.get("index", at), []).append(call["function"])
            return [
                ("".join([part.get("name") or "" for part in parts]), "".join([part["arguments"] for part in parts]))
                for parts in calls.values()
            ]
        case "responses":
            output = (every[-1]["response"] if answer.streamed else every[0])["output"]
            return [(item["name"], item["arguments"]) for item in output if item["type"] == "function_call"]
        case "messages" if answer.streamed:
            names = [each["content_block"]["name"] for each in every if "name" in each.get("content_block", {})]
            deltas = [each["delta"] for each in every if each["type"] == "content_block_delta"]
            return [(name, "".join([each.get("partial_json", "") for each in deltas])) for name in names]
        case "messages":
            return [(each["name"], json.dumps(each["input"])) for each in every[0]["content"] if "name" in each]
        case _:
            parts = [part for event in every for part in event["candidates"][0]["content"].get("parts", ())]
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            return [(call["name"], json.dumps(call["args"])) for call in calls]


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

    def reply(sent):
        name = called(sent)
        raw = json.dumps(ARGUMENTS)
        return [
            ReplyStarted(),
            InvocationStarted(0, "c1", name),
            InvocationEnded(0, "c1", name, ARGUMENTS, raw),
            ReplyEnded("invocations"),
        ]

    return reply


def in_text(called):
    """Replies with a call in the text, as Hermes models write it."""
    return lambda sent: f"<tool_call>\n{json.dumps({'name': called(sent), 'arguments': ARGUMENTS})}\n</tool_call>"


def in_parameters(called):
    """Replies with a call in the text, as Qwen's coders write it."""
    return lambda sent: (
        f"<tool_call>\n<function={called(sent)}>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
    )


async def converse(serving, behind, name, spoken, *, front="chat", wire="chat", stream=True):
    """Ask once, then with the call that came in the history: the calls of both answers, and both sent bodies."""
    reply_with, own = SPOKEN[spoken]
    reply = reply_with(lambda body: name if own else sent_names(wire, body)[0][0])
    async with FakeBackend(reply, chunk_size=9) as backend, serving(behind(backend, wire=wire)) as served:
        first = await served.post(front, body_of(front, name, stream=stream))
        assert first.status == 200, first
        calls = calls_of(front, first)
        again = await served.post(front, body_of(front, name, stream=stream, called=calls[0][0] if calls else name))
        assert again.status == 200, again
        return calls, calls_of(front, again), [each.body for each in backend.requests if each.method == "POST"]


SPOKEN = {
    "native": (native, False),
    "in text, as it was sent": (in_text, False),
    "in text, as the client named it": (in_text, True),
    "in parameters, as it was sent": (in_parameters, False),
}


@pytest.mark.parametrize("spoken", SPOKEN)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("front", FRONTS)
def test_a_call_comes_back_under_the_clients_name(serving, behind, front, name, spoken):
    for stream in (True, False):
        calls, again, bodies = asyncio.run(converse(serving, behind, name, spoken, front=front, stream=stream))
        assert calls == again == [(name, ARGUMENTS)]
        declared, past = sent_names("chat", bodies[1])
        assert past == declared[:1]
        assert declared == sent_names("chat", bodies[0])[0]


@pytest.mark.parametrize("spoken", SPOKEN)
@pytest.mark.parametrize("wire", ["responses", "messages", "gemini"])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_call_comes_back_from_every_wire(serving, behind, wire, name, spoken):
    calls, again, bodies = asyncio.run(converse(serving, behind, name, spoken, wire=wire))
    assert calls == again == [(name, ARGUMENTS)]
    declared, past = sent_names(wire, bodies[1])
    assert past == declared[:1]
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
        calls, (first, second) = (
            calls_of("chat", answer),
            [each.body for each in backend.requests if each.method == "POST"],
        )
    assert calls == [(name, ARGUMENTS)]
    assert name not in str(first)
    assert said.strip() in second["messages"][2]["content"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", ["", "hermes"])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_a_prompt_names_tools_as_the_client_does(serving, behind, name, dialect, stream):
    said = in_text(lambda _: name)("")
    async with (
        FakeBackend([said, "Done."], chunk_size=9) as backend,
        serving(behind(backend, mode="validated", dialect=dialect)) as served,
    ):
        answer = await served.post("chat", body_of("chat", name, stream=stream))
        await served.post("chat", body_of("chat", name, stream=stream, called=name))
        calls, bodies = calls_of("chat", answer), [each.body for each in backend.requests if each.method == "POST"]
    assert calls == [(name, ARGUMENTS)]
    assert name in bodies[0]["messages"][0]["content"]
    assert name in bodies[1]["messages"][2]["content"]

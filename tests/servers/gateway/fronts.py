"""What clients of each front send, and what they read in its answers."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from callboard.core import ArgumentsPiece, InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted
from callboard.testing import StatusReply

ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
"""Runs a test for a streamed and a whole answer."""
FRONTS = ("responses", "chat", "messages", "gemini")


@contextmanager
def row(*label):
    """Says which row of a table a failure is of, where the rows share one gateway."""
    try:
        yield
    except Exception as error:
        error.add_note(f"row: {label}")
        raise


def request(front, said="Hi", *, tools=None, past=None, **more):
    """The body of a request of the model `m`.

    `tools` are schemas by name; `past` is a call with its result: a name, arguments and an output.
    """
    name, arguments, output = past or ("", {}, "")
    raw, user = json.dumps(arguments), {"role": "user", "content": said}
    schemas = (tools or {}).items()
    match front:
        case "responses":
            turns = [
                {"type": "function_call", "call_id": "call_1", "name": name, "arguments": raw},
                {"type": "function_call_output", "call_id": "call_1", "output": output},
            ]
            asked = {"input": [{"type": "message", **user}, *turns] if past else said}
            declared = [{"type": "function", "name": each, "parameters": schema} for each, schema in schemas]
        case "chat":
            call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": raw}}
            turns = [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": output},
            ]
            asked = {"messages": [user, *(turns if past else ())]}
            declared = [{"type": "function", "function": {"name": each, "parameters": s}} for each, s in schemas]
        case "messages":
            call = {"type": "tool_use", "id": "call_1", "name": name, "input": arguments}
            result = {"type": "tool_result", "tool_use_id": "call_1", "content": output}
            turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
            asked = {"max_tokens": 100, "messages": [user, *(turns if past else ())]}
            declared = [{"name": each, "input_schema": schema} for each, schema in schemas]
        case _:
            call = {"functionCall": {"id": "call_1", "name": name, "args": arguments}}
            result = {"functionResponse": {"id": "call_1", "name": name, "response": {"output": output}}}
            turns = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
            asked = {"contents": [{"role": "user", "parts": [{"text": said}]}, *(turns if past else ())]}
            functions = [{"name": each, "parametersJsonSchema": schema} for each, schema in schemas]
            declared = [{"functionDeclarations": functions}]
    return {"model": "m", **asked, **({"tools": declared} if tools else {}), **more}


def call_events(name, arguments, index=0, *, identifier="", size=None):
    """The events of a call; arguments that are a text are sent as they are, in pieces of that size."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    try:
        known = json.loads(raw)
    except ValueError:
        known = None
    identifier = identifier or f"call_{index}"
    pieces = [ArgumentsPiece(index, raw[at : at + size]) for at in range(0, len(raw), size)] if size else []
    return [
        InvocationStarted(index, identifier, name),
        *pieces,
        InvocationEnded(index, identifier, name, known, raw),
    ]


def reply(*events, end=""):
    """The events of a whole reply."""
    called = any(isinstance(event, InvocationEnded) for event in events)
    return [ReplyStarted(), *events, ReplyEnded(end or ("invocations" if called else "stop"))]


def chunk(finish=None, **delta):
    """A chunk of a Chat Completions backend."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call_chunk(index=0, *, identifier=None, finish=None, **function):
    """A chunk with a piece of a call: its `name`, its `arguments`."""
    call = {"index": index, **({"id": identifier} if identifier else {}), "function": function}
    return chunk(finish, tool_calls=[call])


def refused(status, message, code="", headers=None):
    """A refusal of a backend in OpenAI's form."""
    return StatusReply(status, {"error": {"message": message, **({"code": code} if code else {})}}, headers or {})


def posted(backend):
    """The bodies that a backend was asked with."""
    return [each.body for each in backend.requests if each.method == "POST"]


def _every(answer):
    return answer.events if answer.streamed else [answer.body]


def _chat_parts(answer):
    return [
        choice.get("delta", choice.get("message")) for event in _every(answer) for choice in event.get("choices", ())
    ]


def _gemini_parts(answer):
    events = [event for event in _every(answer) if "candidates" in event]
    return [part for event in events for part in event["candidates"][0]["content"].get("parts", ())]


def _response_output(answer):
    return (answer.events[-1]["response"] if answer.streamed else answer.body)["output"]


def text_of(front, answer):
    """The text of an answer; of a stream that of its pieces."""
    match front:
        case "responses" if answer.streamed:
            return "".join([each["delta"] for each in answer.events if each["type"] == "response.output_text.delta"])
        case "responses":
            items = [item for item in _response_output(answer) if item["type"] == "message"]
            return "".join([part["text"] for item in items for part in item["content"]])
        case "chat":
            return "".join([part.get("content") or "" for part in _chat_parts(answer)])
        case "messages" if answer.streamed:
            deltas = [each["delta"] for each in answer.events if each["type"] == "content_block_delta"]
            return "".join([each.get("text", "") for each in deltas])
        case "messages":
            return "".join([each.get("text", "") for each in answer.body["content"]])
        case _:
            return "".join([part["text"] for part in _gemini_parts(answer) if "text" in part])


def calls_of(front, answer):
    """The names and arguments of the calls that the client got."""
    match front:
        case "chat":
            calls = {}
            for part in _chat_parts(answer):
                for at, call in enumerate(part.get("tool_calls") or ()):
                    calls.setdefault(call.get("index", at), []).append(call["function"])
            found = [
                ("".join([part.get("name") or "" for part in parts]), "".join([part["arguments"] for part in parts]))
                for parts in calls.values()
            ]
        case "responses":
            output = _response_output(answer)
            found = [(item["name"], item["arguments"]) for item in output if item["type"] == "function_call"]
        case "messages" if answer.streamed:
            names = [each["content_block"]["name"] for each in answer.events if "name" in each.get("content_block", {})]
            deltas = [each["delta"] for each in answer.events if each["type"] == "content_block_delta"]
            found = [(name, "".join([each.get("partial_json", "") for each in deltas])) for name in names]
        case "messages":
            return [(each["name"], each["input"]) for each in answer.body["content"] if "name" in each]
        case _:
            calls = [part["functionCall"] for part in _gemini_parts(answer) if "functionCall" in part]
            return [(call["name"], call["args"]) for call in calls]
    return [(name, json.loads(arguments)) for name, arguments in found]


def ends_of(front, answer):
    """What ended a stream: `completed`, `incomplete` or `failed`, once for each of its terminal events."""
    match front:
        case "responses":
            kinds = [event["type"].removeprefix("response.") for event in answer.events]
            found = [kind for kind in kinds if kind in {"completed", "incomplete", "failed"}]
            assert not found or kinds[-1] == found[-1]
        case "messages":
            kinds = [event["type"] for event in answer.events]
            ends = {"error": "failed", "message_stop": "completed"}
            found = [ends[kind] for kind in kinds if kind in ends]
            assert kinds[-1] in ends
        case _:
            name, reason = ("choices", "finish_reason") if front == "chat" else ("candidates", "finishReason")
            found = [
                "failed" if "error" in event else "completed"
                for event in answer.events
                if "error" in event or (event[name] and event[name][0].get(reason))
            ]
            assert front == "chat" or not found or {"error", "candidates"} & set(answer.events[-1])
    if front in {"responses", "chat"}:
        assert answer.frames[-1] == ("", "[DONE]")
    return found


def code_of(front, answer):
    """The code of an error in the front's own format."""
    body = answer.body
    if front == "messages":
        assert set(body) >= {"type", "error"}
        assert body["type"] == "error"
        assert body["error"]["message"]
        return body["error"]["type"]
    assert set(body) == {"error"}
    assert body["error"]["message"]
    if front == "gemini":
        assert set(body["error"]) == {"code", "message", "status", "details"}
        assert (body["error"]["code"], body["error"]["status"].isupper()) == (answer.status, True)
        (info,) = body["error"]["details"]
        return info["reason"].lower()
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["code"]

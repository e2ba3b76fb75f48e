"""A raw reply read again: as it was read, as another dialect, in part, and as a row of the wires' vectors."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.servers.gateway.fronts import call_chunk, chunk
from tests.tables import table
from tests.wires.replay import VECTORS, decoder, expected, payloads, rows, run, stream, without_prose

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationStarted,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    Request,
    TextPiece,
    ToolDeclaration,
    UserCanister,
    coalesce,
)
from callboard.core.canisters import TextualContent
from callboard.errors import CallerError
from callboard.providers import Transport
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.circuit_breaker import SharedCircuitBreaker
from callboard.servers.gateway.redaction import Redactor
from callboard.servers.gateway.request_log import CutBytes, RecordedReply
from callboard.servers.gateway.request_view import make_vector, read_as_dialect, read_canisters, read_events
from callboard.servers.gateway.settings import BackendSettings
from callboard.text.sse import encode_frame

CASES = [json.loads(line) for line in (VECTORS / "dialects/cases.jsonl").read_text("utf-8").splitlines()]
SPOKEN = [case for case in CASES if case["dialect"] in {"hermes", "mistral", "llama3_json", "pythonic", "qwen3_coder"}]
WEATHER = ToolDeclaration("weather", "", {"type": "object", "properties": {"city": {"type": "string"}}})
WIRES = ("chat", "messages", "gemini", "responses")


def raw_reply(data, tools=(), *, wire="chat", status=200, content_type="text/event-stream", limit=10**6, **settings):
    """An answer as the log of a gateway keeps it; nothing is sent."""
    backend = Backend(
        BackendSettings(url="http://127.0.0.1:9/v1", wire=wire, **settings), Transport(), SharedCircuitBreaker()
    )
    model = backend.model("some-model")
    request = Request("some-model", (UserCanister((TextualContent("Hi"),)),), tuple(tools), stream=True)
    body = CutBytes(limit)
    body.add(data)
    return RecordedReply(
        backend="b",
        redactor=Redactor(["sk-secret-of-the-settings"]),
        model=model,
        prepared=model.prepare(request, model.plan),
        plan=model.plan,
        status=status,
        content_type=content_type,
        body=body,
    )


def chat_stream(text, piece=7):
    """The text as a stream of Chat Completions."""
    chunks = [chunk(content=text[at : at + piece]) for at in range(0, len(text), piece)]
    return b"".join([encode_frame(msgspec.json.encode(each)) for each in [*chunks, chunk("stop")]]) + encode_frame(
        b"[DONE]"
    )


def calls(events):
    return [(event.name, event.arguments) for event in events if isinstance(event, InvocationEnded)]


@table("case", SPOKEN, ids=[case["id"] for case in SPOKEN])
def test_another_dialect_reads_the_calls_of_the_same_bytes(case):
    tools = [ToolDeclaration(each["name"], "", each.get("parameters", {})) for each in case.get("tools") or ()]
    reply = raw_reply(chat_stream(case["text"]), tools, profile={"watch": ""})
    assert calls(read_events(reply)) == []
    wanted = [(each["name"], each["arguments"]) for each in case["expected_calls"] if each.get("arguments") is not None]
    assert calls(read_as_dialect(reply, case["dialect"])) == wanted


def test_calls_of_the_wire_are_what_they_are_for_every_dialect():
    call = call_chunk(identifier="a", name="weather", arguments='{"city": "Rome"}')
    chunks = [call, chunk("tool_calls")]
    reply = raw_reply(b"".join([encode_frame(msgspec.json.encode(each)) for each in chunks]), [WEATHER])
    assert calls(read_as_dialect(reply, "pythonic")) == calls(read_events(reply)) == [("weather", {"city": "Rome"})]


def test_structured_replies_are_read_as_text_by_other_dialects():
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    reply = raw_reply(chat_stream(text), [WEATHER], mode="structured", profile={"supports_json_schema": True})
    assert calls(read_events(reply)) == []
    assert calls(read_as_dialect(reply, "hermes")) == [("weather", {"city": "Rome"})]


def test_a_reply_in_part_gives_the_beginning_of_its_events():
    data = chat_stream('Well. <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call> And so.')
    whole = read_as_dialect(raw_reply(data, [WEATHER]), "hermes")
    for cut in range(0, len(data), 31):
        part = read_as_dialect(raw_reply(data[:cut], [WEATHER]), "hermes", is_whole=False)
        assert part == whole[: len(part)]
        assert read_as_dialect(raw_reply(data, [WEATHER], limit=cut), "hermes") == part


def test_pieces_are_joined_for_people():
    pieces = [TextPiece("a", (0, 1)), TextPiece("b", (1, 2)), ReasoningPiece("c"), ReasoningPiece("d", origin="m")]
    calls = [ArgumentsPiece(0, "{"), ArgumentsPiece(0, "}"), ArgumentsPiece(1, "{}")]
    assert coalesce([*pieces, *calls, TextPiece("e")]) == [
        TextPiece("ab", (0, 2)),
        ReasoningPiece("c"),
        ReasoningPiece("d", origin="m"),
        ArgumentsPiece(0, "{}"),
        ArgumentsPiece(1, "{}"),
        TextPiece("e"),
    ]


def test_an_unknown_dialect_is_the_callers_mistake():
    with pytest.raises(CallerError, match="no dialect 'hermess'"):
        read_as_dialect(raw_reply(b""), "hermess")


def test_answers_that_are_no_streams():
    body = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    whole = raw_reply(msgspec.json.encode(body), content_type="application/json")
    assert [type(event) for event in read_events(whole)][-2:] == [TextPiece, ReplyEnded]
    refusal = raw_reply(b'{"error": {"message": "no"}}', status=400, content_type="application/json")
    assert [type(event) for event in read_events(refusal)] == [ReplyFailed]
    assert read_events(raw_reply(b"<html>", content_type="text/html")) == []


def test_what_a_reply_leaves_in_a_conversation():
    reply = raw_reply(chat_stream('So: <tool_call>{"name": "weather", "arguments": {}}</tool_call>'), [WEATHER])
    assert [type(each).__name__ for each in read_canisters(read_as_dialect(reply, "hermes"))] == [
        "AssistantCanister",
        "InvocationCanister",
    ]
    assert [each.text for each in read_canisters([TextPiece("cut")])] == ["cut"]


@table("wire", WIRES)
def test_the_vector_of_a_reply_is_a_row_of_its_wire(wire):
    """What a wire's row becomes when it was a backend's reply passes the test of that wire's rows."""
    for row in rows(wire).values():
        if row.get("names") or row.get("declared") is not None or row.get("why", "stop") != "stop":
            continue
        made = msgspec.json.decode(msgspec.json.encode(make_vector(raw_reply(stream(wire, row), wire=wire), "it")))
        assert made["wire"] == wire
        assert without_prose(run(decoder(wire, made), payloads(made))) == without_prose(expected(made))
        known = [e for e in msgspec.convert(made["events"], list[Event]) if isinstance(e, InvocationStarted)]
        assert all(not event.known for event in known)  # no tool was declared


def test_a_vector_holds_no_secret():
    reply = raw_reply(chat_stream("The key is sk-secret-of-the-settings, is it not?", piece=100))
    assert "sk-secret-of-the-settings" not in json.dumps(make_vector(reply, "it"))


@table(("status", "body"), [(200, {"choices": [{"message": {"content": "Hi"}}]}), (400, {"error": {}})])
def test_the_vector_of_an_answer_that_is_no_stream(status, body):
    reply = raw_reply(msgspec.json.encode(body), status=status, content_type="application/json")
    row = make_vector(reply, "it")
    assert row["body"] == body
    assert row.get("status", 200) == status
    assert msgspec.convert(row["events"], list[Event]) == read_events(reply)

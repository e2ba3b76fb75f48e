"""The server half: what it sends is what the client half and Google's own client read."""

from __future__ import annotations

import asyncio
import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import pipe
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.gemini import (
    StreamDecoder,
    StreamEncoder,
    decode_request,
    decode_response,
    encode_error,
    encode_response,
)

PIECES = (core.TextPiece, core.ReasoningPiece, core.RefusalPiece)


def minted(index, _name):
    return f"minted_{index}"


def encode(events, *, why="stop"):
    stage = pipe(StreamEncoder(identifier="r1", model="m", created=1), SSEEncoder())
    return [frame for event in events for frame in stage.feed(event)] + stage.finish(why)


def payloads(frames):
    """Each frame is a whole one."""
    found = []
    for frame in frames:
        (one,) = SSEDecoder().feed(frame)
        found.append(one.data)
    return found


def decode(frames):
    stage = StreamDecoder(DecodeContext(identify=minted))
    return [event for payload in payloads(frames) for event in stage.feed(payload)] + stage.finish()


def whole(events):
    """The body of the reply that is not streamed."""
    return encode_response(events, identifier="r1", model="m", created=1)


def coalesced(events):
    """The events with neighbouring pieces of one kind joined; a signature ends a piece of reasoning."""
    joined = []
    for event in events:
        last = joined[-1] if joined else None
        if type(event) in PIECES and type(last) is type(event) and not getattr(last, "opaque", ""):
            joined[-1] = msgspec.structs.replace(event, text=last.text + event.text)
        else:
            joined.append(event)
    return joined


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
ARGUMENTS = st.dictionaries(TEXT, TEXT | st.integers(-9, 9) | st.none() | st.lists(TEXT, max_size=2), max_size=2)
SIGNATURES = st.binary(min_size=1, max_size=4).map(lambda data: base64.b64encode(data).decode())


@st.composite
def replies(draw):
    """What a reply may be here: pieces, signatures and whole calls in any order, and an end that fits."""
    events, count = [], 0
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "signature", "call"]), max_size=6)):
        match kind:
            case "text":
                events.append(core.TextPiece(draw(TEXT)))
            case "thought":
                events.append(core.ReasoningPiece(draw(TEXT), draw(st.just("") | SIGNATURES), "m"))
            case "signature":
                events += [core.ReasoningPiece("", f">{draw(SIGNATURES)}", "m"), core.TextPiece(draw(TEXT))]
            case "call":
                arguments = draw(ARGUMENTS)
                raw = msgspec.json.encode(arguments).decode()
                identifier, name = f"c{count}", draw(st.sampled_from(["f", "get_weather"]))
                events += draw(st.sampled_from([[], [core.ReasoningPiece("", ">QQ==", "m")]]))
                events += [
                    core.InvocationStarted(count, identifier, name),
                    core.ArgumentsPiece(count, raw),
                    core.InvocationEnded(count, identifier, name, arguments, raw),
                ]
                count += 1
    if draw(st.booleans()):
        events.append(core.Usage(7, 5, draw(st.integers(0, 7)), draw(st.integers(0, 5))))
    natural = "invocations" if count else "stop"
    return [
        core.ReplyStarted("r1", "m"),
        *events,
        core.ReplyEnded(draw(st.sampled_from([natural, "length", "filter"]))),
    ]


@given(replies())
def test_what_is_encoded_is_decoded(events):
    assert coalesced(decode(encode(events))) == coalesced(events)


@given(replies())
def test_the_whole_reply_says_what_the_stream_says(events):
    assert coalesced(decode_response(whole(events), DecodeContext(identify=minted))) == coalesced(events)
    assert coalesced(decode_response(msgspec.json.encode(whole(events)), DecodeContext(identify=minted))) == coalesced(
        events
    )


CALL = [
    core.ReplyStarted("r1", "m"),
    core.ReasoningPiece("hm", origin="m"),
    core.TextPiece("I'll look."),
    core.ReasoningPiece("", ">U2ln", "m"),
    core.InvocationStarted(0, "a", "f"),
    core.ArgumentsPiece(0, '{"x'),
    core.ArgumentsPiece(0, '":1}'),
    core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}'),
    core.InvocationStarted(1, "b", "g"),
    core.InvocationEnded(1, "b", "g", {}, ""),
    core.Note("repaired", "something"),
    core.Usage(9, 4, 5, 2),
    core.ReplyEnded("invocations"),
]
PARTS = [
    {"text": "hm", "thought": True},
    {"text": "I'll look."},
    {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}}, "thoughtSignature": "U2ln"},
    {"functionCall": {"id": "b", "name": "g", "args": {}}},
]
USAGE = {
    "promptTokenCount": 9,
    "candidatesTokenCount": 2,
    "totalTokenCount": 13,
    "cachedContentTokenCount": 5,
    "thoughtsTokenCount": 2,
}


def test_a_stream_frame_by_frame():
    named = {"modelVersion": "m", "responseId": "r1"}
    frames = encode(CALL)
    assert all(frame.startswith(b"data: {") and frame.endswith(b"}\n\n") for frame in frames)
    *chunks, last = map(json.loads, payloads(frames))
    assert chunks == [
        {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}], **named} for part in PARTS
    ]
    content = {"parts": [{"text": ""}], "role": "model"}
    assert last == {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": USAGE,
        **named,
    }


def test_a_whole_body():
    assert whole(CALL) == {
        "candidates": [{"content": {"parts": PARTS, "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": USAGE,
        "modelVersion": "m",
        "responseId": "r1",
    }


@table(
    ("events", "reason"),
    [
        ([core.TextPiece("a"), core.ReplyEnded("stop")], "STOP"),
        ([core.TextPiece("a"), core.ReplyEnded("length")], "MAX_TOKENS"),
        ([core.TextPiece("a"), core.ReplyEnded("filter")], "SAFETY"),
        ([core.RefusalPiece("no"), core.ReplyEnded("refusal")], "SAFETY"),
        ([core.ReplyEnded("stop")], "STOP"),
        (CALL[1:], "STOP"),
        (
            [
                core.InvocationStarted(0, "a", "f"),
                core.InvocationEnded(0, "a", "f", None, "[1"),
                core.ReplyEnded("invocations"),
            ],
            "MALFORMED_FUNCTION_CALL",
        ),
        (
            [
                core.InvocationStarted(0, "a", "f"),
                core.InvocationIncomplete(0, "a", "f", "{", "cut"),
                core.ReplyEnded("stop"),
            ],
            "MALFORMED_FUNCTION_CALL",
        ),
        (
            [
                core.InvocationStarted(0, "a", "f"),
                core.InvocationIncomplete(0, "a", "f", "{", "length"),
                core.ReplyEnded("length"),
            ],
            "MAX_TOKENS",
        ),
    ],
)
def test_reasons(events, reason):
    events = [core.ReplyStarted("r1", "m"), *events]
    chunks = [json.loads(payload)["candidates"][0] for payload in payloads(encode(events))]
    assert [chunk["finishReason"] for chunk in chunks if "finishReason" in chunk] == [reason]
    candidate = whole(events)["candidates"][0]
    assert candidate["finishReason"] == reason
    assert candidate.get("finishMessage") == chunks[-1].get("finishMessage")
    assert ("finishMessage" in candidate) == any(
        isinstance(event, core.InvocationIncomplete) or getattr(event, "arguments", 0) is None for event in events
    )


FAILURE = core.ReplyFailed("provider", "overloaded_error", "too much", "<html>")


def test_a_failure_is_told_and_ends_the_stream():
    frames = encode([core.ReplyStarted("r1", "m"), core.TextPiece("a"), FAILURE, core.TextPiece("b")])
    assert len(frames) == 2
    expected = {"error": {"code": 503, "message": "too much", "status": "UNAVAILABLE"}}
    assert json.loads(payloads(frames)[-1]) == expected == whole([FAILURE])
    assert msgspec.structs.replace(decode(frames)[-1], excerpt="<html>") == FAILURE


@table(("why", "code"), [("stop", "INTERNAL"), ("cut", "INTERNAL"), ("cancelled", "CANCELLED")])
def test_events_that_break_off_are_a_failure(why, code):
    *_, error = payloads(encode([core.ReplyStarted("r1", "m"), core.TextPiece("a")], why=why))
    assert json.loads(error)["error"]["status"] == code
    assert "error" in whole([core.ReplyStarted("r1", "m"), core.TextPiece("a")])


@table(
    "events",
    [
        [],
        [core.ReplyEnded("retry")],
        [core.ReplyEnded("stop"), core.ReplyFailed("provider", "x", "y")],
        [FAILURE, core.ReplyEnded("stop")],
        CALL * 2,
    ],
)
def test_there_is_one_end_whatever_came(events):
    stage = pipe(StreamEncoder(identifier="r1", model="m", created=1), SSEEncoder())
    frames = [frame for event in events for frame in stage.feed(event)] + stage.finish()
    ends = [p for p in payloads(frames) if "finishReason" in p or p.startswith('{"error"')]
    assert len(ends) == 1
    assert ends == payloads(frames)[-1:]
    assert stage.feed(core.TextPiece("a")) == stage.feed(core.ReplyEnded("stop")) == stage.finish() == []


def test_after_a_retry_the_whole_reply_is_the_second():
    events = [
        core.TextPiece("bad"),
        core.ReplyEnded("retry"),
        core.ReplyStarted("r1", "m"),
        core.TextPiece("good"),
        core.ReplyEnded("stop"),
    ]
    assert whole(events)["candidates"][0]["content"]["parts"] == [{"text": "good"}]


def test_a_signature_that_no_part_follows_is_sent_at_the_end():
    events = [
        core.ReplyStarted("r1", "m"),
        core.TextPiece("a"),
        core.ReasoningPiece("", ">QQ==", "m"),
        core.ReplyEnded("stop"),
    ]
    (last,) = json.loads(payloads(encode(events))[-1])["candidates"]
    assert last["content"]["parts"] == [{"text": "", "thoughtSignature": "QQ=="}]
    assert decode(encode(events)) == decode_response(whole(events), DecodeContext(identify=minted)) == events


@table("body", [b"", b"<html>", b"[]", b"3", {}, {"candidates": {"a": 1}}, {"error": "no"}, b"\xff"])
def test_a_body_that_is_no_reply_is_a_failure(body):
    (failure,) = decode_response(body, DecodeContext(identify=minted))
    assert failure.party == "provider"
    assert failure.code in {"malformed", "cut", "server_error"}


def test_a_whole_reply_without_finish_reason():
    body = {"candidates": [{"content": {"parts": [{"text": "a"}]}}]}
    assert decode_response(body, DecodeContext(identify=minted)) == [
        core.ReplyStarted(),
        core.TextPiece("a"),
        core.ReplyEnded("stop"),
    ]


@pytest.fixture(scope="module")
def types():
    """What the official package reads."""
    from google.genai import types

    return types


@given(events=replies())
def test_google_reads_the_chunks(types, events):
    for payload in payloads(encode(events)):
        types.GenerateContentResponse.model_validate_json(payload)
    types.GenerateContentResponse.model_validate(whole(events))


OFFICIAL = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
"""The official package inherits where it is discouraged."""

OPAQUES = ["U2ln", ">U2ln", "+/+/", "gAAAA-_x", "é|{}"]


def serve(replies_, asked, use):
    """What `use` makes of Google's client in front of a server that gives `replies_` one after the other."""
    from aiohttp import web
    from google import genai

    async def answer(request):
        stream = request.path.endswith(":streamGenerateContent")
        model = request.path.rpartition("/")[2].partition(":")[0]
        assert (request.query.get("alt") == "sse") == stream
        asked.append(decode_request(await request.json(), model=model, stream=stream))
        events = next(replies_)
        if isinstance(events, core.ReplyFailed):
            status, body = encode_error(events)
            return web.json_response(body, status=status)
        if not stream:
            return web.json_response(whole(events))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for frame in encode(events):
            await response.write(frame)
        return response

    async def main():
        app = web.Application()
        app.router.add_post("/{version}/models/{call}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{port}"})
        try:
            return await use(client.aio)
        finally:
            await client.aio.aclose()
            client.close()
            await runner.cleanup()

    return asyncio.run(main())


@OFFICIAL
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("opaque", OPAQUES)
def test_google_s_client_calls_a_tool(types, stream, opaque):
    """Question, thought, call, result, answer: the signature comes back on the part that it came on."""
    asked = []
    first = [
        core.ReplyStarted("r1", "m"),
        core.ReasoningPiece("hm", opaque, "m"),
        core.InvocationStarted(0, "a", "f"),
        core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}'),
        core.Usage(9, 4, 5, 2),
        core.ReplyEnded("invocations"),
    ]
    second = [
        core.ReplyStarted("r2", "m"),
        core.TextPiece("It is "),
        core.TextPiece("2."),
        core.Usage(1, 1),
        core.ReplyEnded("stop"),
    ]
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    declaration = {"name": "f", "description": "does", "parameters_json_schema": schema}

    async def use(client):
        chat = client.chats.create(
            model="m",
            config={
                "system_instruction": "s",
                "tools": [{"function_declarations": [declaration]}],
                "tool_config": {"function_calling_config": {"mode": "ANY"}},
                "temperature": 0.5,
                "automatic_function_calling": {"disable": True},
            },
        )

        async def send(message):
            if stream:
                return [chunk async for chunk in await chat.send_message_stream(message)]
            return [await chat.send_message(message)]

        given_calls = [call for chunk in await send("u") for call in chunk.function_calls or []]
        part = types.Part.from_function_response(name="f", response={"output": "2"})
        part.function_response.id = given_calls[0].id
        chunks = await send(part)
        return given_calls, "".join(chunk.text or "" for chunk in chunks), chunks[-1]

    calls, said, last = serve(iter([first, second]), asked, use)
    assert [(call.id, call.name, call.args) for call in calls] == [("a", "f", {"x": 1})]
    assert said == "It is 2."
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.usage_metadata.total_token_count == 2
    assert last.response_id == "r1"  # the encoder's own
    assert [request.stream for request in asked] == [stream, stream]
    request = asked[1]
    assert request.tools[0].schema == schema
    assert (request.tool_choice, request.controls.temperature) == ("required", 0.5)
    supervisor, user, thought, call, result = request.canisters
    assert (supervisor.text, user) == ("s", core.UserCanister("u"))
    assert thought.content == (core.ReasoningContent("hm", opaque, "m"),)
    assert call == core.InvocationCanister("a", "f", {"x": 1}, '{"x":1}')
    assert result == core.ResultCanister("2", invocation_id="a")


@OFFICIAL
def test_google_s_client_reads_failures():
    from google.genai.errors import APIError

    async def use(client):
        told = []
        for refused in (True, False):
            try:
                if refused:
                    await client.models.generate_content(model="m", contents="u")
                else:
                    async for _ in await client.models.generate_content_stream(model="m", contents="u"):
                        pass
            except APIError as error:
                told.append((error.code, error.status, error.message))
        return told

    refusal = core.ReplyFailed("caller", "context_length_exceeded", "too long")
    told = serve(iter([refusal, [core.ReplyStarted("r1", "m"), core.TextPiece("a"), FAILURE]]), [], use)
    assert told == [(400, "INVALID_ARGUMENT", "too long"), (503, "UNAVAILABLE", "too much")]

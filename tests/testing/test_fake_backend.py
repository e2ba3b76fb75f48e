import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tests.tables import table

from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationStarted,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    Usage,
)
from callboard.errors import CallerError
from callboard.testing import Cut, FakeBackend, Html, Raw, Silence, StatusReply
from callboard.text.sse import SSEDecoder

HELLO = (ReplyStarted(), TextPiece("Hel"), TextPiece("lo"), Usage(input=3, output=2), ReplyEnded("stop"))
CALL = (
    ReplyStarted(),
    InvocationStarted(0, "call_1", "get_weather"),
    ArgumentsPiece(0, '{"city":'),
    ArgumentsPiece(0, '"Oslo"}'),
    InvocationEnded(0, "call_1", "get_weather", {"city": "Oslo"}, '{"city":"Oslo"}'),
    Usage(input=11, output=7),
    ReplyEnded("invocations"),
)
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
ASKING = {"model": "m", "messages": [{"role": "user", "content": "weather in Oslo?"}]}


@asynccontextmanager
async def serving(replies, **options):
    async with FakeBackend(replies, **options) as backend, aiohttp.ClientSession(base_url=f"{backend.url}/") as http:
        async with asyncio.timeout(120):  # against a test that hangs, not part of what it asserts
            yield backend, http


@asynccontextmanager
async def openai_of(replies, **options):
    import openai

    async with (
        FakeBackend(replies, **options) as backend,
        openai.AsyncOpenAI(base_url=backend.url, api_key="none", max_retries=0) as client,
    ):
        async with asyncio.timeout(120):
            yield backend, client


async def ask(http, *, stream=False):
    """Status, content type and body."""
    async with http.post("chat/completions", json=ASKING | {"stream": stream}) as response:
        return response.status, response.content_type, await response.read()


def data_of(stream):
    return [frame.data for frame in SSEDecoder().feed(stream)]


def contents_of(stream):
    chunks = [json.loads(data) for data in data_of(stream) if data != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return [delta["content"] for delta in deltas if delta.get("content")]


@table(
    ("reply", "pieces"),
    [("Hello, world", ["Hell", "o, w", "orld"]), (HELLO, ["Hel", "lo"]), (list(HELLO), ["Hel", "lo"])],
)
async def test_a_reply_is_streamed_or_whole_as_the_request_says(reply, pieces):
    async with serving([reply, reply]) as (backend, http):
        status, kind, body = await ask(http)
        assert (status, kind) == (200, "application/json")
        choice = json.loads(body)["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("".join(pieces), "stop")
        status, kind, body = await ask(http, stream=True)
        assert (status, kind) == (200, "text/event-stream")
        assert contents_of(body) == pieces
        assert data_of(body)[-1] == "[DONE]"
        backend.assert_complete()


@table("size", [1, 2, 7, 64, 100_000])
def test_a_chunk_size_changes_the_pieces_and_not_the_bytes(size):
    async def scenario(size):
        async with serving([CALL], chunk_size=size) as (_, http):
            return (await ask(http, stream=True))[2]

    assert asyncio.run(scenario(size)) == asyncio.run(scenario(None))


@table(
    ("chunks", "streamed", "whole"),
    [
        (["[DONE]"], b"data: [DONE]\n\n", b"[DONE]"),
        ([{"a": 1}], b'data: {"a":1}\n\n', b'{"a":1}'),
        ([b"data: x", b"\n\n"], b"data: x\n\n", b"data: x\n\n"),
        ([], b"", b""),
    ],
)
async def test_raw_payloads_are_sent_as_they_are(chunks, streamed, whole):
    async with serving([Raw(chunks), Raw(chunks)]) as (_, http):
        assert await ask(http, stream=True) == (200, "text/event-stream", streamed)
        assert await ask(http) == (200, "application/json", whole)


@table(
    ("reply", "status", "kind", "body"),
    [
        (StatusReply(429), 429, "application/json", "the fake backend answers 429"),
        (StatusReply(400, {"error": {"message": "no such model"}}), 400, "application/json", "no such model"),
        (StatusReply(503, "loading", {"Retry-After": "1"}), 503, "text/plain", "loading"),
        (StatusReply(200, b"\x00", {"Content-Type": "image/png"}), 200, "image/png", "\x00"),
        (Html(), 200, "text/html", "<!doctype html>"),
        (Html(502, "<h1>Bad gateway</h1>"), 502, "text/html", "<h1>Bad gateway</h1>"),
    ],
)
async def test_faults_that_are_answers(reply, status, kind, body):
    async with serving([reply, reply]) as (_, http):
        for stream in (True, False):
            answered = await ask(http, stream=stream)
            assert answered[:2] == (status, kind)
            assert body in answered[2].decode()


async def test_a_cut_comes_after_what_was_said():
    async with serving([Cut(after=HELLO[:2])]) as (backend, http):
        async with http.post("chat/completions", json=ASKING | {"stream": True}) as response:
            came = await response.content.readuntil(b"Hel") + await response.content.readuntil(b"\n\n")
            assert contents_of(came) == ["Hel"]
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.read()
        assert not backend.disconnected.is_set()


async def test_a_cut_of_a_whole_reply_is_no_answer():
    async with serving([Cut(after=HELLO)]) as (_, http):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(http)


async def test_a_silence_lasts_until_the_client_leaves():
    async with serving([Silence(after=HELLO[:2]), Silence()]) as (backend, http):
        async with http.post("chat/completions", json=ASKING | {"stream": True}) as response:
            await response.content.readuntil(b"Hel")
            assert not backend.disconnected.is_set()
            response.close()
        await backend.disconnected.wait()
        backend.disconnected.clear()
        silent = asyncio.create_task(ask(http))
        while len(backend.requests) < 2:  # noqa: ASYNC110 - the requests are a plain list
            await asyncio.sleep(0)
        silent.cancel()
        await backend.disconnected.wait()


async def test_a_backend_ends_while_a_client_waits():
    async with aiohttp.ClientSession() as http:
        async with FakeBackend([Silence(after=HELLO[:2])]) as backend:
            response = await http.post(f"{backend.url}/chat/completions", json=ASKING | {"stream": True})
            await response.content.readany()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
        assert not backend.disconnected.is_set()


async def test_what_was_asked_is_recorded():
    async with serving(["hi"]) as (backend, http):
        http.headers["Authorization"] = "Bearer key"
        await ask(http)
        async with http.get("models") as models:
            assert [model["id"] for model in (await models.json())["data"]] == ["fake-model"]
        asked, listed = backend.requests
        assert (asked.method, asked.path, asked.body) == (
            "POST",
            "/v1/chat/completions",
            ASKING | {"stream": False},
        )
        assert asked.headers["authorization"] == "Bearer key"
        assert (listed.method, listed.path, listed.body) == ("GET", "/v1/models", None)
        backend.assert_complete()


@table(
    ("path", "body", "status", "message"),
    [
        ("chat/completions", b"{", 400, "the body is not a JSON object"),
        ("chat/completions", b"[]", 400, "the body is not a JSON object"),
        ("chat/completions", b"", 400, "the body is not a JSON object"),
        ("completions", b"{}", 404, "the fake backend has no POST /v1/completions"),
    ],
)
async def test_a_wrong_request_costs_no_reply(path, body, status, message):
    async with serving(["hi"]) as (backend, http):
        async with http.post(path, data=body) as response:
            assert response.status == status
            assert (await response.json())["error"]["message"] == message
        assert len(backend.requests) == 1
        with pytest.raises(AssertionError, match=r"^not asked for: replies\[0\] 'hi'$"):
            backend.assert_complete()


async def test_replies_that_run_out():
    async with serving(["hi"]) as (backend, http):
        await ask(http)
        status, _, body = await ask(http)
        assert status == 500
        assert b"the fake backend has 1 replies, and this is request 2" in body
        with pytest.raises(AssertionError, match="2 requests came for 1 replies"):
            backend.assert_complete()


async def test_a_function_replies():
    async with serving(lambda body: body["messages"][0]["content"].upper()) as (backend, http):
        for _ in range(3):
            assert b"WEATHER IN OSLO?" in (await ask(http))[2]
        backend.assert_complete()


def test_what_is_no_reply():
    with pytest.raises(CallerError) as caught:
        FakeBackend(["hi", *HELLO])
    assert str(caught.value) == ("replies[1]: ReplyStarted is not a reply; put the events of a reply into a list")


async def test_events_without_an_end_are_an_error_that_says_so():
    async with serving([HELLO[:2], HELLO[:2]]) as (_, http):
        for stream in (True, False):
            assert b'"error"' in (await ask(http, stream=stream))[2]


def calling(name, arguments):
    raw = json.dumps(arguments)
    return (ReplyStarted(), InvocationStarted(0, "call_1", name), InvocationEnded(0, "call_1", name, arguments, raw))


@table(
    ("name", "arguments", "item"),
    [
        ("read", {}, {"type": "function_call", "name": "read", "arguments": "{}"}),
        ("unknown", {}, {"type": "function_call", "name": "unknown", "arguments": "{}"}),
        ("patch", {"input": "+1"}, {"type": "custom_tool_call", "name": "patch", "input": "+1"}),
        ("js__run", {"input": "1"}, {"type": "custom_tool_call", "name": "run", "namespace": "js", "input": "1"}),
    ],
)
async def test_a_call_on_responses_is_of_its_tools_kind(name, arguments, item):
    events = (*calling(name, arguments), ReplyEnded("invocations"))
    tools = [
        {"type": "function", "name": "read", "parameters": {}},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "js", "tools": [{"type": "custom", "name": "run"}]},
    ]
    asking = {"model": "m", "input": "Do it.", "tools": tools}
    async with serving([events, events]) as (backend, http):
        async with http.post("responses", json=asking) as response:
            whole = await response.json()
        async with http.post("responses", json=asking | {"stream": True}) as response:
            frames = [json.loads(data) for data in data_of(await response.read()) if data != "[DONE]"]
        backend.assert_complete()
    done = next(frame["item"] for frame in frames if frame["type"] == "response.output_item.done")
    for said in (whole["output"][0], done):
        assert {key: said[key] for key in item} == item


async def test_a_request_that_cannot_be_read_is_answered_all_the_same():
    asking = {"model": "m", "input": 1}
    async with serving(["Hello"]) as (_, http), http.post("responses", json=asking) as response:
        assert (await response.json())["output"][0]["content"][0]["text"] == "Hello"


async def test_the_openai_sdk_reads_a_call_streamed():
    async with openai_of([CALL], chunk_size=5) as (_, client):
        stream = await client.chat.completions.create(
            **ASKING, tools=TOOLS, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
        assert (calls[0].id, calls[0].function.name) == ("call_1", "get_weather")
        assert "".join(call.function.arguments for call in calls) == '{"city":"Oslo"}'
        reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        assert reasons == ["tool_calls"]
        assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (11, 7)
        assert {chunk.model for chunk in chunks} == {"m"}


async def test_the_openai_sdk_reads_a_call_whole():
    async with openai_of([CALL]) as (_, client):
        reply = await client.chat.completions.create(**ASKING, tools=TOOLS)
        choice = reply.choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        call = choice.message.tool_calls[0]
        assert (call.id, call.function.name, call.function.arguments) == (
            "call_1",
            "get_weather",
            '{"city":"Oslo"}',
        )
        assert reply.usage.total_tokens == 18


async def test_the_openai_sdk_meets_faults_and_models():
    import openai

    async with openai_of([StatusReply(429), Silence(after=HELLO[:2])], models=("a", "b")) as (backend, client):
        assert [model.id async for model in client.models.list()] == ["a", "b"]
        with pytest.raises(openai.RateLimitError, match="the fake backend answers 429"):
            await client.chat.completions.create(**ASKING)
        stream = await client.chat.completions.create(**ASKING, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await backend.disconnected.wait()

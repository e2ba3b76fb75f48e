"""What goes wrong, and that it goes wrong for one client alone."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace
from tests.servers.gateway.fronts import FRONTS, chunk, code_of, ends_of, posted, refused, request, row, text_of, ways
from tests.tables import table

from callboard.core import ArgumentsPiece, InvocationStarted, ReplyEnded, ReplyStarted, TextPiece, Usage
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.server import settings_per_worker
from callboard.servers.gateway.settings import GatewayLimits
from callboard.testing import Cut, FakeBackend, Html, Raw, Silence, StatusReply

VECTORS = Path(__file__).resolve().parents[2] / "vectors/clients"
KEY_OF = {"responses": "input", "chat": "messages", "messages": "messages", "gemini": "contents"}
"""Where a body has its conversation."""
LIMIT = 20  # seconds; against a test that hangs, not part of what it asserts
BEGUN = [ReplyStarted(), TextPiece("Hel")]


def failure_of(front, answer, status):
    """The code of a failure, also of one that a stream of Responses ended with; any other has the status."""
    if front == "responses" and answer.streamed:
        return answer.events[-1]["response"]["error"]["code"]
    assert answer.status == status
    return code_of(front, answer)


@pytest.fixture
def beside(serving, behind, by_hand):
    """A gateway in front of a backend for the model `m`, where a stream of a healthy one runs meanwhile.

    Whatever happens inside, the healthy stream ends whole.
    """

    @asynccontextmanager
    async def beside(backend, *, front="responses", facts=None, **settings):
        if settings.get("idle_timeout"):  # which would end the healthy one as well
            async with serving(behind(backend, **(facts or {})), **settings) as served:
                yield served
            return
        async with by_hand() as healthy:
            good = behind(healthy, models=("healthy",))
            bad = replace(behind(backend, **(facts or {})), models=("m",))
            async with serving(bad, good, **settings) as served:
                stream = asyncio.ensure_future(served.post(front, request(front, model="healthy", stream=True)))
                asked = await healthy.asked.get()
                await asked.say("all ")
                yield served
                await asked.say("well")
                await asked.end()
                answer = await stream
                assert (text_of(front, answer), ends_of(front, answer)) == ("all well", ["completed"])
                healthy_one = next(each for each in served.gateway.backends if each.settings.models == ("healthy",))
                assert healthy_one.breaker.failures == 0

    return beside


# The backend.

FAULTS = {
    "500": (refused(500, "out of memory"), 500, "server_error", "api_error"),
    "503": (refused(503, "loading"), 503, "overloaded_error", "overloaded_error"),
    "401": (refused(401, "no such key", "invalid_api_key"), 401, "invalid_api_key", "authentication_error"),
    "404": (refused(404, "no such model", "model_not_found"), 404, "model_not_found", "not_found_error"),
    "429": (
        refused(429, "slow down", "rate_limit_exceeded", {"Retry-After": "7"}),
        429,
        "rate_limit_exceeded",
        "rate_limit_error",
    ),
    "400": (
        refused(400, "too long", "context_length_exceeded"),
        400,
        "context_length_exceeded",
        "invalid_request_error",
    ),
    "a web page": (Html(), 502, "malformed", "api_error"),
    "502, a web page": (Html(502), 502, "server_error", "api_error"),
    "200, plain text": (StatusReply(200, "busy"), 502, "malformed", "api_error"),
    "a redirect": (
        StatusReply(302, "", {"Location": "http://127.0.0.1/login?secret=1"}),
        502,
        "server_error",
        "api_error",
    ),
    "garbage": (Raw(["{"]), 502, "malformed", "api_error"),
    "noise": (Raw([b"\xff\xfe\x00" * 50]), 502, None, "api_error"),
    "nothing": (Raw([]), 502, None, "api_error"),
}
HEL = chunk(content="Hel")


@pytest.mark.parametrize("front", FRONTS)
async def test_a_backend_that_gives_no_reply(beside, front):
    replies = []
    async with (
        FakeBackend(lambda _: replies[-1]) as backend,
        beside(backend, front=front, failure_threshold=100) as served,
    ):
        for name, (reply, status, said, anthropic) in FAULTS.items():
            with row(name):
                replies.append(reply)
                whole, streamed = [await served.post(front, request(front, stream=stream)) for stream in (False, True)]
                expected = anthropic if front == "messages" else said
                assert whole.status == status
                assert expected is None or code_of(front, whole) == expected
                assert "secret" not in whole.text
                if front == "responses" and status >= 500:  # Codex shows no other
                    assert (streamed.status, ends_of(front, streamed)) == (200, ["failed"])
                    failed = streamed.events[-1]["response"]
                    assert failed["error"]["message"]
                    assert expected is None or failed["error"]["code"] == expected
                else:
                    assert streamed.status == whole.status
                    assert expected is None or code_of(front, streamed) == expected
                if name == "429":
                    assert (whole.headers["retry-after"], streamed.headers["retry-after"]) == ("7", "7")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Cut(BEGUN), "the connection broke in the middle of the answer"),
        (Silence(BEGUN), "nothing came for 0.05 s"),
        (Cut([*BEGUN, InvocationStarted(0, "c", "f"), ArgumentsPiece(0, '{"a":')]), "the connection broke"),
        (Raw([HEL, b"\n: wait\n\n", "<html>"]), "a frame is not of this wire"),
        (Raw([HEL, b"\n: wait\n\n", {"error": {"message": "out of memory"}}]), "out of memory"),
    ],
    ids=["cut", "silent", "cut inside a call", "garbage", "an error"],
)
async def test_a_backend_that_breaks_off(beside, front, reply, said):
    settings = {"idle_timeout": 0.05} if isinstance(reply, Silence) else {}
    async with FakeBackend(lambda _: reply) as backend, beside(backend, front=front, **settings) as served:
        answer = await served.post(front, request(front, stream=True))
        asked = served.gateway.backends[0]
        failures = [asked.model_breaker("m").failures, asked.breaker.failures]
    assert (answer.status, text_of(front, answer), ends_of(front, answer)) == (200, "Hel", ["failed"])
    assert said in answer.text
    assert failures == [1, 0]


@pytest.mark.parametrize("front", FRONTS)
@ways
async def test_a_backend_that_is_not_there(beside, front, stream):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = BackendSettings(url=f"http://127.0.0.1:{free.getsockname()[1]}/v1")
    async with FakeBackend([]) as backend, beside(backend, front=front, facts={"url": nowhere.url}) as served:
        answer = await served.post(front, request(front, stream=stream))
    assert failure_of(front, answer, 502) == ("api_error" if front == "messages" else "backend_unavailable")


@pytest.mark.parametrize("front", FRONTS)
@ways
async def test_a_backend_that_never_says_anything(beside, front, stream):
    async with FakeBackend([Silence()]) as backend, beside(backend, front=front, idle_timeout=0.05) as served:
        answer = await served.post(front, request(front, stream=stream))
        asked = served.gateway.backends[0]
        failures = [asked.model_breaker("m").failures, asked.breaker.failures]
    assert failures == ([1, 0] if stream else [0, 1])  # a stream has begun with its headers
    assert failure_of(front, answer, 504) == ("timeout_error" if front == "messages" else "timeout")


BEATS = {
    "responses": b"event: response.in_progress",
    "chat": b": keep-alive",
    "messages": b"event: ping",
    "gemini": b"\n",
}


@pytest.mark.parametrize("front", FRONTS)
async def test_a_silent_stream_says_that_it_goes_on(beside, by_hand, front):
    """Before the first event, and between two."""
    async with (
        by_hand() as backend,
        beside(backend, front=front, heartbeat=0.01) as served,
        served.open(front, request(front, stream=True)) as stream,
    ):
        asked = await backend.asked.get()
        data = await until(stream, BEATS[front], 3)
        await asked.say("Hello")
        data += await until(stream, b"Hello")
        data += await until(stream, BEATS[front], 2)
        await asked.end()
        data += await stream.read()
        answer = type(served).read(stream, data)
    assert (text_of(front, answer), ends_of(front, answer)) == ("Hello", ["completed"])
    if front == "responses":
        assert [event["sequence_number"] for event in answer.events] == list(range(len(answer.events)))
        assert [event["type"] for event in answer.events].count("response.created") == 1
        assert answer.events[0]["type"] == "response.created"


async def until(answer, mark, count=1):
    data = b""
    while data.count(mark) < count:
        piece = await answer.content.readany()
        assert piece, data
        data += piece
    return data


@pytest.mark.parametrize("front", FRONTS)
async def test_a_stream_that_began_with_a_heartbeat_may_fail(beside, by_hand, front):
    async with (
        by_hand() as backend,
        beside(backend, front=front, heartbeat=0.01) as served,
        served.open(front, request(front, stream=True)) as stream,
    ):
        asked = await backend.asked.get()
        data = await until(stream, BEATS[front])
        asked.answer.set_status(429)
        await asked.write(b'{"error": {"message": "slow down"}}')
        asked.over.set()
        answer = type(served).read(stream, data + await stream.read())
    assert (answer.status, ends_of(front, answer)) == (200, ["failed"])
    assert "slow down" in answer.text


# The client.


@pytest.mark.parametrize("front", FRONTS)
@ways
@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_leaves(beside, by_hand, front, stream, begun):
    """Its reply is cancelled upstream, and nothing is held against the backend."""
    async with by_hand() as backend, beside(backend, front=front, failure_threshold=1) as served:
        asking = asyncio.ensure_future(_leave(served, front, stream and begun, stream))
        asked = await backend.asked.get()
        if begun:
            await asked.say("Hello")
        if stream and begun:
            await asking
        else:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await asked.left.wait()
        breaker = served.gateway.backends[0].breaker
        assert (breaker.failures, breaker.state(0.0)) == (0, "closed")


async def _leave(served, front, reads, stream):
    async with aiohttp.ClientSession() as client:
        url, body = served.address(front, request(front, stream=stream))
        async with client.post(url, json=body) as answer:
            if reads:
                await until(answer, b"Hello")


async def test_a_probe_whose_client_leaves_lets_the_next_one_try(beside, by_hand):
    async with by_hand() as backend, beside(backend, failure_threshold=1, recovery_seconds=0.0) as served:
        body = request("responses", stream=False)
        first = asyncio.ensure_future(served.post("responses", body))
        for _ in range(3):  # the kept connection does not count, the new one is the first attempt of two
            (await asyncio.wait_for(backend.asked.get(), LIMIT)).cut()
        await first
        asking = asyncio.ensure_future(_leave(served, "responses", False, True))
        asked = await backend.asked.get()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asked.left.wait()
        last = asyncio.ensure_future(served.post("responses", {**body, "stream": True}))
        asked = await backend.asked.get()
        await asked.say("Hello")
        await asked.end()
        outcome = await last
    assert text_of("responses", outcome) == "Hello"


async def test_a_client_that_reads_slowly_is_not_read_ahead_for(beside, by_hand):
    """What the backend says is not gathered in the gateway: it waits, and so does the backend."""
    piece = "x" * 65_536
    most = 64 * 1024 * 1024 // len(piece)

    async with by_hand() as backend, beside(backend, front="chat") as served:
        _, writer = await asyncio.open_connection(*served.root.removeprefix("http://").split(":"), limit=1024)
        body = json.dumps(request("chat", stream=True))
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        asked = await backend.asked.get()
        told = 0
        try:
            while told < most:
                await asyncio.wait_for(asked.say(piece), 0.3)
                told += 1
        except TimeoutError:
            pass
        writer.close()
        await asked.left.wait()
        outcome = told
    assert outcome < most


HI = b'"input": "x", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]'
NESTED = b'[{"a":' * 400 + b"1" + b"}]" * 400
BAD_BODIES = {
    "no JSON": (b"{", 400, "invalid_json"),
    "nothing": (b"", 400, "invalid_json"),
    "no UTF-8": (b'{"model": "\xff"}', 400, "invalid_json"),
    "half a character": (rb'{"model": "\ud800", "input": "Hi"}', 400, "invalid_request"),
    "a list": (b"[]", 400, "invalid_json"),
    "a number": (b"1e999", 400, "invalid_json"),
    "nested deeply": (b'{"model":"m","input":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "invalid_json"),
    "nested": (b'{"model":"m","messages":' + NESTED + b',"input":' + NESTED + b"}", 400, None),
    "no model": (b"{}", 400, "model_required"),
    "an empty model": (b'{"model": " "}', 400, "model_required"),
    "a model that is a list": (b'{"model": ["m"]}', 400, "model_required"),
    "a model of 1 MB": (b'{"model": "' + b"m" * 1_000_000 + b'", ' + HI + b"}", 400, "invalid_request"),
    "a model that nobody serves": (b'{"model": "x", ' + HI + b"}", 404, "model_not_found"),
    "nothing asked": (b'{"model": "m"}', 400, "invalid_request"),
    "a wrong type": (b'{"model": "m", "input": 5, "messages": 5, "max_tokens": 1}', 400, "invalid_request"),
    "wrong items": (b'{"model": "m", "input": [5], "messages": [5], "max_tokens": 1}', 400, "invalid_request"),
    "wrong tools": (b'{"model": "m", "tools": 5, ' + HI + b"}", 400, "invalid_request"),
}
ANTHROPICS = {
    "invalid_json": "invalid_request_error",
    "invalid_request": "invalid_request_error",
    "model_required": "invalid_request_error",
    "model_not_found": "not_found_error",
    "request_too_large": "request_too_large",
    "too_many_messages": "invalid_request_error",
    "input_content_too_large": "request_too_large",
}


@pytest.mark.parametrize("front", FRONTS)
async def test_bodies_that_cannot_be(beside, front):
    # Responses takes a request without input, and items that it does not know.
    # The model of a request to Gemini's front stands in its URL.
    lenient = {"responses": {"nothing asked", "nested"}, "gemini": {name for name in BAD_BODIES if "model" in name}}
    cases = {name: case for name, case in BAD_BODIES.items() if name not in lenient.get(front, ())}
    async with FakeBackend([]) as backend, beside(backend, front=front) as served:
        answers = {name: await served.post(front, body) for name, (body, _, _) in cases.items()}
        asked = posted(backend)
    assert asked == []
    for name, (_, status, expected) in cases.items():
        answer = answers[name]
        assert answer.status == status, (name, answer)
        found = code_of(front, answer)
        assert expected is None or found == (ANTHROPICS[expected] if front == "messages" else expected), (name, answer)
        assert len(answer.data) < 2000, name


@pytest.mark.parametrize("front", FRONTS)
async def test_a_packed_body_is_refused_with_what_to_do(beside, front):
    encodings = ["gzip", "deflate", "zstd", "br", "gzip, identity"]
    async with FakeBackend(["Hello"] * 2) as backend, beside(backend, front=front) as served:
        packed = [await served.post(front, gzip.compress(b"{}"), {"content-encoding": each}) for each in encodings]
        assert posted(backend) == []
        plain = await served.post(front, request(front), {"content-encoding": "identity"})
    assert plain.status == 200
    for encoding, answer in zip(encodings, packed, strict=True):
        assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
        assert f"send no content-encoding '{encoding}'" in answer.text
        assert "features.enable_request_compression=false" in answer.text


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large(beside, front, chunked):
    async def pieces():
        for _ in range(50):
            yield b" " * 1000

    async with (
        FakeBackend([]) as backend,
        beside(backend, front=front, limits=GatewayLimits(body=20_000)) as served,
    ):
        url, _ = served.address(front, {})
        answer = await served.request("POST", url, data=pieces() if chunked else b" " * 50_000)
    assert answer.status == 413
    assert code_of(front, answer) == "request_too_large"


@pytest.mark.parametrize("front", FRONTS)
async def test_what_is_too_much(beside, front):
    key = KEY_OF[front]

    def said(text):
        return {"role": "user", "content": text} if front == "responses" else request(front, text)[key][0]

    async with (
        FakeBackend(["Hello"]) as backend,
        beside(backend, front=front, limits=GatewayLimits(items=10_000, content=1000)) as served,
    ):
        many = await served.post(front, request(front, **{key: [said("x")] * 10_001}))
        large = await served.post(front, request(front, **{key: [said("x"), said("x" * 1001)]}))
        enough = await served.post(front, request(front, **{key: [said("x")] * 10_000}))
        asked = backend.requests[-1].body
    names = ["too_many_messages", "input_content_too_large"]
    assert [each.status for each in (many, large, enough)] == [400, 413, 200]
    assert [code_of(front, each) for each in (many, large)] == (
        [ANTHROPICS[n] for n in names] if front == "messages" else names
    )
    assert f"{key}[1]" in large.text
    assert str(asked["messages"]).count("x") >= 10_000


def without_call(front, key, user, _, result):
    """The output, and then what the user says: in one message where the front has it so."""
    if front in {"responses", "chat"}:
        return {key: [result, user]}
    part = "parts" if front == "gemini" else "content"
    text = user[part] if front == "gemini" else [{"type": "text", "text": user[part]}]
    return {key: [{**result, part: [*result[part], *text]}]}


def without_output(front, key, user, call, _):
    return {key: [user, call, request(front, "Well?", past=("f", {}, ""))[key][0]]}


@pytest.mark.parametrize("wire", ["chat", "responses", "messages", "gemini"])
async def test_a_history_with_a_gap_is_answered(serving, behind, wire):
    async with FakeBackend(lambda _: "Hello") as backend, serving(behind(backend, wire=wire)) as served:
        for front, history in product(FRONTS, (without_call, without_output)):
            with row(front, history):
                key = KEY_OF[front]
                gap = history(front, key, *request(front, past=("f", {}, "5"))[key])
                answer = await served.post(front, request(front, **gap))
                asked = posted(backend)[-1]
                assert answer.status == 200, answer
                if wire == "chat":  # which refuses outputs without calls, and calls without outputs
                    calls = [call["id"] for message in asked["messages"] for call in message.get("tool_calls") or ()]
                    outputs = [message["tool_call_id"] for message in asked["messages"] if message["role"] == "tool"]
                    assert calls == outputs


@pytest.mark.parametrize("front", FRONTS)
async def test_fields_that_nobody_knows(serving, front):
    body = {**request(front), "frobnicate": {"a": [1]}, "x" * 3000: 1, "naïve\nfield": 1}

    async with FakeBackend(["Hello", "Hello"]) as backend, serving(backend) as lenient:
        answers = [await lenient.post(front, {**body, "stream": stream}) for stream in (True, False)]
    async with FakeBackend([]) as backend, serving(backend, strict=True) as strict:
        denied = [await strict.post(front, {**body, "stream": stream}) for stream in (True, False)]
        asked = posted(backend)
    if front == "chat":  # the backend's own wire: they are its to judge
        assert [each.status for each in answers] == [200, 200]
        return
    assert asked == []
    for answer in answers:
        assert answer.status == 200
        assert "frobnicate" in answer.headers["x-callboard-dropped"]
        assert len(answer.headers["x-callboard-dropped"]) <= 2000
    for answer in denied:
        assert answer.status == 400
        assert code_of(front, answer) == ("invalid_request_error" if front == "messages" else "would_lose")
        assert "frobnicate" in answer.text


async def test_hosted_tools_are_dropped_and_said_so(serving):
    body = {
        **request("responses"),
        "tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}}],
    }
    async with FakeBackend(["Hello"]) as backend, serving(backend) as served:
        answer = await served.post("responses", body)
        asked = backend.requests[-1].body
    async with FakeBackend([]) as backend, serving(backend, strict=True) as served:
        strict = await served.post("responses", body)
    assert "web_search" in answer.headers["x-callboard-dropped"]
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["f"]
    assert (strict.status, code_of("responses", strict)) == (400, "would_lose")


@pytest.mark.parametrize("wire", ["chat", "responses", "messages", "gemini"])
async def test_strictness_takes_what_coding_clients_send(serving, behind, wire):
    fronts = {"claude": "messages", "codex": "responses", "gemini": "gemini", "qwen": "chat"}
    async with FakeBackend(lambda _: "Hello") as backend, serving(behind(backend, wire=wire), strict=True) as served:
        for client, front in fronts.items():
            with row(client):
                body = json.loads((VECTORS / f"{client}-some-model.json").read_text("utf-8"))["first"]
                if front == "gemini":
                    body = {**body, "model": "some-model", "stream": True}
                if "tools" in body:  # what a provider's own search finds is lost
                    body = {**body, "tools": [each for each in body["tools"] if each.get("type") != "web_search"]}
                answer = await served.post(front, body)
                assert answer.status == 200, answer
                assert "Hell" in answer.text


async def test_nothing_is_said_to_be_dropped_where_nothing_is(serving):
    async with FakeBackend(["Hello"] * 4) as backend, serving(backend, strict=True) as served:
        outcome = [await served.post(front, request(front)) for front in FRONTS]
    for answer in outcome:
        assert answer.status == 200
        assert "x-callboard-dropped" not in answer.headers


# Several backends.


@pytest.mark.parametrize(
    "fault",
    [
        StatusReply(500),
        StatusReply(429, headers={"Retry-After": "7"}),
        StatusReply(401),
        Html(),
        Raw(["{"]),
        Cut(),
        Cut([ReplyStarted()]),
        Silence([ReplyStarted()]),
    ],
    ids=["500", "429", "401", "html", "garbage", "closed", "cut", "silent"],
)
async def test_the_next_backend_is_asked(serving, behind, fault):
    said = [ReplyStarted(), TextPiece("Hel"), TextPiece("lo"), Usage(3, 2), ReplyEnded("stop")]
    seconds = 0.05 if isinstance(fault, Silence) else 5.0
    async with (
        FakeBackend(lambda _: fault) as first,
        FakeBackend(lambda _: said) as second,
        serving(behind(first), behind(second, weight=0.0), idle_timeout=seconds, failure_threshold=100) as served,
    ):
        for asked, (front, stream) in enumerate(product(FRONTS, (True, False)), 1):
            with row(front, stream):
                answer = await served.post(front, request(front, stream=stream))
                assert answer.status == 200
                assert (len(posted(first)) >= asked, len(posted(second))) == (True, asked)
                assert "retry-after" not in answer.headers
                if stream:
                    assert (text_of(front, answer), ends_of(front, answer)) == ("Hello", ["completed"])
                else:
                    assert "Hello" in answer.text
                if stream and front == "responses":
                    assert answer.events[-1]["response"]["usage"]["input_tokens"] == 3


@ways
async def test_what_the_client_did_wrong_is_not_asked_of_another(serving, behind, stream):
    async with FakeBackend([refused(400, "no")]) as first, FakeBackend([]) as second:
        async with serving(behind(first), behind(second, weight=0.0)) as served:
            answer = await served.post("chat", request("chat", stream=stream))
        asked, gateway = posted(second), served.gateway
    assert (answer.status, asked) == (400, [])
    assert gateway.backends[0].breaker.failures == 0


async def test_what_was_said_is_not_said_again_by_another(serving, behind):
    async with FakeBackend([Cut(BEGUN)]) as first, FakeBackend([]) as second:
        async with serving(behind(first), behind(second, weight=0.0)) as served:
            answer = await served.post("responses", request("responses", stream=True))
        asked = posted(second)
    assert (text_of("responses", answer), ends_of("responses", answer), asked) == ("Hel", ["failed"], [])


@pytest.mark.parametrize("front", FRONTS)
@ways
async def test_backends_that_failed_too_often_are_not_asked(beside, front, stream):
    async with (
        FakeBackend(lambda _: StatusReply(503)) as backend,
        beside(backend, front=front, failure_threshold=3) as served,
    ):
        body = request(front, stream=stream)
        answers = [await served.post(front, body) for _ in range(4)]
        health = await served.get("/health")
        asked = len(posted(backend))
    last = answers[-1]
    assert asked == 3
    assert failure_of(front, last, 503) == (
        "overloaded_error" if front == "messages" else "backend_unavailable_circuit_open"
    )
    assert 25 <= int(last.headers["retry-after"]) <= 30
    assert health.status == 200  # the other one is well
    states = {each["name"]: each["is_open"] for each in health.body["backends"]}
    assert sorted(states.values()) == [False, True]


async def test_a_client_s_fault_is_not_the_backend_s(serving):
    statuses = [400, 401, 403, 404, 408, 409, 413, 422, 429]
    asked = [status for status in statuses for _ in range(4)]
    async with (
        FakeBackend([StatusReply(status) for status in asked]) as backend,
        serving(backend, failure_threshold=2) as served,
    ):
        answers = [await served.post("chat", request("chat")) for _ in asked]
        health = await served.get("/health")
    assert [each.status for each in answers] == asked
    assert (health.status, health.body["status"]) == (200, "healthy")


async def test_an_unhealthy_gateway_says_so(serving):
    async with FakeBackend(lambda _: StatusReply(503)) as backend, serving(backend, failure_threshold=2) as served:
        for _ in range(2):
            await served.post("chat", request("chat"))
        health = await served.get("/health")
    assert health.status == 503
    assert health.body["status"] == "unhealthy"
    assert health.body["circuit_breaker"] == {"enabled": True, "is_open": True, "consecutive_failures": 2}


async def test_a_storm_of_429_reaches_each_client_and_opens_nothing(beside):
    storm = refused(429, "slow down", headers={"Retry-After": "2"})

    async with FakeBackend(lambda _: storm) as backend, beside(backend, failure_threshold=3) as served:
        asking = [
            served.post(front, request(front, stream=stream))
            for front, stream in product(FRONTS, [True, False])
            for _ in range(8)
        ]
        answers = await asyncio.gather(*asking)
        asked = len(posted(backend))
    assert {(each.status, each.headers["retry-after"]) for each in answers} == {(429, "2")}
    assert asked == 64  # none is asked again behind a client's back


async def test_what_a_client_is_told_besides(serving):
    replies = [StatusReply(200, {"choices": [{"message": {"content": "Hi"}}]}, {"x-request-id": "req-1"}), "Hi"]
    async with FakeBackend(replies) as backend, serving(backend) as served:
        passed, made = [await served.post("chat", request("chat")) for _ in replies]
    assert passed.headers["x-request-id"] == "req-1"
    assert made.headers["x-request-id"] == made.body["id"]


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/responses/", "/v1/messages/batches", "/%00%ff", "/" + "x" * 5000])
async def test_paths_that_are_not_there(serving, path):
    async with FakeBackend([]) as backend, serving(backend) as served:
        outcome = [
            await served.request(method, served.root + path, allow_redirects=False)
            for method in ("GET", "POST", "DELETE", "PUT")
        ]
    for answer in outcome:
        assert answer.status in {404, 405}
        assert len(answer.data) < 1000
        if path.startswith("/v1/messages"):
            assert answer.body["type"] == "error"
        else:
            assert answer.body["error"]["code"] in {"not_found", "method_not_allowed"}


@pytest.mark.parametrize(("asked", "told"), [("9" * 400, "86400"), ("0", "1"), ("0.2", "1"), ("soon", None)])
async def test_a_pause_that_no_client_could_wait_for(serving, asked, told):
    storm = StatusReply(429, headers={"Retry-After": asked})
    async with FakeBackend([storm]) as backend, serving(backend) as served:
        answer = await served.post("chat", request("chat"))
    assert (answer.status, answer.headers.get("retry-after")) == (429, told)


@pytest.mark.parametrize("front", FRONTS)
async def test_a_line_without_an_end(serving, front):
    endless = Raw([b"data: ", *[b"x" * 2**20] * 17])
    async with FakeBackend([endless]) as backend, serving(backend) as served:
        answer = await served.post(front, request(front, stream=True))
    if front == "responses":
        assert ends_of(front, answer) == ["failed"]
    else:
        assert answer.status == 502
    assert len(answer.data) < 5000


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_that_stops_in_its_request(serving, front):
    async def half():
        yield b'{"model": '
        await asyncio.Event().wait()

    async with FakeBackend([]) as backend, serving(backend, limits=GatewayLimits(read_timeout=0.05)) as served:
        url, _ = served.address(front, {})
        answer = await served.request("POST", url, data=half())
    assert answer.status == 408
    assert code_of(front, answer) in {"timeout", "timeout_error", "invalid_request_error"}


class Broken:
    """A model that has a mistake of ours in it."""

    def __init__(self, model):
        self.plan, self.resolution = model.plan, model.resolution

    async def batches(self, request, **_):
        yield [ReplyStarted(), TextPiece("Hel")]
        raise ZeroDivisionError


@pytest.mark.parametrize("front", FRONTS)
@ways
async def test_a_mistake_of_ours_is_an_end_as_well(beside, front, stream, caplog):
    async with FakeBackend([]) as backend, beside(backend, front=front) as served:
        bad = served.gateway.backends[0]
        bad._models["m", "", b"{}"] = Broken(bad.model("m"))
        answer = await served.post(front, request(front, stream=stream))
    if stream:
        assert (answer.status, text_of(front, answer), ends_of(front, answer)) == (200, "Hel", ["failed"])
    else:
        assert (answer.status, code_of(front, answer)) == (
            500,
            "api_error" if front == "messages" else "internal_error",
        )
    assert "ZeroDivisionError" in caplog.text
    assert "ZeroDivision" not in answer.text


# Callers.


@pytest.mark.parametrize("front", FRONTS)
async def test_one_key_has_its_share(serving, by_hand, front):
    keys = {"ann": digest("sk-ann-12345678"), "bob": digest("sk-bob-12345678")}
    async with (
        by_hand() as backend,
        serving(backend, keys=keys, max_concurrent=1, requests_per_minute=2.0) as served,
    ):
        ann, bob = ({"authorization": f"Bearer sk-{name}-12345678"} for name in ("ann", "bob"))
        body = request(front, stream=True)
        open_one = asyncio.ensure_future(served.post(front, body, ann))
        asked = await backend.asked.get()
        assert "authorization" not in asked.headers  # the gateway's keys are its own
        second = await served.post(front, body, ann)
        bobs = asyncio.ensure_future(served.post(front, body, bob))
        for each in (asked, await backend.asked.get()):
            await each.say("Hello")
            await each.end()
        await asyncio.gather(open_one, bobs)
        third = asyncio.ensure_future(served.post(front, body, ann))
        each = await backend.asked.get()
        await each.say("Hello")
        await each.end()
        await third
        fourth = await served.post(front, body, ann)
    for answer in (second, fourth):
        assert answer.status == 429
        assert code_of(front, answer) == ("rate_limit_error" if front == "messages" else "rate_limit_exceeded")
    assert second.headers["retry-after"] == "1"
    assert 25 <= int(fourth.headers["retry-after"]) <= 31


KEYS = {"chat": "authorization", "responses": "authorization", "messages": "x-api-key", "gemini": "x-goog-api-key"}


@pytest.mark.parametrize(("wire", "header"), list(KEYS.items()))
@pytest.mark.parametrize("own", ["", "sk-upstream-1"])
async def test_the_key_goes_where_the_wire_has_it(serving, behind, wire, header, own):
    async with FakeBackend(["Hello"]) as backend, serving(behind(backend, wire=wire, key=own)) as served:
        await served.post("messages", request("messages"), {"x-api-key": "sk-client-1"})
        headers = next(each.headers for each in backend.requests if each.method == "POST")
    assert headers[header].removeprefix("Bearer ") == (own or "sk-client-1")
    assert "sk-client-1" not in str({name: value for name, value in headers.items() if name.lower() != header})
    assert not own or "sk-client-1" not in str(headers)


@pytest.mark.parametrize("origins", [(), ("https://app.example",)])
async def test_web_pages(serving, origins):
    async with FakeBackend(["Hello"] * 3) as backend, serving(backend, origins=origins) as served:
        asking = {
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        before, there, evil = [
            await served.request("OPTIONS", f"{served.url}/responses", headers=asking),
            await served.post("responses", request("responses"), {"origin": "https://app.example"}),
            await served.post("responses", request("responses"), {"origin": "https://evil.example"}),
        ]
    allowed = "access-control-allow-origin"
    assert (evil.status, evil.headers.get(allowed), code_of("responses", evil)) == (403, None, "origin_not_allowed")
    if origins:
        assert (before.status, before.headers[allowed]) == (200, "https://app.example")
        assert (there.status, there.headers[allowed]) == (200, "https://app.example")
    else:
        assert (before.status, there.status) == (405, 403)
        assert allowed not in before.headers


COUNTED = {
    "count_tokens": ("POST", "/v1/messages/count_tokens"),
    "input_tokens": ("POST", "/v1/responses/input_tokens"),
    "countTokens": ("POST", "/v1beta/models/m:countTokens"),
    "models": ("GET", "/v1/models"),
    "model": ("GET", "/v1beta/models/m"),
    "kept": ("GET", "/v1/responses/resp_1"),
    "deleted": ("DELETE", "/v1/responses/resp_1"),
    "cancelled": ("POST", "/v1/responses/resp_1/cancel"),
    "items": ("GET", "/v1/responses/resp_1/input_items"),
    "metrics": ("GET", "/metrics"),
}


@pytest.mark.parametrize("kind", COUNTED)
async def test_every_request_of_a_key_counts(serving, kind):
    method, path = COUNTED[kind]
    async with FakeBackend([]) as backend, serving(backend, requests_per_minute=2.0) as served:
        statuses = [(await served.request(method, served.root + path, data=b"{}")).status for _ in range(3)]
    assert 429 not in statuses[:2]
    assert statuses[2] == 429


async def test_who_has_no_place_left_can_read_figures_but_not_count_tokens(serving, by_hand):
    async with by_hand() as backend, serving(backend, max_concurrent=1) as served:
        open_one = asyncio.ensure_future(served.post("responses", {"model": "m", "input": "hi"}))
        await backend.asked.get()
        denied, figures = await served.post("/messages/count_tokens", {}), await served.get("/metrics")
        open_one.cancel()
    assert (denied.status, figures.status) == (429, 200)


@pytest.mark.parametrize("path", ["/health", "/ready", "/"])
@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_web_pages_and_other_hosts_learn_nothing_about_the_gateway(serving, path, headers):
    async with FakeBackend([]) as backend, serving(backend, hosts=("127.0.0.1",)) as served:
        denied, told = await served.get(path, **headers), await served.get(path)
    assert (denied.status, denied.body["error"]["code"]) in {(403, "host_not_allowed"), (403, "origin_not_allowed")}
    assert told.status == 200


async def test_backends_are_named_to_who_has_a_key(serving, behind):
    keys = {"ann": digest("sk-ann-12345678")}
    async with FakeBackend([]) as backend, serving(behind(backend, name="secret-lab"), keys=keys) as served:
        anybody, ann = await served.get("/health"), await served.get("/health", **{"x-api-key": "sk-ann-12345678"})
    assert anybody.status == ann.status == 200
    assert "secret-lab" not in anybody.text
    assert anybody.body["backends"][0]["state"] == "closed"
    assert ann.body["backends"][0]["name"] == "secret-lab"


@table(("rate", "concurrency"), [(10.0, 4), (1.0, 1), (0.5, 3), (0.0, 0)])
@table("workers", [1, 2, 4, 7])
def test_workers_share_what_a_key_may_do(rate, concurrency, workers):
    settings = GatewaySettings(
        backends=(BackendSettings(url="http://x"),), requests_per_minute=rate, max_concurrent=concurrency
    )
    one = settings_per_worker(settings, workers)
    assert one.requests_per_minute * workers == pytest.approx(rate)
    assert bool(one.requests_per_minute) == bool(rate)  # 0 is no limit
    assert bool(one.max_concurrent) == bool(concurrency)
    assert concurrency <= one.max_concurrent * workers < concurrency + workers

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing, asynccontextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace
from tests.tables import table

from callboard import core
from callboard.core import reply_events, unsent_note
from callboard.errors import CallerError
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers import HttpModel, Transport, open_model
from callboard.testing import Cut, FakeBackend, Html, Raw, Silence, StatusReply

ASKING = core.Request(
    "fake-model", (core.UserCanister("Hi"),), (core.ToolDeclaration("search", "Search.", {"type": "object"}),)
)
HELLO = [core.ReplyStarted(), core.TextPiece("Hel"), core.TextPiece("lo"), core.Usage(3, 2), core.ReplyEnded("stop")]
CALL = [
    core.ReplyStarted(),
    core.TextPiece("Let me see."),
    core.InvocationStarted(0, "call_1", "search"),
    core.ArgumentsPiece(0, '{"query":'),
    core.ArgumentsPiece(0, '"x"}'),
    core.InvocationEnded(0, "call_1", "search", {"query": "x"}, '{"query":"x"}'),
    core.Usage(11, 7),
    core.ReplyEnded("invocations"),
]
LEAK = 'Let me see.\n```json\n{"name": "search", "arguments": {"query": "x"}}\n```'
CHUNK = '{"id":"1","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}'


class Naps(list):
    async def __call__(self, seconds):
        self.append(seconds)


@asynccontextmanager
async def model_at(url, *, mode="", profile=None, tell=None, **options):
    resolution = resolve("fake-model", profile)
    transport = Transport(**({"sleep": Naps(), "jitter": lambda: 0.0} | options))
    model = HttpModel(resolution, make_plan(resolution, mode), transport, base_url=url, api_key="secret", tell=tell)
    try:
        async with asyncio.timeout(120):  # against a test that hangs, not part of what it asserts
            yield model
    finally:
        await model.aclose()


async def events_of(model, *, stream=True, **changes):
    return [event async for event in reply_events(model, replace(ASKING, stream=stream, **changes))]


def ask(replies, *, stream=True, chunk_size=None, changes=None, **options):
    """The events of one reply, and the backend."""

    async def scenario():
        async with FakeBackend(replies, chunk_size=chunk_size) as backend, model_at(backend.url, **options) as model:
            return await events_of(model, stream=stream, **(changes or {})), backend

    return asyncio.run(scenario())


def text_of(events):
    return "".join([event.text for event in events if isinstance(event, core.TextPiece)])


def assert_ends_once(events):
    assert [isinstance(event, (core.ReplyEnded, core.ReplyFailed)) for event in events] == [False] * (
        len(events) - 1
    ) + [True]


@table("stream", [True, False])
def test_a_reply(stream):
    events, backend = ask([HELLO], stream=stream)
    assert_ends_once(events)
    assert isinstance(events[0], core.ReplyStarted)
    assert (text_of(events), events[-2:]) == ("Hello", [core.Usage(3, 2), core.ReplyEnded("stop")])
    (asked,) = backend.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer secret"
    assert (asked.body["model"], asked.body.get("stream", False)) == ("fake-model", stream)


@table("stream", [True, False])
@table("reply", [CALL, LEAK], ids=["call", "leak"])
def test_a_call(reply, stream):
    events, _ = ask([reply], stream=stream, mode="native")
    assert_ends_once(events)
    assert text_of(events).strip() == "Let me see."
    (ended,) = [event for event in events if isinstance(event, core.InvocationEnded)]
    assert (ended.index, ended.name, ended.arguments) == (0, "search", {"query": "x"})
    assert events[-1] == core.ReplyEnded("invocations")


def test_a_call_and_a_leaked_one_share_a_sequence():
    events, _ = ask([[*CALL[:1], core.TextPiece(LEAK.replace("x", "y") + "\n"), *CALL[2:]]], mode="native")
    found = [(event.index, event.identifier) for event in events if isinstance(event, core.InvocationEnded)]
    assert found == [(0, "call_1_t0"), (1, "call_1")]


def test_no_call_is_taken_from_a_model_that_may_not_call():
    events, _ = ask([LEAK], mode="native", changes={"tool_choice": "none"})
    assert (text_of(events), events[-1]) == (LEAK, core.ReplyEnded("stop"))


def test_a_backend_that_does_not_stream():
    body = b'{"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}'
    events, _ = ask([StatusReply(200, body)])
    assert_ends_once(events)
    assert (text_of(events), events[-1]) == ("Hello", core.ReplyEnded("stop"))


FAULTS = [
    pytest.param(Html(), "provider", "malformed", "the answer is no reply but text/html", id="a web page"),
    pytest.param(
        StatusReply(200, "busy"), "provider", "malformed", "the answer is no reply but text/plain", id="plain text"
    ),
    pytest.param(StatusReply(200, b""), "provider", "malformed", "the answer is empty", id="nothing"),
    pytest.param(
        StatusReply(401, {"error": {"message": "no such key"}}),
        "caller",
        "authentication_error",
        "no such key",
        id="401",
    ),
    pytest.param(Html(404), "caller", "not_found_error", "the provider answered 404", id="404, a web page"),
    pytest.param(
        StatusReply(500, headers={"x-should-retry": "false"}, body={"error": {"message": "out of memory"}}),
        "provider",
        "server_error",
        "out of memory",
        id="500",
    ),
]


@table("stream", [True, False])
@table(("reply", "party", "code", "message"), FAULTS)
def test_answers_that_are_no_reply(reply, party, code, message, stream):
    (failed,), _ = ask([reply], stream=stream)
    assert (failed.party, failed.code, failed.message) == (party, code, message)
    assert len(failed.excerpt) <= 500


def test_too_many_requests_in_the_end():
    naps, told = Naps(), []
    busy = StatusReply(429, {"error": {"message": "slow down"}}, {"Retry-After": "7"})
    (failed,), backend = ask([busy] * 4, sleep=naps, tell=told.append)
    assert (failed.code, failed.message) == ("rate_limit_exceeded", "slow down")
    assert naps == [7.0, 7.0, 7.0]
    assert told == [f"attempt {attempt}: the server answered 429; trying again in 7.0 s" for attempt in (1, 2, 3)]
    backend.assert_complete()


def test_too_many_requests_at_first():
    events, backend = ask([StatusReply(429), StatusReply(503), HELLO])
    assert text_of(events) == "Hello"
    assert len(backend.requests) == 3


@table(
    ("reply", "code", "message"),
    [
        (Cut(after=HELLO[:3]), "cut", "the connection broke in the middle of the answer"),
        (Silence(after=HELLO[:3]), "timeout", "nothing came for 0.05 s in the middle of the answer"),
    ],
    ids=["cut", "silence"],
)
def test_a_stream_that_breaks_off(reply, code, message):
    events, backend = ask([reply], idle_timeout=0.05)
    assert_ends_once(events)
    assert text_of(events) == "Hello"
    assert events[-1].code == code
    assert events[-1].message.startswith(f"{backend.url}/chat/completions: {message}")


@table("calling", [CALL[:4], [core.ReplyStarted(), core.TextPiece(LEAK[:-9])]], ids=["call", "leak"])
def test_a_stream_that_breaks_off_inside_a_call(calling):
    events, _ = ask([Cut(after=calling)], mode="native")
    assert_ends_once(events)
    incomplete = events[-2]
    assert isinstance(incomplete, core.InvocationIncomplete)
    assert (incomplete.name, incomplete.why) == ("search", "cut")
    assert incomplete.raw.startswith('{"query":')
    assert not any(isinstance(event, core.InvocationEnded) for event in events)


async def test_a_server_that_says_nothing():
    async def mute(_, writer):
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, model_at(f"http://127.0.0.1:{port}/v1", idle_timeout=0.05) as model:
        events = await events_of(model)
        over.set()
    (failed,) = events
    assert (failed.party, failed.code) == ("provider", "timeout")
    assert "no answer within 0.05 s" in failed.message


async def test_a_server_that_is_not_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/"

    naps = Naps()
    async with model_at(url, sleep=naps) as model:
        (failed,) = await events_of(model)
    assert (failed.party, failed.code) == ("provider", "unreachable")
    assert failed.message == f"{url}chat/completions: cannot connect: Connection refused; is the server running?"
    assert len(naps) == 3


@table(
    ("chunks", "last"),
    [
        ([CHUNK, "[DONE]"], core.ReplyEnded("stop")),
        ([CHUNK], "cut"),
        ([], "malformed"),
        ([CHUNK, '{"error": {"message": "out of memory", "code": "oom"}}', CHUNK, "[DONE]"], "oom"),
        ([CHUNK, "<html>", CHUNK, "[DONE]"], "malformed"),
        ([CHUNK, b"data: [DONE]\n\n", CHUNK], core.ReplyEnded("stop")),
        ([b": waiting\n\n", CHUNK, b"event: ping\n\n", "[DONE]"], core.ReplyEnded("stop")),
        ([b"\xff\xfe\x00"], "malformed"),
    ],
)
@table("chunk_size", [None, 1])
def test_streams_of_every_kind_end_once(chunks, last, chunk_size):
    events, _ = ask([Raw(chunks)], chunk_size=chunk_size)
    assert_ends_once(events)
    assert (events[-1].code if isinstance(last, str) else events[-1]) == last


async def test_a_stream_cut_anywhere_ends_once():
    """Cleanly, as by a proxy that gives up: never half a call, never an exception."""
    frames = await stream_of(CALL)
    cuts = range(0, len(frames), 5)
    replies = [Raw([frames[:end]]) for end in cuts]
    async with FakeBackend(replies) as backend, model_at(backend.url, mode="native") as model:
        for _ in cuts:
            events = await events_of(model)
            assert_ends_once(events)
            for event in events:
                if isinstance(event, core.InvocationEnded):
                    assert event.arguments == {"query": "x"}


async def stream_of(reply):
    """A streamed reply's bytes."""
    async with FakeBackend([reply]) as backend:
        transport = Transport()
        asked = transport.post(f"{backend.url}/chat/completions", headers={}, body=b'{"stream": true}')
        async with asked as answer:
            data = await answer.read(100_000)
        await transport.aclose()
    return data


async def test_leaving_a_reply_closes_its_connection():
    async with FakeBackend([Silence(after=HELLO[:2]), "again"]) as backend, model_at(backend.url) as model:
        async with aclosing(reply_events(model, ASKING)) as events:
            async for event in events:
                if isinstance(event, core.TextPiece):
                    break
        await backend.disconnected.wait()
        # The model is as good as before.
        assert text_of(await events_of(model)) == "again"


def test_what_cannot_be_sent_is_told():
    content = (core.TextualContent("Listen:"), core.FileContent(url="https://example.org/song"))
    events, backend = ask([HELLO], changes={"canisters": (core.UserCanister(content),)})
    assert events[0] == unsent_note("file")
    assert text_of(events) == "Hello"
    assert "Listen:" in str(backend.requests[0].body["messages"])


@table(
    ("controls", "sent"),
    [
        (core.Controls(), {"temperature": 0.25, "max_tokens": 64}),
        (core.Controls(temperature=1.0, max_tokens=8), {"temperature": 1.0, "max_tokens": 8}),
        (core.Controls(top_p=0.5), {"temperature": 0.25, "max_tokens": 64, "top_p": 0.5}),
    ],
)
def test_controls_are_the_requests_and_then_the_profiles(controls, sent):
    _, backend = ask([HELLO], profile={"temperature": 0.25, "max_tokens": 64}, changes={"controls": controls})
    body = backend.requests[0].body
    asked = {key: body[key] for key in ("temperature", "max_tokens", "max_completion_tokens", "top_p") if key in body}
    asked = {key.replace("max_completion_tokens", "max_tokens"): value for key, value in asked.items()}
    assert asked == sent


@table(
    ("status", "tools", "texts"),
    [
        (
            400,
            [core.ToolDeclaration(f"t{n}") for n in range(129)],
            ["129 tools are declared, and some endpoints take 128"],
        ),
        (
            400,
            [core.ToolDeclaration(n, "x" * 1025) for n in "abcd"],
            ["the descriptions of 4 tools are longer than 1024"],
        ),
        (413, [core.ToolDeclaration("a", "x" * 1025)], ["the description of one tool is longer than 1024 characters"]),
        (400, [core.ToolDeclaration("a", "x" * 1024)], []),
        (401, [core.ToolDeclaration("a", "x" * 1025)], []),
    ],
)
def test_a_refusal_is_told_with_what_of_the_tools_some_endpoints_refuse(status, tools, texts):
    events, _ = ask([StatusReply(status)], mode="native", changes={"tools": tuple(tools)})
    *notes, failed = events
    assert isinstance(failed, core.ReplyFailed)
    assert len(notes) == len(texts)
    assert all(note.text.startswith(text) for note, text in zip(notes, texts, strict=True))


def test_of_many_tools_that_are_taken_nothing_is_told():
    events, _ = ask(
        ["Hello"], mode="native", changes={"tools": tuple(core.ToolDeclaration(f"t{n}") for n in range(129))}
    )
    assert not any(isinstance(event, core.Note) for event in events)


@table(
    ("url", "wire", "said"),
    [
        (
            "http://x/v1/chat/completions",
            "chat",
            "it ends with /chat/completions, which is added to it; leave that out",
        ),
        (
            "http://x/v1/chat/completions/",
            "chat",
            "it ends with /chat/completions, which is added to it; leave that out",
        ),
        ("https://x/v1/messages", "messages", "it ends with /v1/messages, which is added to it; leave that out"),
        (
            "http://x/v1/responses",
            "chat",
            "it ends with /responses, which is added to it; leave that out, and for that wire write profile={'wire': 'res",
        ),
        ("http://x/v1?key=secret", "chat", "it has a query, and paths are added to it"),
        (5, "chat", "a int is no URL"),
    ],
)
def test_a_base_url_that_is_more_than_one_is_refused(url, wire, said):
    with pytest.raises(CallerError) as caught:
        open_model("m", base_url=url, profile={"wire": wire})
    assert str(caught.value).startswith(f"base_url: {said}")
    assert "secret" not in str(caught.value)


@table("ending", ["", "/v1", "/v1/"])
async def test_the_version_in_a_base_url_is_not_said_twice(ending):
    async with FakeBackend(["Hi."]) as backend:
        url = backend.url.removesuffix("/v1") + ending
        async with aclosing(open_model("m", base_url=url, profile={"wire": "messages"})) as model:
            events = [event async for event in reply_events(model, core.Request("m", (core.UserCanister("Hi"),)))]
        path = backend.requests[0].path
    assert (type(events[-1]), path) == (core.ReplyEnded, "/v1/messages")


async def test_blanks_around_a_base_url_are_no_part_of_it():
    async with FakeBackend(["Hi."]) as backend, aclosing(open_model("m", base_url=f" {backend.url}/ ")) as model:
        events = [event async for event in reply_events(model, core.Request("m", (core.UserCanister("Hi"),)))]
        outcome = "".join([event.text for event in events if isinstance(event, core.TextPiece)])
    assert outcome == "Hi."


class Reading:
    """A server that reads a prompt, and says that it lives as often as it is asked, up to a number of times.

    Then the answer of `after` comes. Its head comes `early`, as vLLM sends it, or late, as llama.cpp does.
    """

    def __init__(self, lives, after, early):
        self.lives, self.after, self.early = lives, after, early
        self.asked_often = asyncio.Event()

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._reply)
        app.router.add_get("/health", self._tell)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _tell(self, request):
        self.lives -= 1
        if self.lives == 0:
            self.asked_often.set()
        return web.Response(status=200 if self.lives >= 0 else 500)

    async def _reply(self, request):
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        if self.early:
            await answer.prepare(request)
            await answer.write(b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n')
        if not self.after:
            await asyncio.Event().wait()
        await self.asked_often.wait()
        if not self.early:
            await answer.prepare(request)
        for frame in self.after:
            await answer.write(f"data: {frame}\n\n".encode())
        if self.after[-1] != "[DONE]":
            await asyncio.Event().wait()
        return answer


READ = ('{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}', "[DONE]")


@table(
    ("after", "early", "end"),
    [
        ([CHUNK, *READ], True, "stop"),
        ([CHUNK, *READ], False, "stop"),
        ([], True, "timeout"),  # it stops living
        ([], False, "timeout"),
        ([CHUNK], True, "timeout"),  # after the first token it has to go on
    ],
)
def test_a_server_that_lives_may_read_for_long(after, early, end):
    async def scenario():
        async with Reading(3, after, early) as url, model_at(url, idle_timeout=0.1) as model:
            return await events_of(model)

    last = asyncio.run(scenario())[-1]
    assert end == (last.reason if isinstance(last, core.ReplyEnded) else last.code)

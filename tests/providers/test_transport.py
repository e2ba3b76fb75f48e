from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import re
import socket
import sys
import traceback
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime

import pytest
from tests.tables import table

from callboard.core import TextPiece
from callboard.errors import CallerError, ProviderError
from callboard.providers.transport import Transport
from callboard.testing import Cut, FakeBackend, Html, Silence, StatusReply

STREAM = b'{"stream": true}'
WHOLE = b"{}"
HELLO = (TextPiece("Hello"),)


class Naps(list):
    async def __call__(self, seconds):
        self.append(seconds)


@asynccontextmanager
async def transport_of(**options):
    naps = Naps()
    defaults = {"sleep": naps, "jitter": lambda: 0.0, "clock": lambda: datetime(2026, 1, 1, tzinfo=UTC)}
    transport = Transport(**(defaults | options))
    try:
        async with asyncio.timeout(120):  # against a test that hangs, not part of what it asserts
            yield transport, naps
    finally:
        await transport.aclose()


@asynccontextmanager
async def raw_server(answer):
    """A server that reads a request's head and lets `answer` write what it likes."""
    connections = []

    async def serve(reader, writer):
        connections.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", connections
        for writer in connections:
            writer.close()


async def ask(transport, url, body=WHOLE, headers=None, seen=None, **options):
    """The whole body; `seen` gets the chunks that come before a failure too."""
    chunks = [] if seen is None else seen
    async with transport.post(url, headers=headers or {}, body=body, **options) as answer:
        while chunk := await answer.next_chunk():
            chunks.append(chunk)
    return b"".join(chunks)


def chat(backend):
    return f"{backend.url}/chat/completions"


def refused_url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


@table(
    ("replies", "naps", "status"),
    [
        pytest.param(["hi"], [], 200, id="no failure"),
        pytest.param([StatusReply(429, headers={"Retry-After": "7"}), "hi"], [7.0], 200, id="seconds"),
        pytest.param(
            [StatusReply(429, headers={"Retry-After": "Thu, 01 Jan 2026 00:00:09 GMT"}), "hi"], [9.0], 200, id="date"
        ),
        pytest.param([StatusReply(429, headers={"retry-after-ms": "1500"}), "hi"], [1.5], 200, id="milliseconds"),
        pytest.param(
            [StatusReply(429, headers={"Retry-After": "0"}), "hi"], [0.5], 200, id="at once, but not too soon"
        ),
        pytest.param([StatusReply(429, headers={"Retry-After": "60"}), "hi"], [60.0], 200, id="a minute"),
        pytest.param([StatusReply(429, headers={"Retry-After": "61"})], [], 429, id="longer than a minute"),
        *[pytest.param([StatusReply(code), "hi"], [0.5], 200, id=str(code)) for code in (500, 502, 503, 504, 529)],
        pytest.param([StatusReply(503)] * 4, [0.5, 1.0, 2.0], 503, id="exhausted"),
        pytest.param([Cut(), Cut(), "hi"], [0.5, 1.0], 200, id="closed without an answer"),
        *[pytest.param([StatusReply(code)], [], code, id=str(code)) for code in (400, 401, 403, 404, 413, 422, 501)],
        pytest.param([StatusReply(307, headers={"Location": "http://127.0.0.1:1/"})], [], 307, id="redirect"),
        pytest.param([StatusReply(500, headers={"x-should-retry": "false"})], [], 500, id="told not to"),
        pytest.param([StatusReply(409, headers={"x-should-retry": "true"}), "hi"], [0.5], 200, id="told to"),
        pytest.param([Html(502), Html(502), "hi"], [0.5, 1.0], 200, id="a gateway's page"),
    ],
)
async def test_what_is_asked_again_and_when(replies, naps, status):
    async with FakeBackend(replies) as backend, transport_of() as (transport, slept):
        async with transport.post(chat(backend), headers={}, body=WHOLE) as answer:
            assert answer.status == status
        assert slept == naps
        backend.assert_complete()


async def test_somebody_is_told_of_retries():
    told = []

    async with FakeBackend([Cut(), StatusReply(503), "hi"]) as backend, transport_of() as (transport, _):
        body = await ask(transport, chat(backend), on_retry=lambda *report: told.append(report))
        assert json.loads(body)["choices"][0]["message"]["content"] == "hi"
    assert told == [
        (1, "the connection was closed without an answer", 0.5),
        (2, "the server answered 503", 1.0),
    ]


async def test_nothing_is_asked_again_after_the_answer_began():
    async with FakeBackend([Cut(after=HELLO), "hi"]) as backend, transport_of() as (transport, naps):
        came = []
        with pytest.raises(ProviderError) as caught:
            await ask(transport, chat(backend), STREAM, seen=came)
        assert caught.value.code == "cut"
        assert caught.value.path == chat(backend)
        assert b"Hello" in b"".join(came)
        assert naps == []
        assert len(backend.requests) == 1


async def test_a_server_that_is_not_there():
    url = refused_url()

    async with transport_of() as (transport, naps):
        with pytest.raises(ProviderError) as caught:
            await ask(transport, url)
        assert naps == [0.5, 1.0, 2.0]
        error = caught.value
    assert error.code == "unreachable"
    assert str(error) == f"{url}: cannot connect: Connection refused; is the server running?"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux: other systems accept connections beyond the backlog")
async def test_a_server_that_does_not_accept():
    with ExitStack() as sockets, socket.create_server(("127.0.0.1", 0), backlog=0) as busy:
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(busy.getsockname())
        async with transport_of(connect_timeout=0.05, retries=1) as (transport, naps):
            with pytest.raises(ProviderError, match=r"no connection within 0\.05 s") as caught:
                await ask(transport, f"http://127.0.0.1:{busy.getsockname()[1]}/v1")
            assert caught.value.code == "timeout"
            assert naps == [0.5]


async def test_tls_with_a_server_that_has_none_is_not_tried_again():
    async with FakeBackend([]) as backend, transport_of() as (transport, naps):
        with pytest.raises(ProviderError, match="TLS failed; does the server speak https") as caught:
            await ask(transport, chat(backend).replace("http:", "https:"))
        assert caught.value.code == "unreachable"
        assert naps == []


async def test_what_is_not_http():
    async def answer(writer):
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")

    async with raw_server(answer) as (url, _), transport_of() as (transport, naps):
        with pytest.raises(ProviderError) as caught:
            await ask(transport, url, b"")
        assert caught.value.code == "malformed"
        assert naps == []


async def leave_by_cancelling(transport, url, body):
    came = asyncio.Event()

    class Seen(list):
        def append(self, chunk):
            came.set()

    task = asyncio.create_task(ask(transport, url, body, seen=Seen()))
    await came.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def leave_by_closing_a_generator(transport, url, body):
    async def reply():
        async with transport.post(url, headers={}, body=body) as answer:
            while chunk := await answer.next_chunk():
                yield chunk

    async with aclosing(reply()) as chunks:
        await anext(chunks)


async def leave_by_an_exception(transport, url, body):
    class Seen(list):
        def append(self, chunk):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask(transport, url, body, seen=Seen())


async def leave_without_reading(transport, url, body):
    async with transport.post(url, headers={}, body=body) as answer:
        assert answer.status == 200


@table("leave", [leave_by_cancelling, leave_by_closing_a_generator, leave_by_an_exception, leave_without_reading])
async def test_leaving_an_answer_reaches_the_server(leave):
    async with FakeBackend([Silence(after=HELLO)]) as backend, transport_of() as (transport, _):
        await leave(transport, chat(backend), STREAM)
        await backend.disconnected.wait()


async def test_cancelling_before_an_answer_reaches_the_server():
    asked = asyncio.Event()

    def silence(_body):
        asked.set()
        return Silence()

    async with FakeBackend(silence) as backend, transport_of() as (transport, _):
        task = asyncio.create_task(ask(transport, chat(backend)))
        await asked.wait()
        task.cancel()
        await backend.disconnected.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_connection_is_kept_after_a_whole_answer_and_only_then():
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def scenario():
        async with raw_server(answer) as (url, connections), transport_of() as (transport, _):
            for _ in range(2):
                async with transport.get(url, headers={}) as whole:
                    assert await whole.read(2) == b"ok"
            assert len(connections) == 1

    async def half(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")

    async def abandoned():
        async with raw_server(half) as (url, connections), transport_of() as (transport, _):
            for _ in range(2):
                async with transport.get(url, headers={}) as answer:
                    assert await answer.next_chunk() == b"o"
            assert len(connections) == 2

    asyncio.run(scenario())
    asyncio.run(abandoned())


async def close_at_once(reader, writer):
    pass


async def close_when_asked(reader, _writer):
    await read_request(reader)


async def close_in_the_head(reader, writer):
    await read_request(reader)
    writer.write(b"HTTP/1.1 2")


async def read_request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int((re.search(rb"(?i)content-length: (\d+)", head) or [0, b"0"])[1]))


@asynccontextmanager
async def forgetful_server(end, answers=100):
    """A server that announces Keep-Alive and closes each connection after a streamed answer, in the way of `end`.

    Connections after the first `answers` are closed unanswered. Gives the URL, and what came of each connection.
    """
    connections = []

    async def serve(reader, writer):
        connections.append("accepted")
        mine = len(connections) - 1
        try:
            await read_request(reader)
            if mine < answers:
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5, max=100\r\n")
                writer.write(b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
                connections[mine] = "answered"
                await end(reader, writer)
                connections[mine] = "asked again"
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", connections


@table("end", [close_at_once, close_when_asked])
@table("body", [WHOLE, b"a" * 3_000_000], ids=["small", "large"])
async def test_a_kept_connection_that_the_server_closes_is_no_failure(end, body):
    told = []

    async with forgetful_server(end) as (url, connections), transport_of(retries=0) as (transport, naps):
        for _ in range(3):
            assert await ask(transport, url, body, on_retry=lambda *report: told.append(report)) == b"hello"
        assert len(connections) == 3
        assert naps == told == []


async def test_any_number_of_kept_connections_may_be_closed():
    async with (
        forgetful_server(close_when_asked) as (url, connections),
        transport_of(retries=0) as (transport, naps),
    ):
        async with AsyncExitStack() as at_once:
            for _ in range(3):
                answer = await at_once.enter_async_context(transport.post(url, headers={}, body=WHOLE))
                at_once.push_async_callback(answer.read, 5)
        assert await ask(transport, url) == b"hello"
        await asyncio.sleep(0)
        assert connections == ["asked again"] * 3 + ["answered"]
        assert naps == []


@table("method", ["GET", "POST"])
async def test_a_new_connection_that_the_server_closes_is_a_failure(method):
    async with (
        forgetful_server(close_when_asked, answers=1) as (url, _),
        transport_of(retries=2) as (transport, naps),
    ):
        assert await ask(transport, url) == b"hello"
        with pytest.raises(ProviderError, match="the connection was closed without an answer") as caught:
            async with (
                transport.get(url, headers={}) if method == "GET" else transport.post(url, headers={}, body=WHOLE)
            ):
                pass
        assert caught.value.code == "unreachable"
        assert naps == [0.5, 1.0]


async def test_an_answer_that_began_on_a_kept_connection_is_a_failure():
    async with forgetful_server(close_in_the_head) as (url, connections), transport_of() as (transport, naps):
        assert await ask(transport, url) == await ask(transport, url) == b"hello"
        assert naps == [0.5]
        assert len(connections) == 2


@table(
    ("body", "reply", "message"),
    [
        (STREAM, Silence(after=HELLO), "nothing came for 0.05 s in the middle of the answer"),
        (WHOLE, Silence(), "no answer within 0.05 s"),
    ],
)
async def test_a_silence_ends(body, reply, message):
    async with (
        FakeBackend([reply]) as backend,
        transport_of(idle_timeout=0.05) as (transport, naps),
    ):
        with pytest.raises(ProviderError, match=message) as caught:
            await ask(transport, chat(backend), body)
        assert caught.value.code == "timeout"
        assert naps == []
        await backend.disconnected.wait()


async def test_a_malformed_chunk_does_not_hang():
    heard = asyncio.Event()

    class Seen(list):
        def append(self, chunk):
            assert chunk == b"hello"
            heard.set()

    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await heard.wait()
        writer.write(b"no size\r\n")

    async with raw_server(answer) as (url, _), transport_of(idle_timeout=0.05) as (transport, _):
        with pytest.raises(ProviderError) as caught:
            await ask(transport, url, b"", seen=Seen())
        assert caught.value.code in {"timeout", "cut"}


async def test_an_answer_says_what_it_is():
    async with FakeBackend([Html(), "hi"]) as backend, transport_of() as (transport, _):
        async with transport.post(chat(backend), headers={}, body=WHOLE) as page:
            assert (page.status, page.content_type) == (200, "text/html")
            assert page.headers["CONTENT-TYPE"] == "text/html; charset=utf-8"
            assert (await page.read(1000)).startswith(b"<!doctype html>")
        async with transport.post(chat(backend), headers={}, body=STREAM) as stream:
            assert stream.content_type == "text/event-stream"
            assert (await stream.read(100_000)).endswith(b"data: [DONE]\n\n")
        async with transport.get(f"{backend.url}/models", headers={}) as models:
            assert models.content_type == "application/json"


async def test_an_answer_is_decompressed_and_bounded():
    large = StatusReply(200, gzip.compress(b"a" * 1_000_000), {"Content-Encoding": "gzip"})

    async with FakeBackend([large, large]) as backend, transport_of() as (transport, _):
        async with transport.post(chat(backend), headers={}, body=WHOLE) as answer:
            assert await answer.read(1_000_000) == b"a" * 1_000_000
        with pytest.raises(ProviderError, match="more than 999999 bytes") as caught:
            async with transport.post(chat(backend), headers={}, body=WHOLE) as answer:
                await answer.read(999_999)
        assert caught.value.code == "too_large"
        assert caught.value.excerpt == "a" * 500


async def test_a_large_request_arrives_whole_also_the_second_time():
    body = json.dumps({"picture": "a" * 3_000_000}).encode()

    async with FakeBackend([StatusReply(503), "seen"]) as backend, transport_of() as (transport, _):
        await ask(transport, chat(backend), body)
        assert [len(asked.body["picture"]) for asked in backend.requests] == [3_000_000] * 2


async def test_netrc_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password netrc-secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async with FakeBackend(["hi", "hi"]) as backend, transport_of() as (transport, _):
        for headers in ({"Authorization": "Bearer key"}, {"x-api-key": "key"}):
            await ask(transport, chat(backend), headers=headers)
        assert [asked.headers.get("Authorization") for asked in backend.requests] == ["Bearer key", None]


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_the_environments_proxy_is_asked_but_not_for_loopback(monkeypatch, scheme):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with (
        FakeBackend(["by proxy"]) as proxy,
        FakeBackend(["direct"]) as backend,
        transport_of() as (transport, _),
    ):
        address = proxy.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"{scheme}{address}")
        assert b"by proxy" in await ask(transport, "http://model.invalid/v1/chat/completions")
        assert proxy.requests[0].headers["Host"] == "model.invalid"
        assert b"direct" in await ask(transport, chat(backend))


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", "socks5://me:secret@127.0.0.1:1080")

    async def scenario():
        async with transport_of() as (transport, _):
            await ask(transport, "https://model.invalid/v1")

    with pytest.raises(CallerError) as caught:
        asyncio.run(scenario())
    assert str(caught.value) == "HTTPS_PROXY: only an http proxy can be used; or name model.invalid in NO_PROXY"


@table("url", ["", "model", "ftp://host/v1", "http://", "http://[::1/v1", "http://host:x/v1"])
def test_what_is_no_url(url):
    async def scenario():
        async with transport_of() as (transport, _):
            await ask(transport, url)

    with pytest.raises(CallerError, match="not a URL that a provider can be asked at"):
        asyncio.run(scenario())


PASSWORD = {"Authorization": "Bearer secret", "x-api-key": "secret"}


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        pytest.param(lambda url: f"{url}?key=secret", PASSWORD, id="cut"),
        pytest.param(lambda url: "http://me:secret@127.0.0.1:1/v1?key=secret", {"x-api-key": "secret"}, id="refused"),
        pytest.param(lambda url: f"{url}?key=secret", {"x-api-key": "secret\n"}, id="line break"),
        pytest.param(lambda url: url.replace("//", "//me:secret@"), PASSWORD, id="two passwords"),
        pytest.param(lambda url: url.replace("http:", "https:") + "?key=secret", PASSWORD, id="no TLS"),
    ],
)
async def test_no_secret_is_in_an_error_or_a_log(change, headers, caplog):
    caplog.set_level(logging.DEBUG)

    async with FakeBackend([Cut(after=HELLO)]) as backend, transport_of() as (transport, _):
        with pytest.raises((CallerError, ProviderError)) as caught:
            await ask(transport, change(chat(backend)), STREAM, headers)
        error = caught.value
    told = [str(error), repr(error), repr(vars(error)), "".join(traceback.format_exception_only(error)), caplog.text]
    causes = [line for line in traceback.format_exception(error) if not line.startswith("  File")]
    assert "secret" not in "".join([*told, *causes])
    assert error.path.startswith("http")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_transport_outlives_an_event_loop():
    transport = Transport()

    async def scenario():
        async with FakeBackend(["hi"]) as backend:
            return await ask(transport, chat(backend))

    assert asyncio.run(scenario()) == asyncio.run(scenario())
    asyncio.run(transport.aclose())
    gc.collect()  # the connections of the loops that are gone, while their warnings are ignored


async def test_a_closed_transport_opens_again():
    async with FakeBackend(["hi", "hi"]) as backend, transport_of() as (transport, _):
        for _ in range(2):
            await ask(transport, chat(backend))
            await transport.aclose()

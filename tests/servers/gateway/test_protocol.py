"""What a connection may do before a request of it is known, with bare sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import aiohttp
import h11
import msgspec
import pytest

from callboard.servers.gateway import GatewayLimits
from callboard.servers.gateway.protocol import MAX_HEAD, MAX_HEADERS
from callboard.testing import FakeBackend

SOON = 0.05
"""Seconds of a deadline that is to pass."""
GET = b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n"
ASK = msgspec.json.encode({"model": "m", "input": "hi"})


class Wire:
    """A bare connection."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces):
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self):
        """Status and body of one answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        size = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
        return int(head.split()[1]), await self.reader.readexactly(size)

    async def code(self):
        status, body = await self.answer()
        return status, msgspec.json.decode(body)["error"]["code"]

    async def closed(self):
        """What is still sent until the connection is closed."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@pytest.fixture
def story(serving):
    """Runs a scenario that is given the gateway and a way to connect to it."""

    def run(scenario, **settings):
        async def whole():
            async with FakeBackend(["Hello"] * 50) as backend, serving(backend, **settings) as served:
                port = int(served.root.rpartition(":")[2])

                @asynccontextmanager
                async def connect():
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    try:
                        yield Wire(reader, writer)
                    finally:
                        writer.close()

                async with asyncio.timeout(60):  # against a hang
                    return await scenario(SimpleNamespace(served=served, connect=connect))

        return asyncio.run(whole())

    return run


def post(body=ASK, *lines):
    head = [b"POST /v1/responses HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


BIG = b"x" * 60_000
HEADS = {
    "one header": b"GET /ready HTTP/1.1\r\nhost: x\r\na: " + BIG * 20,
    "a header's name": b"GET /ready HTTP/1.1\r\nhost: x\r\n" + BIG * 20,
    "the path": b"GET /" + BIG * 20,
    "lines": b"GET /ready HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 20_000,
    "empty lines": b"\r\n" * 100_000,
    "many headers": b"GET /ready HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * MAX_HEADERS + b"\r\n",
    "one byte too much": b"GET /ready HTTP/1.1\r\na: " + b"x" * (MAX_HEAD - 27) + b"\r\n\r\n",
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("before", [b"", GET])
def test_a_head_of_more_than_64_kib_or_100_fields_is_refused(story, head, before):
    async def scenario(at):
        async with at.connect() as wire:
            if before:
                await wire.send(before)
                assert (await wire.answer())[0] == 200
            sending = asyncio.ensure_future(wire.send(HEADS[head]))
            assert await wire.code() == (431, "header_too_large")
            await asyncio.gather(sending, return_exceptions=True)
            assert await wire.closed() == b""

    story(scenario)


def test_a_head_of_64_kib_is_read(story):
    async def scenario(at):
        head = b"GET /ready HTTP/1.1\r\na: " + b"x" * (MAX_HEAD - 28) + b"\r\n\r\n"
        assert len(head) == MAX_HEAD
        async with at.connect() as wire:
            for _ in range(3):
                await wire.send(head)
                assert (await wire.answer())[0] == 200

    story(scenario)


def test_a_large_head_keeps_nobody_waiting(story):
    """Another client is answered while the head still comes, of which no more is kept than its limit."""

    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"GET /ready HTTP/1.1\r\na: ")
            for _ in range(20):
                await wire.send(BIG)
            assert (await at.served.get("/ready")).status == 200
            assert (await wire.answer())[0] == 431
            (connection,) = [each for each in at.served.server.server_state.connections if each._over]
            assert connection._head <= MAX_HEAD
            assert not connection._rest

    story(scenario)


UNFINISHED = {
    "nothing": [],
    "half a line": [b"GET /re"],
    "half a header": [b"GET /ready HTTP/1.1\r\nhost"],
    "an empty line": [b"\r\n"],
    "a byte now and then": [bytes([each]) for each in GET[:10]],
}


@pytest.mark.parametrize("pieces", UNFINISHED)
@pytest.mark.parametrize("before", [b"", GET])
def test_a_head_that_is_not_whole_in_time_ends_its_connection(story, pieces, before):
    async def scenario(at):
        async with at.connect() as wire:
            if before:
                await wire.send(before)
                assert (await wire.answer())[0] == 200
            for piece in UNFINISHED[pieces]:
                await wire.send(piece)
                await asyncio.sleep(SOON / 10)
            if UNFINISHED[pieces]:
                assert await wire.code() == (408, "timeout")
            assert await wire.closed() == b""

    story(scenario, limits=GatewayLimits(head_seconds=SOON, idle_seconds=SOON))


def test_bytes_that_come_in_time_one_by_one_do_not_renew_the_deadline(story):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"GET /ready HTTP/1.1\r\na: ")
            answer = asyncio.ensure_future(wire.code())
            while not answer.done():
                await asyncio.gather(wire.send(b"x"), return_exceptions=True)
                await asyncio.sleep(SOON / 10)
            assert answer.result() == (408, "timeout")

    story(scenario, limits=GatewayLimits(head_seconds=SOON))


def test_a_connection_that_asks_nothing_more_is_closed(story):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(GET)
            assert (await wire.answer())[0] == 200
            assert await wire.closed() == b""

    story(scenario, limits=GatewayLimits(idle_seconds=SOON))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_nobody_waits_for_is_not_read_for_ever(story, chunked):
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: 1000000"

    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"POST /ready HTTP/1.1\r\nhost: x\r\n" + framing + b"\r\n\r\n")
            assert (await wire.answer())[0] == 405
            closed = asyncio.ensure_future(wire.closed())
            while not closed.done():
                await asyncio.gather(wire.send(b"1\r\nx\r\n"), return_exceptions=True)
                await asyncio.sleep(SOON / 10)

    story(scenario, limits=GatewayLimits(head_seconds=SOON))


def test_a_body_that_was_refused_and_then_comes_does_not_cost_the_connection(story):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"POST /ready HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n")
            assert (await wire.answer())[0] == 405
            await wire.send(b"x" * 200_000, GET)
            assert (await wire.answer())[0] == 200

    story(scenario)


@pytest.mark.parametrize(
    "beside",
    [b"0\r\n" + b"a: " + BIG * 20, b"0\r\n" + b"a: b\r\n" * 50_000, b"1;" + BIG * 20],
    ids=["trailer", "trailers", "extension"],
)
def test_what_stands_beside_a_body_is_bounded_as_its_head_is(story, beside):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            sending = asyncio.ensure_future(wire.send(beside))
            assert (await wire.code())[0] == 400
            await asyncio.gather(sending, return_exceptions=True)
            await wire.closed()

    story(scenario)


def test_a_short_trailer_is_taken(story):
    async def scenario(at):
        async with at.connect() as wire:
            chunk = b"%x\r\n%b\r\n" % (len(ASK), ASK)
            head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            await wire.send(head + chunk + b"0\r\na: b\r\n\r\n" + GET)
            assert (await wire.answer())[0] == 200
            assert (await wire.answer())[0] == 200

    story(scenario)


@pytest.mark.parametrize("piece", [1, 7, 1000, 100_000])
def test_a_body_arrives_whole_however_it_is_cut(story, piece):
    async def scenario(at):
        body = msgspec.json.encode({"model": "m", "input": "é" * (200_000 if piece > 10 else 2_000)})
        chunks = [
            b"%x\r\n%b\r\n" % (len(body[at : at + piece]), body[at : at + piece]) for at in range(0, len(body), piece)
        ]
        head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        async with at.connect() as wire:
            await wire.send(head + b"".join(chunks) + b"0\r\n\r\n" + GET + post(body) + GET)
            answers = [await wire.answer() for _ in range(4)]
            assert [status for status, _ in answers] == [200] * 4
            said = [msgspec.json.decode(answers[place][1])["output"][0]["content"][0]["text"] for place in (0, 2)]
            assert said == ["Hello"] * 2

    story(scenario)


def test_requests_that_wait_on_one_connection_are_bounded(story):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(GET * 10)
            assert [(await wire.answer())[0] for _ in range(10)] == [200] * 10
            sending = asyncio.ensure_future(wire.send(GET * 20_000))
            answered = (await wire.closed()).count(b"200 OK")
            assert answered < 100
            await asyncio.gather(sending, return_exceptions=True)

    story(scenario)


def test_what_is_no_http_is_said_so_in_json(story):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"\x16\x03\x01 no http\r\n\r\n")
            assert await wire.code() == (400, "invalid_request")
            assert await wire.closed() == b""

    story(scenario)


def test_a_broken_body_is_refused_at_once(story):
    async def scenario(at):
        async with at.connect() as wire:
            await wire.send(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n")
            assert await wire.code() == (400, "invalid_request")

    story(scenario)


# How many there are.


def test_connections_that_wait_make_room_for_new_ones_the_oldest_first(story):
    async def scenario(at):
        async with AsyncExitStack() as stack:
            wires = []
            for _ in range(3):
                wires.append(await stack.enter_async_context(at.connect()))
                await wires[-1].send(GET)
                assert (await wires[-1].answer())[0] == 200
            first, *others = wires
            assert await first.closed() == b""
            for wire in others:
                await wire.send(GET)
                assert (await wire.answer())[0] == 200

    story(scenario, limits=GatewayLimits(connections=2))


def test_a_connection_too_many_is_refused_while_all_others_are_answered(serving, by_hand):
    async def whole():
        async with by_hand() as backend, serving(backend, limits=GatewayLimits(connections=1)) as served:
            port = int(served.root.rpartition(":")[2])
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            open_one = asyncio.ensure_future(served.post("chat", body))
            asked = await backend.asked.get()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await Wire(reader, writer).code() == (503, "overloaded")
            assert await reader.read() == b""
            writer.close()
            await asked.say("Hello")
            await asked.end()
            assert (await open_one).status == 200
            assert (await served.get("/ready")).status == 200

    asyncio.run(whole())


# WebSockets.


async def socket_of(served, **options):
    return await served.client.ws_connect(served.url + "/responses", **options)


def test_no_websocket_is_compressed(story):
    async def scenario(at):
        socket = await socket_of(at.served, compress=15)
        assert not socket.compress
        await socket.close()

    story(scenario)


@pytest.mark.parametrize("size", [1, 100, 5000, 1_000_000])
def test_a_message_arrives_whole_however_it_is_cut(story, size):
    async def scenario(at):
        body = msgspec.json.encode(
            {"type": "response.create", "model": "m", "input": "é" * (2_000 if size == 1 else 300_000)}
        )
        socket = await socket_of(at.served)
        for begin in range(0, len(body), size):
            opcode = (aiohttp.WSMsgType.TEXT if begin == 0 else aiohttp.WSMsgType.CONTINUATION).value
            fin = 0x80 if begin + size >= len(body) else 0
            piece = body[begin : begin + size]
            length = len(piece)
            head = bytes([fin | opcode])
            if length < 126:
                head += bytes([0x80 | length])
            elif length < 65536:
                head += bytes([0x80 | 126]) + length.to_bytes(2, "big")
            else:
                head += bytes([0x80 | 127]) + length.to_bytes(8, "big")
            socket._conn.transport.write(head + b"\0\0\0\0" + piece)
        while (event := msgspec.json.decode((await socket.receive()).data))["type"] != "response.completed":
            pass
        assert event["response"]["output"][0]["content"][0]["text"] == "Hello"
        assert at.served.gateway.request_budget.used == 0
        await socket.close()

    story(scenario)


def test_a_flood_of_pings_takes_no_room(story):
    async def scenario(at):
        socket = await socket_of(at.served, autoping=True)
        for _ in range(50):
            socket._conn.transport.write(b"\x89\xfd\0\0\0\0" + b"x" * 125)
        await socket.send_str("no json")
        assert msgspec.json.decode((await socket.receive()).data)["error"]["code"] == "invalid_json"
        assert at.served.gateway.request_budget.used == 0
        await socket.close()

    story(scenario)


def test_messages_that_are_not_whole_have_one_bound_for_all_sockets(story):
    async def scenario(at):
        sockets = [await socket_of(at.served) for _ in range(6)]
        for socket in sockets:
            socket._conn.transport.write(b"\x01\xff" + (400_000).to_bytes(8, "big") + b"\0\0\0\0" + b" " * 200_000)
        ended = [asyncio.ensure_future(socket.receive()) for socket in sockets]
        done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert all(each.result().data == 1013 for each in done)
        assert at.served.gateway.request_budget.used <= 1_000_000
        for each in waiting:
            each.cancel()
        for socket in sockets:
            if socket._conn.transport is not None:
                socket._conn.transport.abort()

    story(scenario, limits=GatewayLimits(held=1_000_000))


def test_what_a_lost_socket_held_is_given_back(story):
    async def scenario(at):
        socket = await socket_of(at.served)
        socket._conn.transport.write(b"\x01\xff" + (400_000).to_bytes(8, "big") + b"\0\0\0\0" + b" " * 200_000)
        while not at.served.gateway.request_budget.used:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        socket._conn.transport.abort()
        while at.served.gateway.request_budget.used:  # noqa: ASYNC110
            await asyncio.sleep(0)

    story(scenario)


# A client that says that it sends no more.


ASKING = {
    "responses": ("/v1/responses", {"input": "hi"}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "messages": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    "gemini": ("/v1beta/models/m:{}", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
}


def asking(front, *, stream, version="1.1"):
    """A request of a front as bytes."""
    path, body = ASKING[front]
    body = msgspec.json.encode({**body, "model": "m", "stream": stream} if front != "gemini" else body)
    path = path.format("streamGenerateContent?alt=sse" if stream else "generateContent")
    return f"POST {path} HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def final(reader):
    """Status, header lines and body of the answer, behind those of 1xx; chunks put together by other code than ours."""
    while (head := (await reader.readuntil(b"\r\n\r\n"))).startswith(b"HTTP/1.1 1"):
        pass
    parser = h11.Connection(our_role=h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(head + await reader.read())
    parser.receive_data(b"")
    answer = parser.next_event()
    data = b""
    while isinstance(event := parser.next_event(), h11.Data):
        data += event.data
    assert isinstance(event, h11.EndOfMessage)
    return answer.status_code, data


@pytest.mark.parametrize("front", ASKING)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_who_half_closes_gets_the_answer(serving, by_hand, front, stream, begun):
    async def scenario():
        async with by_hand() as backend, serving(backend) as served, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(served.root.rpartition(":")[2]))
            writer.write(asking(front, stream=stream))
            if not begun:
                writer.write_eof()
            asked = await backend.asked.get()
            await asked.say("Hel")
            early = await reader.readuntil(b"Hel") if begun and stream else b""
            if begun:
                writer.write_eof()
            await until(lambda: all(each.flow.ended for each in served.server.server_state.connections))
            await asked.say("lo!")
            await asked.end()
            rest = asyncio.StreamReader()
            rest.feed_data(early + await reader.read())
            rest.feed_eof()
            writer.close()
            assert not served.server.server_state.connections
            return await final(rest)

    status, data = asyncio.run(scenario())
    assert status == 200
    assert b"lo!" in data


async def until(holds):
    for _ in range(1_000_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_who_closes_is_told_from_who_half_closes(serving, by_hand, version, stream, begun):
    """Both look alike until something is written; HTTP/1.0 has nothing that could be, so there both have left."""

    async def scenario():
        async with by_hand() as backend, serving(backend) as served, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(served.root.rpartition(":")[2]))
            writer.write(asking("responses", stream=stream, version=version))
            asked = await backend.asked.get()
            if begun:
                await asked.say("Hel")
                if stream:
                    await reader.readuntil(b"Hel")
            writer.close()
            await asked.left.wait()
            await until(lambda: not served.server.server_state.connections)

    asyncio.run(scenario())


def test_who_half_closes_in_the_middle_of_a_request_has_left(story):
    async def scenario(it):
        async with it.connect() as wire:
            await wire.send(post()[:-3])
            wire.writer.write_eof()
            assert await wire.closed() == b""

    story(scenario)


def test_all_requests_of_who_half_closes_are_answered(story):
    async def scenario(it):
        async with it.connect() as wire:
            await wire.send(post() * 3 + b"\r\n")
            wire.writer.write_eof()
            return await wire.closed()

    assert story(scenario).count(b"HTTP/1.1 200 ") == 3

"""The server's limits of a connection, with bare sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest

from callboard.servers.gateway import GatewayLimits
from callboard.testing import FakeBackend

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
    """A gateway and a way to connect to it, as an async context manager of settings."""

    @asynccontextmanager
    async def opened(**settings):
        async with FakeBackend(["Hello"] * 50) as backend, serving(backend, **settings) as served:
            port = int(served.root.rpartition(":")[2])

            @asynccontextmanager
            async def connect():
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    yield Wire(reader, writer)
                finally:
                    writer.close()

            yield SimpleNamespace(served=served, connect=connect)

    return opened


def post(body=ASK, *lines):
    head = [b"POST /v1/responses HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def test_a_head_of_more_than_64_kib_is_refused_beyond_loopback(story):
    async with story(http="h11") as at, at.connect() as wire:
        await wire.send(b"GET /ready HTTP/1.1\r\nhost: x\r\na: " + b"x" * 60_000)
        await wire.send(b"x" * 10_000)
        assert (await wire.closed())[:13] in {b"", b"HTTP/1.1 400 "}  # a reset may lose the answer


async def test_too_many_connections_are_answered_503(story):
    async with story(limits=GatewayLimits(connections=2)) as at, at.connect() as first, at.connect() as second:
        await first.send(GET)
        await second.send(GET)
        assert (await second.answer())[0] == 503


async def test_a_connection_that_asks_nothing_more_is_closed(story):
    async with story(limits=GatewayLimits(idle_seconds=1)) as at, at.connect() as wire:
        await wire.send(GET)
        assert (await wire.answer())[0] == 200
        assert await wire.closed() == b""


async def test_a_body_that_was_refused_and_then_comes_does_not_cost_the_connection(story):
    async with story() as at, at.connect() as wire:
        await wire.send(b"POST /ready HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n")
        assert (await wire.answer())[0] == 405
        await wire.send(b"x" * 200_000, GET)
        assert (await wire.answer())[0] == 200


async def test_a_short_trailer_is_taken(story):
    async with story() as at, at.connect() as wire:
        chunk = b"%x\r\n%b\r\n" % (len(ASK), ASK)
        head = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        await wire.send(head + chunk + b"0\r\na: b\r\n\r\n" + GET)
        assert (await wire.answer())[0] == 200
        assert (await wire.answer())[0] == 200


@pytest.mark.parametrize("piece", [1, 7, 1000, 100_000])
async def test_a_body_arrives_whole_however_it_is_cut(story, piece):
    async with story() as at:
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


async def socket_of(served, **options):
    return await served.client.ws_connect(served.url + "/responses", **options)


async def test_no_websocket_is_compressed(story):
    async with story() as at:
        socket = await socket_of(at.served, compress=15)
        assert not socket.compress
        await socket.close()


@pytest.mark.parametrize("size", [1, 100, 5000, 1_000_000])
async def test_a_message_arrives_whole_however_it_is_cut(story, size):
    async with story() as at:
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


async def test_a_flood_of_pings_takes_no_room(story):
    async with story() as at:
        socket = await socket_of(at.served, autoping=True)
        for _ in range(50):
            socket._conn.transport.write(b"\x89\xfd\0\0\0\0" + b"x" * 125)
        await socket.send_str("no json")
        assert msgspec.json.decode((await socket.receive()).data)["error"]["code"] == "invalid_json"
        assert at.served.gateway.request_budget.used == 0
        await socket.close()


def asking(*, stream, version):
    """A request as bytes."""
    body = msgspec.json.encode({"model": "m", "input": "hi", "stream": stream})
    head = f"POST /v1/responses HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def until(holds):
    for _ in range(1_000_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_closes_cancels_its_reply(serving, by_hand, version, stream, begun):
    async with by_hand() as backend, serving(backend) as served, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.root.rpartition(":")[2]))
        writer.write(asking(stream=stream, version=version))
        asked = await backend.asked.get()
        if begun:
            await asked.say("Hel")
            if stream:
                await reader.readuntil(b"Hel")
        writer.close()
        await asked.left.wait()
        await until(lambda: not served.server.server_state.connections)


async def test_who_half_closes_in_the_middle_of_a_request_has_left(story):
    async with story() as at, at.connect() as wire:
        await wire.send(post()[:-3])
        wire.writer.write_eof()
        assert await wire.closed() == b""

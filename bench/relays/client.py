"""A client that is never the bottleneck: requests that were made beforehand, replies as bytes that nobody parses in time."""

import asyncio
import re
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_END = b"\r\n0\r\n\r\n"


class Reply(NamedTuple):
    """`seconds` until its end, `first` until its first piece of text."""

    status: int
    data: bytes
    seconds: float
    first: float

    def body(self) -> bytes:
        """Without HTTP's chunks."""
        head, _, data = self.data.partition(b"\r\n\r\n")
        if not _CHUNKED.search(head):
            return data
        pieces = []
        while data:
            size, _, data = data.partition(b"\r\n")
            pieces.append(data[: int(size, 16)])
            data = data[int(size, 16) + 2 :]
        return b"".join(pieces)


class Connection(asyncio.Protocol):
    """One connection, which asks one thing after another, and is made anew where the server closes it after a reply.

    `watch` is told each piece of a reply as it comes.
    """

    def __init__(self, url: str, watch: Callable[[bytes], None] | None = None) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._watch = watch
        self._transport: asyncio.WriteTransport | None = None
        self._done: asyncio.Future[float] | None = None
        self._lost: asyncio.Future[None] | None = None
        self._closes = False

    def request(self, path: str, body: bytes) -> bytes:
        host, port = self._address
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer sk-bench\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def ask(self, request: bytes, mark: bytes = b"\r\n\r\n") -> Reply:
        """The reply; its first piece of text is where `mark` is first seen. Raises OSError where there is none."""
        loop = asyncio.get_running_loop()
        begun = perf_counter()
        if self._closes and self._transport is not None:
            self._transport.abort()
            await self._lost
        if self._transport is None:
            await loop.create_connection(lambda: self, *self._address)
        self._pieces: list[bytes] = []
        self._mark: bytes | None = mark
        self._first = 0.0
        self._left: int | None = None
        self._headed = False
        self._done = loop.create_future()
        self._transport.write(request)
        ended = await self._done
        data = b"".join(self._pieces)
        return Reply(int(data[9:12]), data, ended - begun, self._first - begun)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._lost.set_result(None)
        if self._done is not None and not self._done.done():
            if self._headed and self._left is None and not self._chunked:  # its end is the connection's
                self._end()
            else:
                self._done.set_exception(error or ConnectionResetError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            return
        self._pieces.append(data)
        if self._mark is not None and self._mark in data:
            self._first = perf_counter()
            self._mark = None
        if self._watch is not None:
            self._watch(data)
        if not self._headed:
            head, found, data = b"".join(self._pieces).partition(b"\r\n\r\n")
            if not found:
                return
            self._headed = True
            length = _LENGTH.search(head)
            self._left = int(length[1]) if length else None
            self._chunked = _CHUNKED.search(head) is not None
            self._closes = _CLOSES.search(head) is not None
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._end()
        elif self._chunked and (data.endswith(_END) or (len(data) < len(_END) and self._ended())):
            self._end()

    def _ended(self) -> bool:
        return b"".join(self._pieces[-4:]).endswith(_END)

    def _end(self) -> None:
        self._done.set_result(perf_counter())

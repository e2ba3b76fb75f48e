"""A backend that is never the bottleneck: Chat Completions, as bytes that were made beforehand.

usage: python -m relays.backend PORT

The model's name says what comes: `text-N` a reply of N pieces, streamed in one write, each piece in a frame and an
HTTP chunk of its own, as servers send them; `slow-N-MS` one piece each MS milliseconds, which is `t` and the
nanoseconds of the monotonic clock when it was sent. It speaks as much HTTP/1.1 as its clients do, and keeps
connections.
"""

import asyncio
import re
import sys
from functools import cache
from time import monotonic_ns

import uvloop

_MODEL = re.compile(rb'"model": ?"[^"]*?(text|slow)-(\d+)(?:-(\d+))?"')
_STREAM = re.compile(rb'"stream": ?true')
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_USAGE = b'{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def piece(number: int) -> str:
    return f"word{number} "


def text(count: int) -> str:
    return "".join([piece(number) for number in range(count)])


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _frame(delta: bytes, reason: bytes = b"null") -> bytes:
    return _chunk(
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",'
        b'"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n' % (delta, reason)
    )


_FIRST = _frame(b'{"role":"assistant","content":""}')
_LAST = b"".join(
    [
        _frame(b"{}", b'"stop"'),
        _chunk(
            b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",'
            b'"choices":[],"usage":%b}\n\n' % _USAGE
        ),
        _chunk(b"data: [DONE]\n\n"),
        b"0\r\n\r\n",
    ]
)


@cache
def _streamed(count: int) -> bytes:
    frames = [_frame(b'{"content":"%b"}' % piece(number).encode()) for number in range(count)]
    return b"".join([_STREAM_HEAD, _FIRST, *frames, _LAST])


@cache
def _whole(count: int) -> bytes:
    body = (
        b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}],"usage":%b}'
    ) % (text(count).encode(), _USAGE)
    return _HEAD % len(body) + body


_MODELS = b'{"object":"list","data":[{"id":"text-5","object":"model","created":1,"owned_by":"bench"}]}'


class _Server(asyncio.Protocol):
    def __init__(self) -> None:
        self._asked = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, _: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, found, body = self._asked.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if not (len(body) >= int(length[1]) if length else not _CHUNKED.search(head) or body.endswith(b"0\r\n\r\n")):
            return
        self._asked = b""
        asked = _MODEL.search(body)
        if asked is None:
            self._transport.write(_HEAD % len(_MODELS) + _MODELS)
        elif not _STREAM.search(body):
            self._transport.write(_whole(int(asked[2])))
        elif asked[1] == b"text":
            self._transport.write(_streamed(int(asked[2])))
        else:
            self._transport.write(_STREAM_HEAD + _FIRST)
            self._slowly(int(asked[2]), int(asked[3]) / 1000, self._loop.time())

    def _slowly(self, rest: int, pause: float, at: float) -> None:
        stamp = _frame(b'{"content":"t%d "}' % monotonic_ns())
        self._transport.write(stamp if rest > 1 else stamp + _LAST)
        if rest > 1:
            self._timer = self._loop.call_at(at + pause, self._slowly, rest - 1, pause, at + pause)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))

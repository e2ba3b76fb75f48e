"""MCP over a program's standard input and output, as the SDK takes it.

Owns the lines: a message is one line of JSON (specification, transports). Knows nothing of what they mean.
Law: each byte is looked at once, and a line that is no message is counted and passed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from callboard.mcp.lenient_json import reread
from callboard.mcp.sending import SENDING
from callboard.mcp.server_process import Child

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes of one message; a server that sends more is given up."""
MANY: Final = 1000
"""Lines that may wait to be read before the server has to wait; fewer if they are long."""


MAX_EARLY: Final = 10_000
"""Lines that a server may send before it is connected, which takes one."""


class Lines:
    """Bytes in, whole lines out. Raises OverflowError when a line passes `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        """What came behind the last line's end."""
        return b"".join(self._pieces)

    def feed(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces, self._size = [], 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._most or any(len(line) > self._most for line in lines):
            raise OverflowError
        return lines


class Stdio:
    """The SDK's transport over a Child.

    `lost` is called with the reason when the connection is over, `noise` with each line that is no message. What
    the child writes before the SDK is there is kept: a server starts while the SDK is imported.
    """

    def __init__(self, lost: Callable[[str], None], noise: Callable[[bytes], None]) -> None:
        self.child: Child
        self.heard = 0
        """How often the server was heard of."""
        self.ready = False
        """Whether the server is connected."""
        self.child_ended = False
        self._early = 0
        self._lost = lost
        self._lines = Lines()
        self._incoming = Incoming(noise)

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        self._incoming.attach(self.child)
        return self._incoming, Outgoing(self.child)

    async def __aexit__(self, *_: object) -> None:
        await self._incoming.aclose()

    def take(self, data: bytes) -> None:
        if self._incoming.ended:
            return
        self.heard += 1
        try:
            lines = self._lines.feed(data)
        except OverflowError:
            self._over(f"it sent a message of more than {MAX_MESSAGE} bytes")
        else:
            self._early += 0 if self.ready else len(lines)
            if self._early > MAX_EARLY:
                self._incoming.drop()
                self._over(f"it sent more than {MAX_EARLY} messages before it was connected")
            else:
                self._incoming.put(lines)

    def ended(self, child: Child) -> None:
        """The child may end before whoever starts it has it."""
        status = child.status
        self.child_ended = status is not None
        self._over("it closed its output" if status is None else f"it ended with status {status}")

    def _over(self, why: str) -> None:
        self._lost(why)
        self._incoming.end()


class Incoming:
    """The SDK's read stream."""

    def __init__(self, noise: Callable[[bytes], None]) -> None:
        self._noise = noise
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self.ended = False
        self._paused = False
        self._child: Child | None = None

    def attach(self, child: Child) -> None:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415  # the SDK is imported last, see link.py
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

        self._child = child
        self._message: Callable[[Any], SessionMessage] = SessionMessage
        self._decode = jsonrpc_message_adapter.validate_json

    def put(self, lines: list[bytes]) -> None:
        if self.ended:
            return
        self._waiting.extend(lines)
        self._bytes += sum(map(len, lines))
        self._wake()
        too_many = len(self._waiting) > MANY or self._bytes > MAX_MESSAGE
        if too_many and self._child is not None and not self._paused:
            self._paused = True
            self._child.pause()

    def drop(self) -> None:
        """What waits is read by nobody."""
        self._waiting.clear()
        self._bytes = 0

    def end(self) -> None:
        self.ended = True
        self._wake()

    async def receive(self) -> SessionMessage:
        while True:
            while not self._waiting:
                if self.ended:
                    raise StopAsyncIteration
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
            line = self._waiting.popleft()
            self._bytes -= len(line)
            few = len(self._waiting) <= MANY // 2 and self._bytes <= MAX_MESSAGE // 2
            if self._paused and few and self._child is not None:
                self._paused = False
                self._child.resume()
            if not line.strip():
                continue
            if (message := self._read(line)) is not None:
                return message
            self._noise(line)

    def _read(self, line: bytes) -> SessionMessage | None:
        """The message in it, mended where it has to be; None where there is none."""
        try:
            return self._message(self._decode(line, by_name=False))
        except (ValueError, RecursionError):
            mended = reread(line)
        try:
            return None if mended is None else self._message(self._decode(mended, by_name=False))
        except (ValueError, RecursionError):
            return None

    async def aclose(self) -> None:
        self.drop()
        self.end()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage:
        return await self.receive()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Outgoing:
    """The SDK's write stream. A request waits while the server does not read; what follows from it does not."""

    def __init__(self, child: Child) -> None:
        from anyio import ClosedResourceError  # noqa: PLC0415

        self._child = child
        self._closed = False
        self._error = ClosedResourceError

    async def send(self, item: SessionMessage) -> None:
        message: Any = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        asks = hasattr(message, "id") and hasattr(message, "method")
        if asks:
            await self._child.drained()
        if self._closed or not self._child.write(data):
            raise self._error
        if asks and (sending := SENDING.get()) is not None:
            sending.sent = True

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

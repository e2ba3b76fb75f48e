"""MCP over a program's standard input and output: a message is one line of JSON.

Laws: each byte is scanned once; a line that is no message is reported and skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

from callboard.mcp.connection_state import SEND_STATE
from callboard.mcp.lenient_json import reparse
from callboard.mcp.server_process import ServerProcess

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Bytes of one message; a larger one ends the connection."""
MAX_WAITING_LINES: Final = 1000
"""Lines that are buffered before the program's output is no longer read; fewer if they are long."""
MAX_EARLY_LINES: Final = 10_000
"""Lines that a server may send before the handshake is done, which needs one."""


class LineSplitter:
    """Splits fed bytes into lines. Raises OverflowError for a line of more than `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        """The bytes behind the last line."""
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


class StdioTransport:
    """The SDK's transport over a ServerProcess.

    `on_lost` is called with the reason when the connection is lost, `on_noise` with each line that is no message. The
    server starts while the SDK is imported, so what it writes early is buffered.
    """

    def __init__(self, on_lost: Callable[[str], None], on_noise: Callable[[bytes], None]) -> None:
        self.process: ServerProcess
        self.received = 0
        """How many blocks of output came."""
        self.is_ready = False
        """Whether the handshake is done."""
        self.program_exited = False
        self._early = 0
        self._on_lost = on_lost
        self._lines = LineSplitter()
        self._incoming = ReadStream(on_noise)

    async def __aenter__(self) -> tuple[ReadStream, WriteStream]:
        self._incoming.attach(self.process)
        return self._incoming, WriteStream(self.process)

    async def __aexit__(self, *_: object) -> None:
        await self._incoming.aclose()

    def feed(self, data: bytes) -> None:
        if self._incoming.ended:
            return
        self.received += 1
        try:
            lines = self._lines.feed(data)
        except OverflowError:
            self._end(f"it sent a message of more than {MAX_MESSAGE} bytes")
        else:
            self._early += 0 if self.is_ready else len(lines)
            if self._early > MAX_EARLY_LINES:
                self._incoming.clear()
                self._end(f"it sent more than {MAX_EARLY_LINES} messages before it was connected")
            else:
                self._incoming.put(lines)

    def on_program_end(self, process: ServerProcess) -> None:
        """Called by the process, perhaps before `self.process` is set."""
        status = process.status
        self.program_exited = status is not None
        self._end("it closed its output" if status is None else f"it ended with status {status}")

    def _end(self, why: str) -> None:
        self._on_lost(why)
        self._incoming.end()


class ReadStream:
    """The SDK's read stream."""

    def __init__(self, on_noise: Callable[[bytes], None]) -> None:
        self._on_noise = on_noise
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self.ended = False
        self._paused = False
        self._process: ServerProcess | None = None

    def attach(self, child: ServerProcess) -> None:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415  # the SDK is imported last, see above
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

        self._process = child
        self._message: Callable[[Any], SessionMessage] = SessionMessage
        self._decode = jsonrpc_message_adapter.validate_json

    def put(self, lines: list[bytes]) -> None:
        if self.ended:
            return
        self._waiting.extend(lines)
        self._bytes += sum(map(len, lines))
        self._wake()
        too_many = len(self._waiting) > MAX_WAITING_LINES or self._bytes > MAX_MESSAGE
        if too_many and self._process is not None and not self._paused:
            self._paused = True
            self._process.pause()

    def clear(self) -> None:
        """Drop the lines that wait."""
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
            few = len(self._waiting) <= MAX_WAITING_LINES // 2 and self._bytes <= MAX_MESSAGE // 2
            if self._paused and few and self._process is not None:
                self._paused = False
                self._process.resume()
            if not line.strip():
                continue
            if (message := self._read(line)) is not None:
                return message
            self._on_noise(line)

    def _read(self, line: bytes) -> SessionMessage | None:
        """The message of a line, repaired if necessary; None for a line that is none."""
        try:
            return self._message(self._decode(line, by_name=False))
        except (ValueError, RecursionError):
            mended = reparse(line)
        try:
            return None if mended is None else self._message(self._decode(mended, by_name=False))
        except (ValueError, RecursionError):
            return None

    async def aclose(self) -> None:
        self.clear()
        self.end()

    def __aiter__(self) -> ReadStream:
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


class WriteStream:
    """The SDK's write stream. A request waits while the server does not read; its cancellation, say, does not."""

    def __init__(self, child: ServerProcess) -> None:
        from anyio import ClosedResourceError  # noqa: PLC0415

        self._process = child
        self._closed = False
        self._error = ClosedResourceError

    async def send(self, item: SessionMessage) -> None:
        message: Any = item.message
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        asks = hasattr(message, "id") and hasattr(message, "method")
        if asks:
            await self._process.drain()
        if self._closed or not self._process.write(data):
            raise self._error
        if asks and (sending := SEND_STATE.get()) is not None:
            sending.sent = True

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

"""The server on standard input and output.

Owns those two while it serves, and when it ends: at the end of its input, at SIGTERM, when its parent is gone.
Knows nothing of tools. For POSIX.
Law: nothing but the protocol reaches the wire: what tools and their children print goes to standard error, and what
they read is empty.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol, cast

from mcp.server.stdio import stdio_server

from callboard.mcp.lenient import readable
from callboard.servers.mcp.server import ToolServer

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of one message."""
_LOOK: Final = 1.0
"""Seconds between two looks at the parent."""


class Wire(NamedTuple):
    """File descriptors."""

    read: int
    write: int


@contextmanager
def claimed_wire() -> Generator[Wire]:
    """Standard input and output as they were; while it is entered, they are nothing and standard error."""
    sys.stdout.flush()
    wire = Wire(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield wire
    finally:
        sys.stdout.flush()
        for private, standard in zip(wire, (0, 1), strict=True):
            os.set_blocking(private, True)  # whoever shares it expects that
            os.dup2(private, standard)
            os.close(private)


async def serve_stdio(server: ToolServer, wire: Wire) -> None:
    """Serves one client until it is gone, or SIGTERM."""
    loop = asyncio.get_running_loop()
    lines = await _reader(wire.read)
    written = await _writer(wire.write)
    options = server.protocol.create_initialization_options()

    async def serve() -> None:
        # The SDK's transport with files of ours, which can be cancelled while they wait; its own are threads.
        async with stdio_server(cast("Any", _Lines(lines)), cast("Any", written)) as (read, write):
            await server.protocol.run(read, write, options)

    serving = asyncio.create_task(serve())
    orphaned = asyncio.create_task(_orphaned())
    terminated = asyncio.Event()
    ending = asyncio.create_task(terminated.wait())
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    watched = (serving, orphaned, ending)
    try:
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        await server.aclose()
        for task in watched:
            task.cancel()
        await asyncio.wait(watched)
        written.close()


async def _orphaned() -> None:
    """Until the parent is another one: who started us has gone, and somebody else may hold the other end of the wire."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(_LOOK)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MAX_LINE)
    if _waits(descriptor):
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(os.dup(descriptor), "rb", 0))
    else:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            reader.feed_data(file.read(MAX_LINE))
        reader.feed_eof()
    return reader


class _Writes(Protocol):
    async def write(self, text: str) -> Any: ...
    async def flush(self) -> None: ...
    def close(self) -> None: ...


async def _writer(descriptor: int) -> _Writes:
    if not _waits(descriptor):
        return _ToFile(descriptor)
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(descriptor), "wb", 0)
    )
    return _ToPipe(asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop()))


class _Lines:
    """Each line as it comes; what is longer than MAX_LINE ends the connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while line := await self._reader.readline():
            yield readable(line)


class _ToPipe:
    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    async def write(self, text: str) -> None:
        self._stream.write(text.encode("utf-8", "replace"))

    async def flush(self) -> None:
        with suppress(ConnectionError):  # nobody reads any more; the end of the input follows
            await self._stream.drain()

    def close(self) -> None:
        self._stream.close()


class _ToFile:
    """A regular file, which is never waited for."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(os.dup(descriptor), "wb", 0)

    async def write(self, text: str) -> None:
        self._file.write(text.encode("utf-8", "replace"))

    async def flush(self) -> None: ...

    def close(self) -> None:
        self._file.close()


def _waits(descriptor: int) -> bool:
    """Whether the event loop can wait for it: a pipe, a socket or a terminal, not a file."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)

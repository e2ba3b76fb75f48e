"""Serve MCP on standard input and output (POSIX).

It ends with its input, at SIGTERM, or when its parent is gone.

Law: nothing but the protocol reaches the descriptors: what tools and their children print goes to standard error, and
their standard input is empty.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol, cast

import mcp_types as types
from mcp.server.stdio import stdio_server

from callboard.errors import CallerError
from callboard.servers.mcp.server import ToolServer

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of one message."""
_PARENT_CHECK_SECONDS: Final = 1.0
"""Seconds between two looks at the parent."""


class StdioDescriptors(NamedTuple):
    """File descriptors."""

    read: int
    write: int


@contextmanager
def claim_stdio() -> Generator[StdioDescriptors]:
    """Standard input and output as they were; while it is entered, they are nothing and standard error."""
    sys.stdout.flush()
    wire = StdioDescriptors(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield wire
    finally:
        sys.stdout.flush()
        for private, standard in zip(wire, (0, 1), strict=True):
            os.set_blocking(private, True)  # other holders of the file expect that
            os.dup2(private, standard)
            os.close(private)


async def serve_stdio(server: ToolServer, wire: StdioDescriptors) -> None:
    """Serves one client until it is gone, or SIGTERM. Raises CallerError for a message of more than MAX_LINE."""
    loop = asyncio.get_running_loop()
    written = await _writer(wire.write)
    reader, close = await _reader(wire.read)
    lines = _Lines(reader, written)
    options = server.protocol.create_initialization_options()

    async def serve() -> None:
        # The SDK's transport with files of ours, which can be cancelled while they wait; its own are threads.
        async with stdio_server(cast("Any", lines), cast("Any", written)) as (read, write):
            await server.protocol.run(read, write, options)

    serving = asyncio.create_task(serve())
    orphaned = asyncio.create_task(_wait_for_orphaning())
    terminated = asyncio.Event()
    ending = asyncio.create_task(terminated.wait())
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    watched = (serving, orphaned, ending)
    try:
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
            if lines.too_long:
                hint = "what is so large is better sent by its address"
                raise CallerError(f"a message of more than {MAX_LINE} bytes", path="standard input", hint=hint)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        await server.aclose()
        for task in watched:
            task.cancel()
        await asyncio.wait(watched)
        written.close()
        close()


async def _wait_for_orphaning() -> None:
    """Until the parent is another one: who started us has gone, and somebody else may hold the other end of the wire."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(_PARENT_CHECK_SECONDS)


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, Callable[[], None]]:
    """A reader of the descriptor, and a function that closes it."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    if _is_pollable(descriptor):
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(descriptor), "rb", 0))
        return reader, transport.close
    with os.fdopen(os.dup(descriptor), "rb") as file:
        reader.feed_data(file.read())
    reader.feed_eof()
    return reader, lambda: None


class _Writer(Protocol):
    async def write(self, text: str) -> Any: ...
    async def flush(self) -> None: ...
    def close(self) -> None: ...


async def _writer(descriptor: int) -> _Writer:
    if not _is_pollable(descriptor):
        return _ToFile(descriptor)
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(descriptor), "wb", 0)
    )
    return _ToPipe(asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop()))


class _Lines:
    """Each line as it comes; one that is longer than MAX_LINE ends them.

    A request that the SDK would drop without a word is answered with an error, for its client waits. Half a
    character, which other languages write into their JSON, becomes a replacement character.
    """

    def __init__(self, reader: asyncio.StreamReader, written: _Writer) -> None:
        self._reader = reader
        self._written = written
        self.too_long = False

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            while line := await self._reader.readline():
                if _is_message(line):
                    yield line
                    continue
                value = _parse(line)
                repaired = _SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)).encode()
                if _is_message(repaired):
                    yield repaired
                elif (identifier := _request_identifier(value)) is not None:
                    await self._refuse(identifier)
                else:
                    yield line
        except ValueError:  # of readline
            self.too_long = True

    async def _refuse(self, identifier: int | str) -> None:
        error = {"code": types.INVALID_REQUEST, "message": "no request of JSON-RPC 2.0 as the protocol has it"}
        await self._written.write(json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}) + "\n")
        await self._written.flush()


def _is_message(line: bytes) -> bool:
    try:
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return False
    return True


def _parse(line: bytes) -> Any:
    """What the line says, as far as it is JSON; else None."""
    try:
        return json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _request_identifier(value: Any) -> int | str | None:
    """The identifier of a request; None for anything else, such as the answer to a request of ours."""
    if not isinstance(value, dict) or value.keys() & {"result", "error"}:
        return None
    identifier = value.get("id")
    return identifier if isinstance(identifier, (int, str)) and not isinstance(identifier, bool) else None


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


def _is_pollable(descriptor: int) -> bool:
    """Whether the event loop can wait for it: a pipe, a socket or a terminal, not a file."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)

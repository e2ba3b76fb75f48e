"""Standard input and output as a wire to one client (POSIX).

Law: only the protocol reaches the descriptors. Output of tools and their children goes to standard error, and their
standard input is empty.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final, NamedTuple

_PARENT_CHECK_SECONDS: Final = 1.0
"""Seconds between checks of the parent process."""


class StdioDescriptors(NamedTuple):
    """File descriptors of the wire."""

    read: int
    write: int


@contextmanager
def claim_stdio() -> Generator[StdioDescriptors]:
    """Yield the original standard input and output. Meanwhile standard input is empty, and output goes to stderr."""
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
            os.set_blocking(private, True)  # other holders of the file expect it
            os.dup2(private, standard)
            os.close(private)


async def run_until_gone(serve: Coroutine[Any, Any, None]) -> None:
    """Serve until `serve` ends, SIGTERM arrives, or the parent is gone: another process may keep the wire open then."""
    loop = asyncio.get_running_loop()
    terminated = asyncio.Event()
    serving = asyncio.create_task(serve)
    watched = (serving, asyncio.create_task(_wait_for_orphaning()), asyncio.create_task(terminated.wait()))
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    try:
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        for task in watched:
            task.cancel()
        await asyncio.wait(watched)


async def _wait_for_orphaning() -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(_PARENT_CHECK_SECONDS)


async def open_reader(descriptor: int, limit: int) -> tuple[asyncio.StreamReader, Callable[[], None]]:
    """Return a reader of the descriptor, for lines of at most `limit` bytes, and a function that closes it."""
    reader = asyncio.StreamReader(limit=limit)
    if _is_pollable(descriptor):
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(descriptor), "rb", 0))
        return reader, transport.close
    with os.fdopen(os.dup(descriptor), "rb") as file:
        reader.feed_data(file.read())
    reader.feed_eof()
    return reader, lambda: None


class Writer:
    """Writes text to a client. `post` and `write` never wait for the client; `flush` does, except for regular files."""

    def __init__(self, output: asyncio.StreamWriter | BinaryIO) -> None:
        self._output = output
        self.close = output.close

    def post(self, text: str) -> None:
        self._output.write(text.encode("utf-8", "replace"))

    async def write(self, text: str) -> None:
        self.post(text)

    async def flush(self) -> None:
        if isinstance(self._output, asyncio.StreamWriter):
            with suppress(ConnectionError):  # the client is gone; the end of the input follows
                await self._output.drain()


async def open_writer(descriptor: int) -> Writer:
    """Return a writer to the descriptor."""
    file = os.fdopen(os.dup(descriptor), "wb", 0)
    if not _is_pollable(descriptor):
        return Writer(file)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
    return Writer(asyncio.StreamWriter(transport, protocol, None, loop))


def _is_pollable(descriptor: int) -> bool:
    """Return whether the event loop can wait for the descriptor: for a pipe, socket or terminal, not for a file."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)

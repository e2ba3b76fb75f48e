"""Serve MCP on standard input and output (POSIX).

It ends with its input, at SIGTERM, or when its parent is gone.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncGenerator
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.stdio import stdio_server

from callboard.errors import CallerError
from callboard.servers.mcp.server import ToolServer
from callboard.servers.stdio import StdioDescriptors, Writer, open_reader, open_writer, wait_for_orphaning

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of one message."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


async def serve_stdio(server: ToolServer, wire: StdioDescriptors) -> None:
    """Serves one client until it is gone, or SIGTERM. Raises CallerError for a message of more than MAX_LINE."""
    loop = asyncio.get_running_loop()
    written = await open_writer(wire.write)
    reader, close = await open_reader(wire.read, MAX_LINE)
    lines = _Lines(reader, written)
    options = server.protocol.create_initialization_options()

    async def serve() -> None:
        # The SDK's transport with files of ours, which can be cancelled while they wait; its own are threads.
        async with stdio_server(cast("Any", lines), cast("Any", written)) as (read, write):
            await server.protocol.run(read, write, options)

    serving = asyncio.create_task(serve())
    orphaned = asyncio.create_task(wait_for_orphaning())
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


class _Lines:
    """Each line as it comes; one that is longer than MAX_LINE ends them.

    A request that the SDK would drop without a word is answered with an error, for its client waits. Half a
    character, which other languages write into their JSON, becomes a replacement character.
    """

    def __init__(self, reader: asyncio.StreamReader, written: Writer) -> None:
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

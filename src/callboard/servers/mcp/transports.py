"""Serve MCP on standard input and output (POSIX).

The server ends with its input, at SIGTERM, or when its parent process ends.

Serve MCP over streamable HTTP.

Law: without a key, the server listens only on loopback. On loopback, only pages of this machine may call it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import closing
from hmac import compare_digest
from typing import Any, Final, cast

import mcp_types as types
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.errors import CallerError
from callboard.servers.gateway.auth import digest, read_token
from callboard.servers.hosts import is_loopback
from callboard.servers.listening import OrderlyServer, listen
from callboard.servers.mcp.server import ToolServer
from callboard.servers.stdio import StdioDescriptors, Writer, open_reader, open_writer, run_until_gone

PATH: Final = "/mcp"
MAX_SESSIONS: Final = 1000
_SHUTDOWN_SECONDS: Final = 2


def http_application(server: ToolServer, *, host: str = "127.0.0.1", keys: Iterable[str] = ()) -> ASGIApp:
    """Return the server as an ASGI application. Clients must send one of the `keys`, if there are any.

    On loopback, the server answers only to host names and pages of this machine. Raises CallerError for another host
    without a key.
    """
    local = is_loopback(host)
    digests = [digest(key).encode() for key in keys]
    if not local and not digests:
        hint = "give --key, or stay on 127.0.0.1"
        raise CallerError("beyond this machine everybody could call", path=f"--host {host}", hint=hint)
    app = server.protocol.streamable_http_app(
        streamable_http_path=PATH,
        max_sessions=MAX_SESSIONS,
        # If the server is reached under unknown names, the key decides.
        transport_security=None if local else TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host="127.0.0.1" if local else host,
    )
    return _KeyCheck(app, digests) if digests else app


async def serve_http(
    server: ToolServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    keys: Iterable[str] = (),
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` gets the URL. Port 0 picks a free port. Raises CallerError."""
    app = http_application(server, host=host, keys=keys)
    with closing(listen(host, port, hint="--port 0 takes a free one")) as listening:
        config = uvicorn.Config(
            app,
            http="h11",  # httptools keeps trailing spaces in header values (RFC 9110, 5.5)
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listening.getsockname()[1]}{PATH}")
        try:
            await OrderlyServer(config).serve(sockets=[listening])
        finally:
            await server.aclose()


class _KeyCheck:
    """Accepts requests with one of the keys."""

    def __init__(self, app: ASGIApp, digests: list[bytes]) -> None:
        self._app = app
        self._digests = digests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hashed = digest(read_token(Headers(scope=scope))).encode()
            if not any(compare_digest(hashed, each) for each in self._digests):
                refused = JSONResponse(
                    {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "a key is wanted: Bearer KEY"}},
                    status_code=401,
                    headers={"www-authenticate": "Bearer"},
                )
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


MAX_LINE: Final = 64 * 1024 * 1024
"""Maximum bytes of one message."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


async def serve_stdio(server: ToolServer, wire: StdioDescriptors) -> None:
    """Serve one client until it disconnects or SIGTERM arrives. Raises CallerError for messages over MAX_LINE."""
    written = await open_writer(wire.write)
    reader, close = await open_reader(wire.read, MAX_LINE)
    lines = _Lines(reader, written)
    options = server.protocol.create_initialization_options()

    async def serve() -> None:
        # The SDK's transport with our own files, whose reads can be cancelled; the SDK's own files use threads.
        async with stdio_server(cast("Any", lines), cast("Any", written)) as (read, write):
            await server.protocol.run(read, write, options)
        if lines.too_long:
            hint = "what is so large is better sent by its address"
            raise CallerError(f"a message of more than {MAX_LINE} bytes", path="standard input", hint=hint)

    try:
        await run_until_gone(serve())
    finally:
        await server.aclose()
        written.close()
        close()


class _Lines:
    """Yields each line as it comes. A line longer than MAX_LINE ends the iteration.

    A request that the SDK would drop silently is answered with an error, because its client waits. Half a surrogate
    pair, which some languages write into their JSON, becomes a replacement character.
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
        except ValueError:  # from readline
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
    """Return the JSON value of a line, or None if the line is not JSON."""
    try:
        return json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None


def _request_identifier(value: Any) -> int | str | None:
    """Return the identifier of a request, or None for other messages, such as responses to our requests."""
    if not isinstance(value, dict) or value.keys() & {"result", "error"}:
        return None
    identifier = value.get("id")
    return identifier if isinstance(identifier, (int, str)) and not isinstance(identifier, bool) else None

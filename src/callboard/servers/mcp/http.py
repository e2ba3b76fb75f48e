"""Serve MCP over streamable HTTP.

Law: no wider than loopback without a key; on loopback only pages of this machine may call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from hmac import compare_digest
from typing import Final

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.errors import CallerError
from callboard.servers.gateway.auth import digest, read_token
from callboard.servers.listening import OrderlyServer, is_loopback, listen
from callboard.servers.mcp.server import ToolServer

PATH: Final = "/mcp"
MAX_SESSIONS: Final = 1000
_SHUTDOWN_SECONDS: Final = 2


def http_application(server: ToolServer, *, host: str = "127.0.0.1", keys: Iterable[str] = ()) -> ASGIApp:
    """The server as an ASGI application; clients must send one of the `keys`, if there are any.

    On loopback it answers to names of this machine, and to pages of this machine. Raises CallerError for a wider
    host without a key.
    """
    local = is_loopback(host)
    digests = [digest(key).encode() for key in keys]
    if not local and not digests:
        hint = "give --key, or stay on 127.0.0.1"
        raise CallerError("beyond this machine everybody could call", path=f"--host {host}", hint=hint)
    app = server.protocol.streamable_http_app(
        streamable_http_path=PATH,
        max_sessions=MAX_SESSIONS,
        # Where it is reached by names that it does not know, the key decides.
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
    """Serves until SIGTERM or SIGINT; `ready` is called with the URL. `port` 0 takes a free one. Raises CallerError."""
    app = http_application(server, host=host, keys=keys)
    with closing(listen(host, port, hint="--port 0 takes a free one")) as listening:
        config = uvicorn.Config(
            app,
            http="h11",  # httptools leaves the spaces behind a header's value, which are none of it (RFC 9110, 5.5)
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
    """Lets pass who has one of the keys."""

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

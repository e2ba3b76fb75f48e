"""A server on HTTP within this process, in the hands of the test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from aiohttp import web

from callboard.mcp.client import McpClient
from callboard.mcp.settings import ServerSettings

ECHO = {"name": "echo", "inputSchema": {"type": "object"}}


class SmallServer:
    """A server of 2025-11-25 with sessions; `answers` has what a call is answered with, one after another."""

    def __init__(self, *answers, tools=(ECHO,)):
        self.answers = iter(answers)
        self.tools = tools
        self.calls = 0
        self.sessions = 0

    async def post(self, request):
        message = await request.json()
        answer = {"jsonrpc": "2.0", "id": message.get("id")}
        match message["method"]:
            case "initialize":
                self.sessions += 1
                about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "small", "version": "1"}}
                result = {"protocolVersion": "2025-11-25", **about}
                headers = {"mcp-session-id": str(self.sessions)}
                return web.json_response({**answer, "result": result}, headers=headers)
            case "tools/list":
                return web.json_response({**answer, "result": {"tools": [*self.tools]}})
            case "tools/call":
                self.calls += 1
                given = next(self.answers, None)
                if given is not None:
                    return given(answer)
                return web.json_response({**answer, "result": {"content": [{"type": "text", "text": "done"}]}})
            case method if method.startswith("notifications/"):
                return web.Response(status=202)
            case _:
                return web.json_response({**answer, "error": {"code": -32601, "message": "Method not found"}})


@asynccontextmanager
async def served(small):
    """The URL of the server."""
    application = web.Application()
    application.router.add_route("POST", "/mcp", small.post)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/mcp"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def linked(small, **settings):
    """A client of the server."""
    async with asyncio.timeout(60), served(small) as url:
        client = McpClient(ServerSettings(name="s", transport="http", url=url, **settings))
        try:
            yield client
        finally:
            await client.aclose()

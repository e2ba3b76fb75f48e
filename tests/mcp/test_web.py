"""Servers on HTTP within this process, in the hands of the test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from callboard.mcp.failure import ServerFailure, ServerUnreachable
from callboard.mcp.link import Link
from callboard.mcp.settings import ServerSettings

ECHO = {"name": "echo", "inputSchema": {"type": "object"}}


class Small:
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


def using(small, use, **settings):
    """What is made of a link to the server."""

    async def scene():
        async with asyncio.timeout(60), served(small) as url:
            link = Link(ServerSettings(name="s", transport="http", url=url, **settings))
            try:
                return await use(link)
            finally:
                await link.aclose()

    return asyncio.run(scene())


def error(status, code, message):
    return lambda answer: web.json_response({**answer, "error": {"code": code, "message": message}}, status=status)


GONE = error(404, -32001, "Session not found")
REFUSALS = pytest.mark.parametrize(
    "refusal",
    [
        GONE,
        error(404, -32600, "Session not found"),
        error(400, -32001, "Session not found"),
        error(400, -32000, "Bad Request: No valid session ID provided"),
        lambda _: web.Response(status=404),
        lambda _: web.Response(status=400, text="Bad Request: No valid session ID provided"),
    ],
)


@REFUSALS
def test_a_call_that_was_refused_for_want_of_a_session_is_sent_once_more(refusal):
    small = Small(refusal)
    result = using(small, lambda link: link.call("echo", {}))
    assert result.content[0].text == "done"
    assert (small.calls, small.sessions) == (2, 2)


@REFUSALS
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_server_that_loses_every_session_gets_a_call_twice_at_the_most(refusal, idempotent):
    small = Small(*[refusal] * 50)
    with pytest.raises(ServerUnreachable, match="was sent and may have run") as failed:
        using(small, lambda link: link.call("echo", {}, idempotent=idempotent))
    assert failed.value.may_have_run
    assert small.calls == 2


@pytest.mark.parametrize(
    "answer",
    [
        error(400, -32603, "upstream: your banking session could not be closed after transfer"),
        error(400, -32602, "session not in the arguments"),
        error(400, -32001, "Request timed out"),
        error(500, -32001, "Session not found"),
        lambda _: web.Response(status=400, text="your session expired while it ran"),
    ],
)
def test_an_error_that_speaks_of_a_session_is_no_lost_session(answer):
    small = Small(answer)
    with pytest.raises(ServerFailure) as failed:
        using(small, lambda link: link.call("echo", {}))
    assert "may have run" not in str(failed.value)
    assert (small.calls, small.sessions) == (1, 1)

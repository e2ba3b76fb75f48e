"""Servers on HTTP and what goes wrong with them."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from aiohttp import web

from callboard.mcp import McpClient, ServerSettings
from callboard.mcp.errors import ServerFailure, ServerUnreachable


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
def test_a_call_that_was_refused_for_want_of_a_session_is_sent_once_more(refusal, small, using):
    server = small(refusal)
    result = using(server, lambda link: link.call("echo", {}))
    assert result.content[0].text == "done"
    assert (server.calls, server.sessions) == (2, 2)


@REFUSALS
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_server_that_loses_every_session_gets_a_call_twice_at_the_most(refusal, idempotent, small, using):
    server = small(*[refusal] * 50)
    with pytest.raises(ServerUnreachable, match="was sent and may have run") as failed:
        using(server, lambda link: link.call("echo", {}, idempotent=idempotent))
    assert failed.value.may_have_run
    assert server.calls == 2


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
def test_an_error_that_speaks_of_a_session_is_no_lost_session(answer, small, using):
    server = small(answer)
    with pytest.raises(ServerFailure) as failed:
        using(server, lambda link: link.call("echo", {}))
    assert "may have run" not in str(failed.value)
    assert (server.calls, server.sessions) == (1, 1)


def test_a_login_that_fails_is_not_begun_again_in_the_older_protocol():
    begun = []

    class Login(httpx2.Auth):
        async def async_auth_flow(self, request):
            begun.append(request.url)
            raise RuntimeError("no token")
            yield request

    async def scenario():
        link = McpClient(ServerSettings(name="s", transport="http", url="http://127.0.0.1:9/mcp"), auth=Login())
        try:
            with pytest.raises(ServerFailure, match="no token"):
                await link.start()
        finally:
            await link.aclose()

    asyncio.run(scenario())
    assert len(begun) == 1

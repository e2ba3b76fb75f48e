"""Servers on HTTP and what goes wrong with them."""

from __future__ import annotations

import httpcore2
import httpx2
import pytest
from aiohttp import web
from tests.mcp.conftest import SmallServer, linked
from tests.tables import table

from callboard.mcp import McpClient, ServerSettings
from callboard.mcp.connection_state import SEND_STATE, SendState
from callboard.mcp.errors import ServerFailure, ServerUnreachable
from callboard.mcp.http_transport import HttpClient


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
async def test_a_call_that_was_refused_for_want_of_a_session_is_sent_once_more(refusal):
    server = SmallServer(refusal)
    async with linked(server) as link:
        result = await link.call("echo", {})
    assert result.content[0].text == "done"
    assert (server.calls, server.sessions) == (2, 2)


@REFUSALS
@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_server_that_loses_every_session_gets_a_call_twice_at_the_most(refusal, idempotent):
    server = SmallServer(*[refusal] * 50)
    async with linked(server) as link:
        with pytest.raises(ServerUnreachable, match="was sent and may have run") as failed:
            await link.call("echo", {}, idempotent=idempotent)
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
async def test_an_error_that_speaks_of_a_session_is_no_lost_session(answer):
    server = SmallServer(answer)
    async with linked(server) as link:
        with pytest.raises(ServerFailure) as failed:
            await link.call("echo", {})
    assert "may have run" not in str(failed.value)
    assert (server.calls, server.sessions) == (1, 1)


async def test_a_login_that_fails_is_not_begun_again_in_the_older_protocol():
    begun = []

    class Login(httpx2.Auth):
        async def async_auth_flow(self, request):
            begun.append(request.url)
            raise RuntimeError("no token")
            yield request

    link = McpClient(ServerSettings(name="s", transport="http", url="http://127.0.0.1:9/mcp"), auth=Login())
    with pytest.raises(ServerFailure, match="no token"):
        await link.start()
    await link.aclose()
    assert len(begun) == 1


class ClosingServer(SmallServer):
    """It closes a kept connection without an answer to a request of a method, which it has read, once."""

    def __init__(self, method):
        super().__init__()
        self.method = method
        self.kept = set()

    async def post(self, request):
        answer = await super().post(request)
        if (await request.json())["method"] == self.method and request.transport in self.kept:
            self.method = ""
            request.transport.close()
        self.kept.add(request.transport)
        return answer


@pytest.mark.parametrize("method", ["notifications/initialized", "tools/list"])
async def test_a_request_that_a_kept_connections_end_left_unanswered_is_sent_again_at_once(method):
    server = ClosingServer(method)
    async with linked(server) as link:
        await link.tools()
        assert [tool.name for tool in await link.tools()] == ["echo"]
    assert server.method == ""
    assert server.sessions == 1  # the connection was not lost


async def call_twice(link, **options):
    await link.call("echo", {}, **options)
    return await link.call("echo", {}, **options)


async def test_only_an_idempotent_call_is_sent_again_at_once_where_the_server_may_have_it():
    server = ClosingServer("tools/call")
    async with linked(server) as link:
        assert (await call_twice(link, idempotent=True)).content[0].text == "done"
    assert (server.method, server.calls, server.sessions) == ("", 3, 1)
    server = ClosingServer("tools/call")
    async with linked(server) as link:
        with pytest.raises(ServerUnreachable, match="was sent and may have run"):
            await call_twice(link)
    assert server.calls <= 2


class BreakingStream(httpcore2.AsyncMockStream):
    """A connection that answers once; at the next request it is broken."""

    def __init__(self, breaks, written):
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        super().__init__([answer])
        self.breaks, self.written = breaks, written

    async def write(self, buffer, timeout=None):  # noqa: ASYNC109  # as it is called
        is_body = buffer.startswith(b"{")
        if self.breaks == ("body" if is_body else "head") and not self._buffer:
            raise httpcore2.WriteError("broken")
        self.written.append(buffer)


class BreakingNetwork(httpcore2.AsyncNetworkBackend):
    def __init__(self, breaks):
        self.breaks, self.written, self.connections = breaks, [], 0

    async def connect_tcp(self, *_, **__):
        self.connections += 1
        return BreakingStream(self.breaks, self.written)


@table(("breaks", "connections"), [("head", 2), ("body", 2), ("nothing", 1)])
async def test_a_call_is_sent_again_where_the_connection_was_closed_before_it_was_written(breaks, connections):
    network, lost, state = BreakingNetwork(breaks), [], SendState()
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}'

    transport = httpx2.AsyncHTTPTransport()
    transport._pool = httpcore2.AsyncConnectionPool(network_backend=network)
    SEND_STATE.set(state)
    async with httpx2.AsyncClient(transport=transport) as client:
        http = HttpClient(client, lost.append)
        for _ in range(2):
            response = await http.send(http.build_request("POST", "http://server/mcp", content=body), stream=True)
            await response.aread()
            await response.aclose()
        status = response.status_code
    assert network.connections == connections
    assert state.sent
    if breaks == "nothing":  # the answer's end comes in place of an answer: the server may have the call
        assert (status, len(lost), network.written.count(body)) == (503, 1, 2)
    else:
        assert (status, lost, network.written.count(body)) == (200, [], 2)

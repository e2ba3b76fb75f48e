"""The socket that servers listen on."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from tests.tables import table

from callboard.errors import CallerError
from callboard.servers.listening import listen, report_failure


@table("host", ["127.0.0.1", "::1"])
async def test_answers_are_sent_without_delay_on_what_is_accepted(host):
    accepted = []

    async def served(_, writer):
        accepted.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = listen(host, 0, hint="")
    async with await asyncio.start_server(served, sock=listening):
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert accepted == [1]


def test_a_port_that_is_taken_is_a_mistake_that_is_told():
    with listen("127.0.0.1", 0, hint="") as taken, pytest.raises(CallerError, match=r"in use.*take another"):
        listen("127.0.0.1", taken.getsockname()[1], hint="take another")


@table(("error", "line"), [(CallerError("no key", hint="set one"), "no key; set one"), (asyncio.CancelledError(), "")])
@table("has_started", [False, True])
def test_what_keeps_a_server_from_starting_is_one_line_and_an_end_by_force_none(error, line, has_started):
    @asynccontextmanager
    async def lifespan(_):
        if not has_started:
            raise error
        yield

    received = iter(["lifespan.startup"])
    sent = []

    async def receive():
        kind = next(received, None)
        if kind is None:
            raise error
        return {"type": kind}

    async def send(message):
        sent.append(message)

    with pytest.raises(type(error)):
        asyncio.run(report_failure(Starlette(lifespan=lifespan))({"type": "lifespan", "state": {}}, receive, send))
    assert sent[-1] == {"type": f"lifespan.{'shutdown' if has_started else 'startup'}.failed", "message": line}

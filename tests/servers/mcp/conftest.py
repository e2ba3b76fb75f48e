"""Clients of the SDK in both eras, with a user who answers."""

from __future__ import annotations

import asyncio

import mcp_types as types
import pytest
from mcp import Client

from callboard.servers.mcp.server import ToolServer

ERAS = ["legacy", "2026-07-28"]


class User:
    """Answers what the client is asked with `answers`, in their order; `asked` are the messages."""

    def __init__(self, *answers):
        self.asked = []
        self._answers = iter(answers)

    async def __call__(self, _, params):
        self.asked.append(params.message)
        action, content = next(self._answers)
        return types.ElicitResult(action=action, content=content)


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


@pytest.fixture
def talk(era):
    """Runs `scenario(client)` with a client of the server, in this era; gives what it returns."""

    def talk(server, scenario, **callbacks):
        async def talking():
            async with Client(server.protocol, mode=era, **callbacks) as client:
                try:
                    return await scenario(client)
                finally:
                    await server.aclose()

        return asyncio.run(talking())

    return talk


@pytest.fixture
def serving():
    """A server with these ensembles."""
    return ToolServer


@pytest.fixture
def user():
    """A user who gives these answers."""
    return User

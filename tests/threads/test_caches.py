"""What users reported of prompt caches that did not hold, each test named after its thread."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.servers.gateway.conftest import behind, serve_gateway
from tests.threads.test_held import Restartable, connected

from callboard import Agent
from callboard.servers.gateway.settings import Permissions
from callboard.testing import FakeBackend

TESTS = Path(__file__).resolve().parents[1]
SAID = [
    {"role": "system", "content": "You write code. Agents: Plan."},
    {"role": "user", "content": "What does it do?"},
    {"role": "assistant", "content": "It sorts."},
    {"role": "user", "content": "How?"},
]


class Shuffled(Restartable):
    """A server that lists its tools in another order after each start, with the keys of their schemas in another order.

    `waits_for` is set when it may list its tools, `listed` when it has.
    """

    def __init__(self, names, title):
        super().__init__("legacy", names)
        self.title = title
        self.starts = 0
        self.waits_for = self.listed = None

    async def start(self):
        self.starts += 1
        await super().start()

    async def _result(self, request, method, params):
        result = await super()._result(request, method, params)
        if method != "tools/list":
            return result
        if self.waits_for is not None:
            await self.waits_for.wait()
        if self.listed is not None:
            self.listed.set()
        step = 1 if self.starts % 2 else -1
        keys = [("type", "object"), ("title", self.title), ("properties", {"a": {"type": "string"}, "b": {}})]
        return {"tools": [{"name": name, "inputSchema": dict(keys[::step])} for name in self.names[::step]]}


def declared(backend):
    return [json.dumps(asked.body["tools"]) for asked in backend.requests if asked.method == "POST"]


async def test_oh_my_pi_890_a_server_that_restarts_between_two_runs_changes_no_byte_of_the_tools():
    server = Shuffled(["pay", "look", "ask"], "Bank")

    async with connected(server) as ensemble, FakeBackend(["Hi.", "Hi.", "Hi."]) as backend:
        agent = Agent("m", ensembles=[ensemble], base_url=backend.url, mode="native")
        for _ in range(3):
            await agent.run("Hi.")
            await server.restart()
            await ensemble.disconnect()
            await ensemble.connect()
        before, *after = declared(backend)
    assert after == [before, before]


@pytest.mark.parametrize("slow", [0, 1])
def test_librefang_3765_a_gateways_tools_stand_in_the_order_of_its_files_whichever_server_is_slow(slow, tmp_path):
    servers = [Shuffled(["pay", "look"], "Bank"), Shuffled(["buy", "ask"], "Shop")]

    async def scenario():
        servers[slow].waits_for = servers[1 - slow].listed = asyncio.Event()
        for name, server in zip(("bank", "shop"), servers, strict=True):
            await server.start()
            text = f'[mcp.{name}]\nurl = "http://127.0.0.1:{server.port}/mcp"\npinned = false\n'
            (tmp_path / f"{name}.toml").write_text(text)
        try:
            async with (
                FakeBackend(["Hi.", "Hi."]) as backend,
                serve_gateway(
                    behind(backend), ensembles=(str(tmp_path),), permissions=Permissions(allow=("*",))
                ) as served,
            ):
                for _ in range(2):
                    answer = await served.post("chat", {"model": "m", "messages": SAID[:2]})
                    assert answer.status == 200, answer
                    for server in servers:
                        server.waits_for = None
                        await server.restart()
                return declared(backend)
        finally:
            for server in servers:
                await server.stop()

    before, after = asyncio.run(asyncio.wait_for(scenario(), 60))
    names = [each["function"]["name"] for each in json.loads(before)]
    assert [name for name in names if name in {"pay", "look", "buy", "ask"}] == ["pay", "look", "buy", "ask"]
    assert after == before

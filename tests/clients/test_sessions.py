"""What each client runs is one session of the gateway's log, with the call that failed."""

import asyncio

import pytest
from tests.clients.test_loops import calling
from tests.servers.gateway.conftest import Unseen, serve_gateway

from callboard.servers.gateway.traffic import Traffic
from callboard.testing import FakeBackend

FAILING = "ls /nope && false"
CLIENTS = [
    ("codex", "Codex", "exec_command", {"cmd": FAILING}),
    ("claude", "Claude Code", "Bash", {"command": FAILING, "description": "Looks"}),
    ("qwen", "Qwen Code", "run_shell_command", {"command": FAILING, "is_background": False}),
    ("gemini", "Gemini CLI", "run_shell_command", {"command": FAILING, "description": "Looks"}),
]


@pytest.mark.parametrize("given", CLIENTS, ids=lambda given: given[0])
def test_two_runs_of_a_client_are_two_sessions(given, run):
    client, name, tool, arguments = given

    async def scenario():
        replies = [calling(tool, arguments), "It failed."] * 2
        async with FakeBackend(replies) as backend, serve_gateway(backend, extend=Unseen) as served:
            for _ in range(2):
                ran = await run(client, "Look.", url=served.url, model="some-model")
                assert (ran.code, ran.answer) == (0, "It failed."), ran
            return await Traffic(served.gateway, served.request_log).sessions()

    sessions = asyncio.run(scenario())
    assert [(each.client_name, each.turns) for each in sessions] == [(name, 2)] * 2
    assert [each.tools for each in sessions] == [((tool, 1, 1),)] * 2
    assert [bool(each.name) for each in sessions] == [client in {"codex", "claude"}] * 2

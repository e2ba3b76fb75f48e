"""Two MCP servers of the coding agents on one PostgreSQL, and a worker: a task of one of them is seen by the other."""

import asyncio
import os

import pytest
from mcp import Client
from tests.cli import conftest as cli
from tests.cli import test_mcp_agents
from tests.cli.test_mcp_agents import ANSWER, LIMIT, REPORT, Script, over_http
from tests.coding import conftest as coding
from tests.servers.mcp.conftest import TaskClient

from callboard.testing import FakeBackend

repository, faulty, calling = coding.repository, coding.faulty, coding.calling
callboard = cli.callboard
command, write_settings = test_mcp_agents.command, test_mcp_agents.write_settings


@pytest.fixture
def on_postgresql(empty_postgresql, monkeypatch):
    """The jobs are on PostgreSQL."""
    monkeypatch.setenv("CALLBOARD_DATABASE_URL", empty_postgresql)


@pytest.mark.parametrize("has_worker", [True, False])
@pytest.mark.usefixtures("on_postgresql")
def test_two_servers_see_the_same_tasks(callboard, command, write_settings, has_worker):
    knows = TaskClient()

    async def scenario():
        async with asyncio.timeout(LIMIT), FakeBackend(Script(ANSWER)) as backend:
            write_settings(backend.url)
            async with (
                over_http(command, kill=False) as first,
                over_http(command, kill=False) as second,
                Client(first, extensions=[knows]) as asking,
                Client(second, extensions=[knows]) as client,
            ):
                handle = await asking.session.call_tool("triage", REPORT, allow_claimed=True)
                task = await knows.request(client.session, "tasks/get", handle.task_id)
                assert task["status"] == "working"
                if not has_worker:
                    await knows.request(client.session, "tasks/cancel", handle.task_id)
                    return (await knows.request(asking.session, "tasks/get", handle.task_id))["status"]
                worker = await asyncio.create_subprocess_exec(
                    *callboard.command,
                    "worker",
                    "--until-idle",
                    "1",
                    stderr=asyncio.subprocess.PIPE,
                    env={**os.environ},
                )
                results = [await knows.follow(each.session, handle.task_id) for each in (client, asking)]
                await worker.communicate()
                return [each.structured_content["result"]["summary"] for each in results]

    assert asyncio.run(scenario()) == ([ANSWER] * 2 if has_worker else "cancelled")

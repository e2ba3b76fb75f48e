"""Two MCP servers of the coding agents on one PostgreSQL, and a worker: each of them sees the jobs of the other."""

import asyncio
import os

import pytest
from mcp import Client
from tests.cli import conftest as cli
from tests.cli import test_mcp_agents
from tests.cli.test_mcp_agents import ANSWER, LIMIT, REPORT, Script, over_http, wait_for
from tests.coding import conftest as coding

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
def test_two_servers_see_the_same_jobs(callboard, command, repository, write_settings, has_worker):
    async def scenario():
        async with asyncio.timeout(LIMIT), FakeBackend(Script(ANSWER)) as backend:
            write_settings(backend.url, f'[jobs]\ndirectories = ["{repository.root}"]')
            async with (
                over_http(command, kill=False) as first,
                over_http(command, kill=False) as second,
                Client(first) as asking,
                Client(second) as other,
            ):
                job = (await asking.call_tool("triage", REPORT)).structured_content["job"]
                assert (await other.call_tool("get_job", {"job": job})).structured_content["state"] == "pending"
                if not has_worker:
                    await other.call_tool("cancel_job", {"job": job})
                    return (await wait_for(asking, job, "cancelled"))["state"]
                worker = await asyncio.create_subprocess_exec(
                    *callboard.command,
                    "worker",
                    "--until-idle",
                    "1",
                    stderr=asyncio.subprocess.PIPE,
                    env={**os.environ},
                )
                results = [await wait_for(each, job, "completed") for each in (other, asking)]
                await worker.communicate()
                return [each["result"]["summary"] for each in results]

    assert asyncio.run(scenario()) == ([ANSWER] * 2 if has_worker else "cancelled")

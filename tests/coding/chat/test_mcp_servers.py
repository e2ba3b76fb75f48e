from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from callboard.coding.chat.approval_policy import connect_servers, without_names_of_ours
from callboard.configuration import DescribedServer, disconnect_ensembles
from callboard.execution.result_store import KeptResults
from callboard.mcp.settings import ServerSettings
from callboard.tools import Ensemble, Tool

SERVER = Path(__file__).parents[2] / "mcp/servers/small.py"


def describe(name, *command, **options):
    return DescribedServer(ServerSettings(name=name, command=command, **options), name)


async def test_a_server_that_cannot_be_connected_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where it is noted which program has a name
    warnings = []
    servers = [
        describe("small", sys.executable, str(SERVER)),
        describe("broken", sys.executable, "-c", ""),
        describe("off", "/nothing", enabled=False),
    ]

    ensembles = await connect_servers(servers, KeptResults(tmp_path), warnings.append)
    names = {each.name: {*each.invokers} for each in ensembles}
    await disconnect_ensembles(ensembles)
    assert names.keys() == {"small", "broken"}
    assert "echo" in names["small"]
    assert warnings == ['MCP server "broken" is unreachable. Continuing without it.']


def test_without_the_extra_they_are_left_out(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setitem(sys.modules, "mcp", None)
    servers = [describe("small", sys.executable, str(SERVER))]
    assert asyncio.run(connect_servers(servers, KeptResults(tmp_path), warnings.append)) == []
    assert "callboard[mcp]" in warnings[0]


def test_a_tool_with_the_name_of_one_of_ours_is_left_out():
    names = ("bash", "read_file", "read_result", "fetch", "apply_patch")
    theirs = Ensemble("theirs", [Tool(lambda: "", name=name) for name in names])
    assert [*without_names_of_ours(theirs).invokers] == ["fetch"]

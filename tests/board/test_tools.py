"""The page of tools: what runs in the gateway, and MCP servers that a person has connected."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.board.conftest import GatewayProgram

SERVER = Path(__file__).parents[1] / "vectors/mcp/server.py"
TOOLS = {
    "forecast": "The weather of the next days in a city.",
    "alerts": "Warnings of storms, floods and heat that hold now.",
}


@pytest.fixture(scope="module")
def gateway():
    offer = Path(os.environ["XDG_CONFIG_HOME"], "callboard/offer.json")
    offer.parent.mkdir(parents=True)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"name": name, "description": text, "inputSchema": schema} for name, text in TOOLS.items()]
    offer.write_text(json.dumps({"tools": tools}))
    offer.with_name("callboard.toml").write_text(
        f"[mcp.weather]\ncommand = {json.dumps([sys.executable, str(SERVER), str(offer)])}\n"
        '[mcp.tickets]\nurl = "https://tickets.example.org/mcp?key=secret"\n'
        '[mcp.old]\ncommand = ["old-tools"]\nenabled = false\n'
    )
    connect = [sys.executable, "-m", "callboard", "mcp", "tools", "weather"]
    subprocess.run(connect, check=True, capture_output=True)  # what it offers first is pinned
    program = GatewayProgram("http://127.0.0.1:9/v1", "--ensembles", "io")
    yield program
    program.stop()


def test_the_page_of_tools(gateway, visit, look):
    page = visit(gateway).open("tools")
    expect(page.get_by_role("heading", name="Tools in the gateway")).to_be_visible()
    expect(page.get_by_role("row", name="tickets")).to_contain_text("https://tickets.example.org/mcp")
    expect(page.get_by_role("row", name="weather")).to_contain_text("2")
    look(page, "board-tools")
    page.get_by_role("button", name="Connect weather and list its tools").click()
    expect(page.get_by_role("row", name="forecast")).to_contain_text(TOOLS["forecast"])
    look(page)
    page.set_viewport_size({"width": 390, "height": 800})
    look(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("link", name="All tools").click()
    look(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

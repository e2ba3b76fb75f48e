"""The page of tools: what is listed, and a server that is connected when a person asks for it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from callboard.mcp.pins import Pins
from callboard.mcp.settings import ServerSettings
from callboard.servers.board.app import Board, BoardParts, board_application
from callboard.servers.board.tools_page import ToolsPart
from callboard.servers.gateway.hosted_tools import HostedTools
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings

SERVER = Path(__file__).parents[2] / "vectors/mcp/server.py"
HOSTILE = "<script>alert(1)</script>"
SERVERS = {
    "web": ServerSettings(name="web", transport="http", url="https://user:word@mcp.test/path?key=secret"),
    "off": ServerSettings(name="off", command=("nothing", "--key=abcdef"), enabled=False),
    "bad": ServerSettings(name="bad", command=("/no/such/program",)),
}


@pytest.fixture
def board(login, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    offer = tmp_path / "offer.json"
    tool = {"name": "look", "description": f"Look {HOSTILE}\U000e0041\u200b\ufe01", "inputSchema": {"type": "object"}}
    offer.write_text(json.dumps({"tools": [tool]}))
    stdio = ServerSettings(name="io", command=(sys.executable, str(SERVER), str(offer)), environment={"KEY": "unseen"})
    return Board(BoardParts(tools=ToolsPart(lambda: {**SERVERS, "io": stdio})), login)


@pytest.fixture
def visitor(board):
    with TestClient(
        board_application(board), base_url="http://127.0.0.1:8283", headers={"accept": "text/html"}
    ) as client:
        yield client


def test_the_list_tells_no_secret_and_connects_nothing(browser):
    page = browser.get("/board/tools").text
    assert "https://mcp.test/path" in page
    assert Path(sys.executable).name in page
    assert "Disabled" in page
    for secret in ("abcdef", "unseen", "word@", "key=secret"):
        assert secret not in page
    assert Pins().list_all() == []


def test_a_server_is_connected_when_a_person_asks(browser, token):
    answer = browser.post("/board/tools/io/check", data={"token": token})
    assert answer.status_code == 200
    assert "ready" in answer.text
    assert "offered" in answer.text
    assert "Look &lt;script&gt;" in answer.text
    assert r"\U000e0041\u200b\ufe01" in answer.text  # a person decides on it
    assert Pins().list_all() == []  # to look is no first use
    assert browser.post("/board/tools/io/check", data={"token": "x"}).status_code == 403
    assert browser.post("/board/tools/none/check", data={"token": token}).status_code == 404


def test_a_server_that_does_not_start_says_why(browser, token):
    page = browser.post("/board/tools/bad/check", data={"token": token}).text
    assert "failed" in page
    assert "/no/such/program" in page


def test_the_list_says_how_the_last_connection_was(browser, token):
    before = browser.get("/board/tools").text
    for name in ("io", "bad"):
        browser.post(f"/board/tools/{name}/check", data={"token": token})
    after = browser.get("/board/tools").text
    assert (before.count("Not connected yet"), after.count("Not connected yet")) == (3, 1)
    assert '<span class="state completed">ready</span> 1 tool, ' in after
    assert '<span class="state failed">failed</span> 0 tools, ' in after


async def test_tools_of_the_gateway(login):
    hosted = HostedTools(GatewaySettings(backends=(BackendSettings(url="http://x.test/v1"),), ensembles=("io",)))
    app = board_application(Board(BoardParts(tools=ToolsPart(dict, hosted)), login))
    client = TestClient(app, base_url="http://127.0.0.1:8283", cookies={login.cookie: login.begin_session()})

    await hosted.connect()
    page = client.get("/board/tools").text
    await hosted.disconnect()
    assert re.search(r">io <span[^>]*>\d+ tools</span></h3>", page)  # without a connection there is no state
    assert ">offered<" in page
    assert ">not permitted<" in page

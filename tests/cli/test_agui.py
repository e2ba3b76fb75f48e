"""`--agui`: which agents are served, on the gateway and on the board, and who may ask them."""

import asyncio
import json
import pickle
import re
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import sleep

import pytest
from starlette.testclient import TestClient
from tests.tables import table

from callboard.cli.agui import check_agents, extend_board_by_agui, extend_gateway_by_agui
from callboard.cli.serve import make_group
from callboard.errors import CallerError
from callboard.jobs import VARIABLE
from callboard.jobs.database import Database
from callboard.jobs.job import normalize_reference
from callboard.jobs.store import DurableStore
from callboard.servers.agui.endpoint import OwnJobs
from callboard.servers.agui.runs import agui_queue
from callboard.servers.board.app import Board, BoardParts, board_application
from callboard.servers.board.login import Login
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.app import application
from callboard.servers.gateway.configuration import parse_key_digests

CREW = f"{Path(__file__).parents[1] / 'servers/agui/crew.py'}:clerk"
LOCAL = "http://127.0.0.1:8282"
KEY = "a-key-of-sixteen-characters"
KEYS = parse_key_digests([KEY])
HEADERS = {"authorization": f"Bearer {KEY}"}
ASK = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "add them"}]}
BACKENDS = (BackendSettings(url="http://127.0.0.1:9/v1"),)


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    monkeypatch.setenv(VARIABLE, url)
    return url


@pytest.fixture
def serve_board(tmp_path):
    """A client of a board with this extension."""

    def serve_board(extension, url=LOCAL):
        board = Board(BoardParts(), Login(tmp_path / "board"))
        return TestClient(board_application(board, extension), base_url=url)

    return serve_board


def read_stream(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def read_text(events):
    """How many pieces it comes in depends on how fast they come."""
    return "".join([each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT"])


def test_a_gateway_with_a_store_runs_the_jobs_of_agents_in_it(tmp_path, database):
    store = tmp_path / "store.db"
    settings = GatewaySettings(backends=BACKENDS, store=f"sqlite:///{store}", hosts=("127.0.0.1",))
    extend = partial(make_group, (partial(extend_gateway_by_agui, (CREW,), KEYS),))
    with TestClient(application(settings, pickle.loads(pickle.dumps(extend))), base_url=LOCAL) as client:
        assert client.post("/agui/clerk", json=ASK).status_code == 401
        events = read_stream(client.post("/agui/clerk", json=ASK, headers=HEADERS))
        assert events[-1]["outcome"] == {"type": "success"}
        reply = client.post("/v1/responses", json={"model": "m", "input": "Hi", "background": True})
        assert reply.json()["error"]["code"] == "background_not_supported"  # the gateway itself has no keys
        for host in ("evil.example", "127.0.0.1:1@evil.example", "127.0.0.1@evil.example"):
            assert client.post("/agui", json=ASK, headers={**HEADERS, "host": host}).status_code == 403
    assert not Path(database.removeprefix("sqlite:///")).exists()


def test_a_board_serves_agents_beside_its_pages(serve_board):
    extension = extend_board_by_agui([CREW], parse_key_digests([KEY]), (), ["board.example"], OwnJobs())
    with serve_board(extension, "http://board.example") as client:
        assert client.post("/agui", json=ASK).status_code == 401
        headers = {"authorization": f"Bearer {KEY}"}
        assert client.post("/agui", json=ASK, headers={**headers, "host": "evil.example"}).status_code == 403
        events = read_stream(client.post("/agui", json=ASK, headers=headers))
        assert read_text(events) == "It is 3."
        assert client.get("/board/", headers=headers, follow_redirects=False).status_code != 200


def test_the_budget_of_a_day_holds_for_agents_of_a_board(tmp_path, monkeypatch, serve_board):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callboard").mkdir()
    (tmp_path / "callboard/callboard.toml").write_text("[jobs]\nbudget_per_day = 1.0\n")
    extension = extend_board_by_agui([CREW], KEYS, (), ["testserver"], OwnJobs())
    with serve_board(extension) as client:
        end = read_stream(client.post("/agui", json=ASK, headers=HEADERS))[-1]
    assert end["type"] == "RUN_ERROR"
    assert "what a reply cost is not known" in end["message"]


def test_old_runs_of_a_board_are_removed(tmp_path, monkeypatch, database, serve_board):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callboard").mkdir()
    (tmp_path / "callboard/callboard.toml").write_text('[jobs]\nkeep = "1d"\n')
    extension = extend_board_by_agui([CREW], KEYS, (), ["testserver"], OwnJobs())
    with Database.open(database) as jobs:
        store = DurableStore(jobs, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        job = asyncio.run(store.create("agui", queue=agui_queue(normalize_reference(CREW))))
        asyncio.run(store.request_cancel(job.id))
        with serve_board(extension):
            while asyncio.run(store.list()):
                sleep(0.01)


@pytest.mark.usefixtures("directory")
def test_the_agent_of_this_directory(serve_board):
    extension = extend_board_by_agui(["run"], KEYS, (), ["testserver"], OwnJobs())
    with serve_board(extension) as client:
        events = read_stream(client.post("/agui/run", json=ASK, headers=HEADERS))
        assert read_text(events) == "Hello."


@pytest.mark.usefixtures("directory")
def test_the_budget_of_this_directory_holds_for_its_agent(monkeypatch, serve_board):
    monkeypatch.setenv("CALLBOARD_BUDGET", "1.0")
    extension = extend_board_by_agui(["run"], KEYS, (), ["testserver"], OwnJobs())
    with serve_board(extension) as client:
        end = read_stream(client.post("/agui/run", json=ASK, headers=HEADERS))[-1]
    assert "a budget needs the price" in end["message"]


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory whose settings name a model that needs nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "say.py").write_text("print('Hello.', end='')")
    monkeypatch.setenv("CALLBOARD_MODEL", f"command:{sys.executable} {tmp_path / 'say.py'}")
    return tmp_path


@table(
    ("references", "message"),
    [
        (["crew"], "not a reference to an agent"),
        (["no_such_module:clerk"], "cannot be imported"),
        ([CREW.replace("clerk", "cook")], "its module has no cook"),
        ([CREW, CREW], "the same address"),
        (["run", "other.py:run"], "the same address"),
    ],
)
def test_agents_that_cannot_be_served(references, message):
    with pytest.raises(CallerError, match=message):
        check_agents(references)


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        (("board", "--agui", CREW, "--port", "0"), "stderr"),
        (("board", "--agui", CREW, "--port", "0", "--json"), "stdout"),
        (("serve", "--backend", "http://127.0.0.1:9", "--agui", CREW, "--port", "0"), "stderr"),
    ],
)
def test_without_a_key_one_is_made_and_printed(command, stream, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "callboard", *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        try:
            for line in getattr(program, stream):
                if "agui_key" in line:
                    url, key = json.loads(line)["url"], json.loads(line)["agui_key"]
                    url = url.replace("/board/", "/agui")
                elif match := re.search(r"clients of (http\S+/agui) send this key: (\S+)", line):
                    url, key = match.groups()
                else:
                    continue
                break
            statuses = [ask_status(url, headers) for headers in ({}, {"x-api-key": "wrong"}, {"x-api-key": key})]
        finally:
            program.terminate()
            program.communicate()
    assert statuses == [401, 401, 400]


def ask_status(url, headers):
    """The status of a request that is not an AG-UI request."""
    request = urllib.request.Request(url, b"{}", {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_beyond_this_machine_a_board_needs_a_key_for_its_agents(typed):
    outcome = typed("board", "--agui", CREW, "--url", "https://board.example.org", "--port", "0")
    assert outcome.returncode != 0
    assert "give --agui-key" in outcome.stderr

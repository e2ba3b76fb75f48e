"""The board on the gateway: beside its endpoints, and in each of its workers."""

import pickle
from functools import partial

import pytest
from starlette.testclient import TestClient
from tests.tables import table

from callboard.cli.board import extend_gateway
from callboard.errors import CallerError
from callboard.servers.board.app import Board, BoardParts
from callboard.servers.board.login import Login
from callboard.servers.board.server import board_hosts, login_link
from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.app import application

SETTINGS = GatewaySettings(backends=(BackendSettings(url="http://127.0.0.1:9/v1"),))


def make_gateway(board):
    return TestClient(
        application(SETTINGS, lambda services: board),
        base_url="http://127.0.0.1:8282",
        headers={"accept": "text/html"},
    )


def test_the_gateway_has_a_board(board, login):
    with make_gateway(board) as client:
        token = login_link(login, "").partition("token=")[2]
        client.post("/board/login", data={"link": token})
        assert "<h1>Activity</h1>" in client.get("/board/").text
        assert client.get("/health").status_code == 200
        assert client.get("/nothing").json()["error"]["code"] == "not_found"


def test_a_session_of_one_worker_holds_in_the_others(tmp_path):
    first, second = (Board(BoardParts(), Login(tmp_path / "board")) for _ in range(2))
    with make_gateway(first) as client:
        cookie = first.login.cookie
        client.post("/board/login", data={"link": first.login.make_link_token()})
        value = client.cookies[cookie]
    with make_gateway(second) as client:
        client.cookies.set(cookie, value, path="/board")
        assert client.get("/board/").status_code == 404  # it has nothing to show, and says so to who is logged in
        assert "log in" not in client.get("/board/").text.lower()


def test_workers_can_be_told_how_to_make_it():
    assert pickle.loads(pickle.dumps(partial(extend_gateway, ("localhost",)))).func is extend_gateway


@table(
    ("host", "url", "names"),
    [
        ("127.0.0.1", "", {"127.0.0.1"}),
        ("::1", "", {"[::1]"}),
        ("0.0.0.0", "https://Board.example.org:8443/", {"board.example.org"}),
    ],
)
def test_the_names_of_a_board(host, url, names):
    assert board_hosts(host, url) == names


@table(
    ("host", "url", "path"),
    [
        ("0.0.0.0", "", "--host 0.0.0.0"),
        ("127.0.0.1", "board.example.org", "--url"),
        ("127.0.0.1", "https://me@x.org", "--url"),
    ],
)
def test_a_board_that_would_be_open_is_refused(host, url, path):
    with pytest.raises(CallerError) as refusal:
        board_hosts(host, url)
    assert refusal.value.path == path
    assert refusal.value.hint

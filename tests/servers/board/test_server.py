"""The board's figures for Prometheus: for this machine, and nothing of what jobs are about."""

import asyncio
import sys

import pytest
from starlette.testclient import TestClient

from callboard.servers.board.app import board_application
from callboard.servers.board.server import make_metrics_routes

ORIGIN = "http://127.0.0.1:8283"


def ask(board, client="127.0.0.1", host="127.0.0.1:8283"):
    app = board_application(board, None, make_metrics_routes(board))
    with TestClient(app, base_url=ORIGIN, client=(client, 1)) as visitor:
        return visitor.get("/metrics", headers={"host": host})


def test_jobs_by_state_without_a_login(board, job_store):
    asyncio.run(job_store.create("agent", description="a private matter"))
    answer = ask(board)
    assert answer.status_code == 200
    assert 'callboard_jobs{state="pending"} 1.0' in answer.text
    assert "callboard_tool_calls" in answer.text
    assert "private" not in answer.text


@pytest.mark.parametrize(
    ("client", "host"), [("192.0.2.1", "127.0.0.1:8283"), ("127.0.0.1", "evil.example"), ("127.0.0.1", "")]
)
def test_nobody_else_gets_them(board, client, host):
    answer = ask(board, client, host)
    assert answer.status_code == 403
    assert "callboard_" not in answer.text


def test_without_the_extra_it_is_named(board, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with TestClient(board_application(board, None, make_metrics_routes(board)), base_url=ORIGIN) as visitor:
        answer = visitor.get("/metrics")
    assert (answer.status_code, "pip install 'callboard[otel]'" in answer.text) == (404, True)

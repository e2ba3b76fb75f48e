"""`callboard board`: its link, and what it refuses. How it looks is in tests/board."""

import json
import os
import signal
import subprocess
import sys

import pytest

from callboard.errors import CallerError
from callboard.servers.board.login import Login


def token_of(link):
    return link.partition("/board/login?token=")[2]


def test_a_link_for_a_board_that_runs(invoke):
    outcome = invoke("board", "--link", "--port", "8282")
    link = outcome.stdout.strip()
    assert link.startswith("http://127.0.0.1:8282/board/login?token=")
    assert Login().use_link_token(token_of(link)) == "ok"


def test_a_link_for_a_program(invoke):
    outcome = invoke("board", "--link", "--json", "--url", "https://board.example.org/")
    answer = json.loads(outcome.stdout)
    assert answer["url"] == "https://board.example.org/board/"
    assert answer["link"].startswith("https://board.example.org/board/login?token=")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (["board", "--host", "0.0.0.0"], "--host 0.0.0.0"),
        (["board", "--url", "board.example.org"], "--url"),
        (["serve", "--backend", "http://127.0.0.1:9/v1", "--board", "--board-url", "x"], "--board-url"),
    ],
)
def test_a_board_that_would_be_open_is_refused(invoke, options, path):
    error = invoke(*options).exception
    assert isinstance(error, CallerError)
    assert error.path == path


def test_it_serves_until_it_is_told_to_stop():
    command = [sys.executable, "-m", "callboard", "board", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert token_of(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(err.splitlines()) == 1
    environment = {**os.environ, "CALLBOARD_DATABASE_URL": "postgresql://me:secret@127.0.0.1:9/none"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert "secret" not in ran.stderr

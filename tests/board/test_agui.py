"""Runs that a front-end of AG-UI begins on a board are seen on the same board, piece by piece."""

import json
import threading
import urllib.request

import pytest
from playwright.sync_api import expect
from tests.board.conftest import CREW, BoardProgram


@pytest.fixture
def gates(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLBOARD_GATES", str(tmp_path))
    return tmp_path


def begin_run(board):
    """Ask the agent as a front-end does, and read its events in a thread."""
    run = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Slow please"}]}
    body = json.dumps({**run, "tools": [], "context": [], "state": {}, "forwardedProps": {}}).encode()
    url = board.url.replace("/board/", "/agui")
    request = urllib.request.Request(url, body, {"content-type": "application/json", "x-api-key": board.agui_key})
    events = []

    def read():
        with urllib.request.urlopen(request) as answer:
            events.extend(json.loads(line[5:]) for line in answer if line.startswith(b"data:"))

    thread = threading.Thread(target=read)
    thread.start()
    return thread, events


def test_a_reply_is_seen_while_it_comes(gates, visit):
    board = BoardProgram(0, "--agui", CREW)
    try:
        page = visit(board).open("jobs")
        thread, events = begin_run(board)
        page.get_by_role("link", name="Slow please").click()
        expect(page.locator("#status")).to_have_text("Live")
        (gates / "half a").touch()
        expect(page.locator("#pieces")).to_contain_text("half a")
        expect(page.locator("#log")).not_to_contain_text("half a")
        (gates / "reply").touch()
        expect(page.locator("#log")).to_contain_text("half a reply")
        expect(page.locator("#pieces")).to_be_empty()
        thread.join()
        assert events[-1]["type"] == "RUN_FINISHED"
    finally:
        board.stop()

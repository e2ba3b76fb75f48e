"""What reaches the server over standard input, and what its client hears."""

from __future__ import annotations

import asyncio
import json
import os
import threading

import pytest
from tests.tables import table

from callboard import Ensemble, tool
from callboard.errors import CallerError
from callboard.servers.mcp import transports
from callboard.servers.mcp.server import ToolServer
from callboard.servers.mcp.transports import serve_stdio
from callboard.servers.stdio import StdioDescriptors


@tool
def say(text: str) -> str:
    """Says it."""
    return text


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
BEGIN = [INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]


LAST = {"jsonrpc": "2.0", "id": "last", "method": "ping"}


def served(*lines, last=LAST):
    """The answers to these lines and to a last one, by their identifiers; the input ends when that is answered."""
    (theirs, given), (answers, ours) = os.pipe(), os.pipe()
    read, answered = [], threading.Event()

    def reading():
        with os.fdopen(answers, "rb") as file:
            for line in file:
                read.append(json.loads(line))
                if read[-1].get("id") == LAST["id"]:
                    answered.set()
        answered.set()

    def writing():
        with os.fdopen(given, "wb") as file:
            for line in (*BEGIN, *lines, last):
                file.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
            file.flush()
            answered.wait()

    threads = [threading.Thread(target=each) for each in (reading, writing)]
    for each in threads:
        each.start()
    try:
        asyncio.run(serve_stdio(ToolServer([Ensemble("e", [say])]), StdioDescriptors(theirs, ours)))
    finally:
        os.close(theirs)
        os.close(ours)
        for each in threads:
            each.join()
    return {answer.get("id"): answer for answer in read}


@table(
    "line",
    [
        {"jsonrpc": "2.0", "id": 1, "method": 3},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "1"},
    ],
)
def test_a_request_that_is_none_is_answered_with_an_error_and_the_next_is_served(line):
    answers = served(line)
    assert answers[line["id"]]["error"]["code"] == -32600
    assert answers["last"]["result"] == {}


@table("line", [b"noise", b"\xff", b"[]", b'{"jsonrpc": "2.0", "id": 1, "result": 3}', b'{"id": true}'])
def test_what_asks_nothing_is_not_answered(line):
    assert served(line).keys() - {None} == {0, "last"}


@table(("text", "heard"), [(rb'"hi \ud83d"', "hi \ufffd"), (b'"hi \xff"', "hi \ufffd"), ('"hi 😀"'.encode(), "hi 😀")])
@table("mark", [b"", b"\xef\xbb\xbf"], ids=["", "BOM"])
def test_half_a_character_does_not_lose_a_call(text, heard, mark):
    line = b'%b{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"say","arguments":{"text":%b}}}'
    assert served(last=line % (mark, text))["last"]["result"]["content"][0]["text"] == heard


def test_a_message_that_is_too_long_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(transports, "MAX_LINE", 1000)
    with pytest.raises(CallerError, match="standard input: a message of more than 1000 bytes"):
        served({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 5000}})

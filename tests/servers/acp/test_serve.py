from __future__ import annotations

import asyncio
import json

import pytest

from callboard.servers.acp.serve import LineTransport


class Client:
    """What was posted to it."""

    def __init__(self):
        self.lines = []

    def post(self, text):
        self.lines.append(text)

    def close(self):
        pass


async def receive(data, limit=2**20):
    """The messages of these bytes, and what the client was told."""
    reader, client = asyncio.StreamReader(limit=limit), Client()
    reader.feed_data(data)
    reader.feed_eof()
    transport = LineTransport(reader, client)
    messages = []
    while (message := await transport.receive()) is not None:
        messages.append(message)
    return messages, [json.loads(line) for line in client.lines]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
async def test_a_line_is_a_message(end):
    assert await receive(b'\n{"id": 1, "method": "a"}\n \n{"id": 2}' + end) == (
        [{"id": 1, "method": "a"}, {"id": 2}],
        [],
    )


@pytest.mark.parametrize(
    ("line", "code", "identifier"),
    [
        (b"nonsense", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"[]", -32600, None),
        (b'"text"', -32600, None),
        (b'{"id": [], "result": 1}', -32600, None),
        (b'{"id": true, "method": "a"}', -32600, None),
        (b'{"id": "x", "method": ["a"]}', -32600, "x"),
    ],
)
async def test_what_is_no_message_is_answered_and_the_next_one_read(line, code, identifier):
    messages, errors = await receive(line + b'\n{"id": 1}\n')
    assert messages == [{"id": 1}]
    assert [(each["id"], each["error"]["code"]) for each in errors] == [(identifier, code)]


@pytest.mark.parametrize("error", ["no", ["no"], 7, None])
async def test_an_answer_with_an_error_that_is_none_is_an_error_of_nothing(error):
    line = json.dumps({"id": 1, "error": error}).encode()
    assert await receive(line + b'\n{"id": 2}\n') == ([{"id": 1, "error": {}}, {"id": 2}], [])


@pytest.mark.parametrize("error", [{"code": 1, "message": "no"}, {}, "no", 7])
async def test_an_answer_with_an_error_and_a_result_is_an_error(error):
    result = {"outcome": {"outcome": "selected", "optionId": "once"}}
    ([message], errors) = await receive(json.dumps({"id": 1, "result": result, "error": error}).encode() + b"\n")
    assert errors == []
    assert sorted(message) == ["error", "id"]


async def test_an_error_that_is_null_leaves_the_result():
    ([message], _) = await receive(b'{"id": 1, "result": {}, "error": null}\n')
    assert message["result"] == {}


async def test_a_message_that_is_too_long_is_refused_and_the_next_one_read():
    messages, errors = await receive(b'{"a": "' + b"x" * 10_000 + b'"}\n{"id": 1}\n', limit=1000)
    assert messages == [{"id": 1}]
    assert "a message has at most" in errors[0]["error"]["message"]


async def test_a_long_message_is_read_whole():
    message = {"text": "x" * 10_000}
    assert await receive(json.dumps(message).encode()) == ([message], [])


def test_what_is_sent_is_json_whatever_a_model_wrote():
    client = Client()
    LineTransport(None, client).post({"a": "\ud800\n", "b": [float("nan"), float("inf")]})
    (line,) = client.lines
    assert line.endswith("}\n")
    assert json.loads(line.encode("utf-8", "replace")) == {"a": "?\n", "b": [None, None]}

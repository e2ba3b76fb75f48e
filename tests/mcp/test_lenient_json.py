"""What servers send that is not quite what the SDK reads."""

from __future__ import annotations

import json
import sys

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter
from tests.mcp.conftest import SmallServer, linked
from tests.tables import table

from callboard.mcp import McpEnsemble
from callboard.mcp.errors import ServerFailure
from callboard.mcp.lenient_json import mend_tools, reparse
from callboard.mcp.settings import ServerSettings

# Answers a call with the bytes in the file that is its argument; ANSWERED stands for the identifier.
SERVER = """
import json, sys
from pathlib import Path
about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
tools = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "tools/call":
        said = Path(sys.argv[1]).read_bytes().replace(b"ANSWERED", str(message["id"]).encode())
        sys.stdout.buffer.write(said + b"\\n")
        sys.stdout.flush()
    elif "id" in message:
        result = {"initialize": about, "tools/list": tools}.get(message["method"])
        outcome = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"""
TEXT = b'{"jsonrpc":"2.0","id":ANSWERED,"result":{"content":[{"type":"text","text":"%s"}]}}'

READ = [
    (TEXT % rb"hi \ud83d", "hi \ufffd"),
    (TEXT % rb"\ude00 hi \ud83d\ude00", "\ufffd hi \U0001f600"),
    (TEXT % b"caf\xe9", "caf\ufffd"),
    (b"\xef\xbb\xbf" + TEXT % b"marked", "marked"),
    (TEXT % b"a\ttab", "a\ttab"),
    (TEXT.replace(b'"jsonrpc":"2.0",', b"") % b"bare", "bare"),
]
FAILED = [
    b'{"jsonrpc":"2.0","id":ANSWERED,"result":"done"}',
    b'{"jsonrpc":"2.0","id":ANSWERED,"result":null}',
    b'{"jsonrpc":"2.0","id":ANSWERED,"result":[1]}',
    b'{"jsonrpc":"2.0","id":ANSWERED}',
    b'{"jsonrpc":"2.0","id":ANSWERED,"error":"failed"}',
    b'{"jsonrpc":"2.0","id":ANSWERED,"error":{"message":"no code"}}',
    b'{"jsonrpc":"2.0","id":ANSWERED,"result":{"content":[{"type":"text","text":"cut',
    b'{"result":{"content":[{"text":what?}]},"jsonrpc":"2.0","id":ANSWERED}',
]


@pytest.fixture
def raw(tmp_path):
    """The result of a call that is answered with these bytes, over both transports."""

    async def raw(transport, said):
        if transport == "stdio":
            program, answer = tmp_path / "raw.py", tmp_path / "answer"
            program.write_text(SERVER)
            answer.write_bytes(said)
            command = (sys.executable, "-S", str(program), str(answer))
            settings = ServerSettings(name="s", command=command, pinned=False, protocol="legacy", idle_timeout=600)
            async with McpEnsemble(settings) as ensemble:
                return await ensemble.call_tool("echo", {})
        async with linked(SmallServer(answering(said, "application/json"))) as link:
            return await link.call("echo", {})

    return raw


def answering(said, content_type):
    """Answers a call with these bytes."""

    def answer(given):
        body = said.replace(b"ANSWERED", str(given["id"]).encode())
        return web.Response(body=body, content_type=content_type)

    return answer


def events(said, end):
    return answering(b": hello\nevent: message\ndata: " + said + end, "text/event-stream")


BOTH = pytest.mark.parametrize("transport", ["stdio", "http"])


@BOTH
@pytest.mark.parametrize(("said", "text"), READ[:4:2] + READ[3:4])
async def test_a_text_that_is_not_quite_unicode_is_read(raw, transport, said, text):
    assert (await raw(transport, said)).content[0].text == text


@pytest.mark.parametrize(("said", "text"), [*READ[:3], (TEXT % b"hi", "hi")])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\n\n: bye\n"])
async def test_a_stream_of_events_is_read_leniently(said, text, end):
    async with linked(SmallServer(events(said, end))) as link:
        assert (await link.call("echo", {})).content[0].text == text


async def test_an_event_that_is_no_answer_fails_its_call_at_once():
    async with linked(SmallServer(events(FAILED[0], b"\n\n"))) as link:
        with pytest.raises(ServerFailure, match="Failed to parse SSE message"):
            await link.call("echo", {})


@BOTH
@pytest.mark.parametrize("said", [FAILED[0], FAILED[6]])
async def test_an_answer_that_is_none_fails_its_call_at_once(raw, transport, said):
    with pytest.raises(ServerFailure, match="its answer cannot be read"):
        await raw(transport, said)


def message(said):
    read = reparse(said.replace(b"ANSWERED", b"7"))
    return jsonrpc_message_adapter.validate_json(read, by_name=False) if read is not None else None


@table(("said", "text"), READ)
def test_what_is_read_leniently(said, text):
    assert message(said).result["content"][0]["text"] == text


@table("said", FAILED)
def test_what_fails_the_call_that_it_answers(said):
    read = message(said)
    assert (read.id, read.error.code) == (7, -32700)
    assert read.error.message.startswith("its answer cannot be read: ")


@table(
    "said",
    [
        b"DEBUG: starting up",
        b"7",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"level":"info","msg":"hi"}',
        b'{"id":true}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{what?}}',
        b'a log of {"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"result":{"id":1,',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message(said):
    assert reparse(said) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_no_message_or_one(data):
    read = reparse(data)
    if read is not None:
        jsonrpc_message_adapter.validate_json(read, by_name=False)


@given(st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.none(), max_size=4))
def test_any_result_reads_as_it_was_sent(result):
    said = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
    assert jsonrpc_message_adapter.validate_json(reparse(said), by_name=False).result == result


# lists of tools

GOOD = {"name": "good", "inputSchema": {"type": "object"}}
VERSIONS = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])


@VERSIONS
@pytest.mark.parametrize(
    ("tool", "mended"),
    [
        ({"name": "a"}, {"name": "a", "inputSchema": {"type": "object"}}),
        ({"name": "a", "inputSchema": None}, {"name": "a", "inputSchema": {"type": "object"}}),
        (
            {"name": "a", "inputSchema": {"properties": {"x": {}}}},
            {"name": "a", "inputSchema": {"properties": {"x": {}}, "type": "object"}},
        ),
        ({"name": "a", "inputSchema": {"type": ["object", "null"]}}, {"name": "a", "inputSchema": {"type": "object"}}),
        ({**GOOD, "annotations": {"readOnlyHint": "perhaps"}}, GOOD),
        ({**GOOD, "outputSchema": "text", "description": "It."}, {**GOOD, "description": "It."}),
    ],
)
def test_a_tool_that_is_not_quite_one_is_mended(version, tool, mended):
    left_out = {}
    assert mend_tools([GOOD, tool], version, left_out) == [GOOD, mended]
    assert left_out == {}


@VERSIONS
@pytest.mark.parametrize(
    ("tool", "name", "why"),
    [
        ({"name": "a", "inputSchema": {"type": "string"}}, "a", "inputSchema.type: Input should be 'object'"),
        ({"name": "a", "inputSchema": "x"}, "a", "inputSchema: Input should be"),
        ({"name": 1, "inputSchema": {}}, "1", "name: Input should be a valid string"),
        ({"name": "a", "description": 3, "inputSchema": {}}, "a", "description: Input should be a valid string"),
        ("a", "", "it is no object"),
    ],
)
def test_a_tool_that_is_none_is_left_out_with_a_reason(version, tool, name, why):
    left_out = {}
    assert mend_tools([tool, GOOD], version, left_out) == [GOOD]
    assert left_out[name].startswith(why)


async def test_one_tool_does_not_lose_the_server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    tools = [{"name": "open", "inputSchema": {}}, {"name": "odd", "inputSchema": {"type": "string"}}, GOOD]
    told = []

    async with linked(SmallServer(tools=tools)) as link, McpEnsemble(link.settings, warn=told.append) as ensemble:
        await ensemble.call_tool("good", {})
        assert [*ensemble.invokers][:2] == ["open", "good"]
    assert told == ["s: the tool 'odd' is left out: inputSchema.type: Input should be 'object'"]


async def test_what_is_wrong_with_an_answer_is_said_without_a_page_of_pydantic():
    def answer(given):
        return web.json_response({**given, "result": {"content": "text"}})

    async with linked(SmallServer(answer)) as link:
        with pytest.raises(ServerFailure) as failed:
            await link.call("echo", {})
    assert "content: Input should be a valid" in str(failed.value)
    assert "pydantic" not in str(failed.value)

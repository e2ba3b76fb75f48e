from __future__ import annotations

import asyncio
import json
import os

import pytest

from callboard import Ensemble, tool
from callboard.servers.mcp.server import ToolServer
from callboard.servers.mcp.stdio import Wire, serve_stdio


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


def answered(*lines):
    """What the server writes when a client has sent these and closes its end."""

    async def scene():
        (read, ours), (answers, write) = os.pipe(), os.pipe()
        serving = asyncio.create_task(serve_stdio(ToolServer([Ensemble("e", [echo])]), Wire(read, write)))
        with os.fdopen(ours, "wb", 0) as requests, os.fdopen(answers, "rb", 0) as answers:
            requests.write(b"".join(line + b"\n" for line in lines))
            got = []
            while len(got) < 2:
                got.append(json.loads(await asyncio.to_thread(answers.readline)))
        await serving
        for each in (read, write):
            os.close(each)
        return got

    return asyncio.run(asyncio.wait_for(scene(), 30))


@pytest.mark.parametrize(
    ("text", "heard"), [(rb"hi \ud83d", "hi \ufffd"), (b"caf\xe9", "caf\ufffd"), (rb"\ud83d\ude00", "\U0001f600")]
)
def test_a_request_that_is_not_quite_unicode_is_answered(text, heard):
    about = b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}'
    _, answer = answered(
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}' % about,
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}}}' % text,
    )
    assert answer["result"]["content"][0]["text"] == heard

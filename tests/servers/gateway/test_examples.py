"""The scripts of examples/gateway, against a gateway whose backend calls and answers."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.servers.gateway.fronts import call_events, reply

from callboard.core import TextPiece, Usage
from callboard.servers.gateway import BackendSettings
from callboard.testing import FakeBackend

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/gateway"
ARGUMENTS = {"get_weather": {"city": "Oslo"}, "add": {"a": 2, "b": 3}}


def replied(body):
    """A call of the first tool, or an answer where there is none to call or the call has its result."""
    tools = body.get("tools") or []
    if not tools or body.get("tool_choice") == "none" or body["messages"][-1]["role"] == "tool":
        return reply(TextPiece("Clear, "), TextPiece("and 4 degrees."), Usage(5, 2))
    name = tools[0]["function"]["name"]
    return reply(*call_events(name, ARGUMENTS[name]), Usage(5, 2))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ([sys.executable, "stream.py"], ['call 0: get_weather {"city":"Oslo"}', "done: 1 calls, 5 tokens in, 2 out"]),
        (["bash", "turns.sh"], ["the model calls: ", '"name": "get_weather"', "Clear, and 4 degrees."]),
        (["bash", "scenarios.sh"], ["ok      a tool in the flat shape", "ok      a stream", "ok      Messages"]),
    ],
    ids=["stream", "turns", "scenarios"],
)
async def test_an_example(command, told, serving):
    program, script = command

    async with FakeBackend(replied) as backend, serving(BackendSettings(url=backend.url)) as served:
        process = await asyncio.create_subprocess_exec(
            program,
            str(EXAMPLES / script),
            served.url,
            "m",
            env={"PATH": os.environ["PATH"], "PYTHONUTF8": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        code, said = process.returncode, said.decode()
    assert code == 0, said
    assert [each for each in told if each not in said] == [], said

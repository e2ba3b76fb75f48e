"""Claude Code compacts the conversation when the gateway says that it does not fit, and goes on."""

import asyncio
import json

from tests.clients.conftest import serve
from tests.servers.gateway.test_token_count import Tokenizing

from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted

COMMAND = {"command": "echo hi", "description": "Says hi"}


def test_claude_code_compacts(run):
    lengths = []

    def count(body):
        calls = json.dumps(body["messages"]).count('"tool_calls"')
        return {"count": 40_000 if calls >= 3 else 1000}

    def reply(body):
        lengths.append(len(body["messages"]))
        number = len(lengths)
        if number > 3:
            return "<summary>It said hi.</summary>" if "TEXT ONLY" in str(body["messages"][-1]) else "Done."
        called = (0, f"call_{number}", "Bash")
        ended = InvocationEnded(*called, COMMAND, json.dumps(COMMAND))
        return [ReplyStarted(), InvocationStarted(*called), ended, ReplyEnded("invocations")]

    async def scenario():
        paths = {"/tokenize": count}
        async with Tokenizing("vllm", paths, replies=reply, window=9000) as backend, serve(backend) as served:
            return await run("claude", "Say hi.", url=served.url, model="m")

    ran = asyncio.run(scenario())
    assert (ran.code, ran.answer) == (0, "Done.")
    assert lengths[3] < lengths[2] + 2

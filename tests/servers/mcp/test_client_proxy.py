"""The tools of another server, served again, lose nothing that the protocol has a place for."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import mcp_types as types
import pytest
from tests.servers.mcp.conftest import User
from tests.tables import table

from callboard import Context, Ensemble, tool
from callboard.mcp import McpEnsemble, Pins, ServerSettings
from callboard.servers.mcp.client_proxy import Upstream
from callboard.servers.mcp.server import ToolServer

TESTS = Path(__file__).parents[2]
TALKATIVE = [sys.executable, str(TESTS / "mcp" / "servers" / "ordinary.py")]
OUT = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
SUM = {
    "name": "sum",
    "description": "Adds.",
    "inputSchema": {"type": "object"},
    "outputSchema": OUT,
    "annotations": {"readOnlyHint": True, "title": "Sum"},
}
SAID = {
    "instructions": "Add whole numbers only.",
    "tools": [SUM, {**SUM, "name": "odd", "outputSchema": {"type": "object", "$ref": "https://elsewhere.example/x"}}],
    "results": {"sum": {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}},
}


@pytest.fixture
def again(talk, tmp_path):
    """A client, in this era, of the tools of the server of a command, which are served again."""

    @asynccontextmanager
    async def again(command, **callbacks):
        upstream = Upstream()
        settings = ServerSettings(name="up", command=tuple(command), sampling=True, timeout=30)
        pins = Pins(tmp_path / "pins")
        async with (
            McpEnsemble(settings, pins=pins, elicit=upstream.elicit, sample=upstream.sample) as ensemble,
            talk(ToolServer([ensemble], upstream=upstream), **callbacks) as client,
        ):
            yield client

    return again


async def test_what_a_tool_says_of_itself_and_its_structured_content_pass(again, era, tmp_path):
    (tmp_path / "said.json").write_text(json.dumps(SAID))

    command = [sys.executable, "-S", str(TESTS / "vectors" / "mcp" / "server.py"), str(tmp_path / "said.json")]
    async with again(command) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        instructions = client.instructions
        answer = await client.call_tool("sum", {})
    if era == "legacy":  # a client that is told its version does not ask for them
        assert instructions == "up: Add whole numbers only."
    assert listed["sum"].output_schema == OUT
    assert (listed["sum"].annotations.read_only_hint, listed["sum"].annotations.title) == (True, "Sum")
    assert listed["odd"].output_schema is None
    assert (answer.content[0].text, answer.structured_content) == ("3", {"result": 3})


async def test_progress_and_questions_pass(again):
    asked = User(("accept", {"name": "Ann"}))
    steps = []

    async def thought(_, params):
        said = types.TextContent(type="text", text=f"{params.messages[0].content.text} is 4")
        return types.CreateMessageResult(role="assistant", content=said, model="m")

    async def progressed(done, total, message):
        steps.append((done, total, message))

    async with again(TALKATIVE, elicitation_callback=asked, sampling_callback=thought) as client:
        await client.call_tool("steps", {}, progress_callback=progressed)
        answered = [(await client.call_tool(name, {})).content[0].text for name in ("ask", "think")]
    assert answered == ["accept {'size': 7, 'name': 'Ann'}", "2 + 2 is 4"]
    assert asked.asked == ["up asks: Who are you?"]
    assert steps == [(1, 3, "on"), (2, 3, "on"), (3, 3, "on")]


async def test_a_question_is_declined_where_the_client_cannot_ask(again):
    async with again(TALKATIVE) as client:
        assert ((await client.call_tool("ask", {})).content[0].text) == "decline None"


class Calling:
    """Of a call: its session, and what it can be asked."""

    def __init__(self, session, can=frozenset({"elicitation"})):
        self.session, self.can = session, can

    async def elicit(self, *_, **__):
        return types.ElicitResult(action="accept", content={"who": self.session})


@table(
    ("clients", "answer"),
    [
        ([], ("decline", None)),
        ([Calling("a")], ("accept", {"who": "a"})),
        ([Calling("a"), Calling("a")], ("accept", {"who": "a"})),
        ([Calling("a"), Calling("b")], ("decline", None)),
    ],
)
def test_nobody_is_asked_for_the_call_of_another(clients, answer):
    upstream = Upstream()
    with ExitStack() as stack:
        for client in clients:
            stack.enter_context(upstream.calling(client))
        assert asyncio.run(upstream.elicit("Who?", {"type": "object"})) == answer
    assert asyncio.run(upstream.elicit("Who?", {"type": "object"})) == ("decline", None)


async def test_the_progress_of_our_own_tools_arrives_in_order(talk):
    @tool
    def work(context: Context) -> str:
        """Works on a thread."""
        for step in range(5):
            context.progress(step, 5, f"step {step}")
        return "done"

    steps = []

    async def progressed(done, total, message):
        steps.append((done, total, message))

    async with talk(ToolServer([Ensemble("e", [work])])) as client:
        assert ((await client.call_tool("work", {}, progress_callback=progressed)).content[0].text) == "done"
    assert steps == [(step, 5, f"step {step}") for step in range(5)]

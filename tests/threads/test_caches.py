"""What users reported of prompt caches that did not hold, each test named after its thread."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from callboard import Agent, tool
from callboard.core import Note
from callboard.servers.gateway.settings import Permissions
from callboard.testing import FakeBackend, Raw

TESTS = Path(__file__).resolve().parents[1]
_SPEC = spec_from_file_location("gateway_fixtures", TESTS / "servers/gateway/conftest.py")
GATEWAY = module_from_spec(_SPEC)
_SPEC.loader.exec_module(GATEWAY)
_SPEC = spec_from_file_location("held", TESTS / "threads/test_held.py")
HELD = module_from_spec(_SPEC)
_SPEC.loader.exec_module(HELD)
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("lsp", "read")]
SAID = [
    {"role": "system", "content": "You write code. Agents: Plan."},
    {"role": "user", "content": "What does it do?"},
    {"role": "assistant", "content": "It sorts."},
    {"role": "user", "content": "How?"},
]
NEXT = [{"role": "assistant", "content": "By merging."}, {"role": "user", "content": "How fast?"}]
BEFORE = {"model": "m", "messages": SAID, "tools": TOOLS}
AFTER = {"model": "m", "messages": [*SAID, *NEXT], "tools": TOOLS}


def replying(cached, text="Like this.", call=None):
    """A reply whose usage tells of this many cached tokens."""
    delta = {"content": text} if call is None else {"tool_calls": [{"index": 0, "id": "c1", "function": call}]}
    usage = {
        "prompt_tokens": cached + 500,
        "completion_tokens": 5,
        "total_tokens": cached + 505,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    finish = {"index": 0, "delta": {}, "finish_reason": "stop" if call is None else "tool_calls"}
    return Raw(
        [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [finish]},
            {"choices": [], "usage": usage},
            "[DONE]",
        ]
    )


def through(bodies, cached, caplog, **facts):
    """What a gateway's log and figures say of caches after these requests."""

    async def scenario():
        async with (
            FakeBackend([replying(each) for each in cached]) as backend,
            GATEWAY._serving(GATEWAY.behind(backend, **facts)) as served,
        ):
            for body in bodies:
                answer = await served.post("chat", {**body, "stream": True})
                assert answer.status == 200, answer
            return (await served.get("/metrics")).text

    with caplog.at_level(logging.WARNING, "callboard.gateway"):
        figures = asyncio.run(asyncio.wait_for(scenario(), 60))
    told = [record.getMessage() for record in caplog.records if "prompt cache" in record.getMessage()]
    counted = [line for line in figures.splitlines() if line.startswith("callboard_cache_collapses_total{")]
    return told, counted


def with_content(place, text):
    messages = [*AFTER["messages"]]
    messages[place] = {**messages[place], "content": text}
    return {**AFTER, "messages": messages}


@pytest.mark.parametrize(
    ("after", "cause", "text"),
    [
        ({**AFTER, "tools": TOOLS[1:]}, "tools", "the tools changed"),
        (with_content(0, "You write code. Agents: Ask."), "instructions", "the instructions changed"),
        (with_content(2, "[cleared]"), "history", "the history changed before its end, at message 2"),
        ({**AFTER, "model": "n"}, "model", "another model was asked"),
        (AFTER, "unknown", "nothing of the request changed, so the provider dropped it"),
    ],
    ids=["claude-code#81967", "vscode#316182", "claude-code#40524", "hermes-agent#100336", "claude-code#87966"],
)
def test_a_collapse_of_the_cache_is_logged_and_counted_once_with_its_likely_cause(after, cause, text, caplog):
    last = {**after, "messages": [*after["messages"], *NEXT]}
    told, counted = through([BEFORE, after, last], [50_000, 600, 600], caplog)
    assert [line.partition(": ")[2] for line in told] == [
        f"the prompt cache collapsed from 50000 tokens to 600: {text}"
    ]
    (line,) = counted
    assert f'cause="{cause}"' in line
    assert line.endswith(" 1.0")


def test_a_cache_that_holds_is_not_told_of(caplog):
    last = {**AFTER, "messages": [*AFTER["messages"], *NEXT]}
    assert through([BEFORE, AFTER, last], [50_000, 50_400, 48_500], caplog) == ([], [])


def test_claude_code_router_1220_the_attribution_line_is_no_change_of_the_instructions(caplog):
    line = "x-anthropic-billing-header: cc_version=2.1.29; cch={};\n{}"
    one, two = [
        {**each, "messages": [{**SAID[0], "content": line.format(cch, SAID[0]["content"])}, *each["messages"][1:]]}
        for cch, each in (("0a1b", BEFORE), ("f9e8", AFTER))
    ]
    told, _ = through([one, two], [50_000, 0], caplog)
    assert [each.rpartition(": ")[2] for each in told] == ["nothing of the request changed, so the provider dropped it"]


class Clock:
    """Minutes that pass where a test says so."""

    minute = 0

    def __call__(self):
        return datetime(2026, 11, 1, 12, self.minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("minutes", "instructions", "cause"),
    [
        (1, "Be brief. It is 12:01.", "the instructions changed"),
        (6, "Be brief.", "360 s passed since the last request, and the endpoint is known to keep a cache 300 s"),
        (1, "Be brief.", "nothing of the request changed, so the provider dropped it"),
    ],
    ids=["librefang#3765", "pydantic-ai's idle", "unknown"],
)
def test_an_agent_tells_of_a_collapse_between_two_runs_of_a_conversation(minutes, instructions, cause):
    clock = Clock()

    @tool
    def look() -> str:
        """Looks."""
        return "a tree"

    async def scenario():
        replies = [
            replying(0, call={"name": "look", "arguments": "{}"}),
            replying(40_000),
            replying(900),
            replying(900),
        ]
        async with FakeBackend(replies) as backend:
            agent = Agent("m", [look], base_url=backend.url, mode="native", clock=clock, instructions="Be brief.")
            first = await agent.run("Look.")
            clock.minute += minutes
            run = agent.stream("Again.", history=first.canisters, instructions=instructions)
            events = [event async for event in run]
            run = agent.stream(
                "And again.", history=[*first.canisters, *run.result.canisters], instructions=instructions
            )
            return events, [event async for event in run]

    once, later = [
        [event for event in events if isinstance(event, Note) and event.code == "cache"]
        for events in asyncio.run(asyncio.wait_for(scenario(), 60))
    ]
    text = f"the prompt cache collapsed from 40000 tokens to 900: {cause}"
    assert [(note.kind, note.text) for note in once] == [("alert", text)]
    assert later == []


class Shuffled(HELD.Restartable):
    """A server that lists its tools in another order after each start, with the keys of their schemas in another order.

    `waits_for` is set when it may list its tools, `listed` when it has.
    """

    def __init__(self, names, title):
        super().__init__("legacy", names)
        self.title = title
        self.starts = 0
        self.waits_for = self.listed = None

    async def start(self):
        self.starts += 1
        await super().start()

    async def _result(self, request, method, params):
        result = await super()._result(request, method, params)
        if method != "tools/list":
            return result
        if self.waits_for is not None:
            await self.waits_for.wait()
        if self.listed is not None:
            self.listed.set()
        step = 1 if self.starts % 2 else -1
        keys = [("type", "object"), ("title", self.title), ("properties", {"a": {"type": "string"}, "b": {}})]
        return {"tools": [{"name": name, "inputSchema": dict(keys[::step])} for name in self.names[::step]]}


def declared(backend):
    return [json.dumps(asked.body["tools"]) for asked in backend.requests if asked.method == "POST"]


def test_oh_my_pi_890_a_server_that_restarts_between_two_runs_changes_no_byte_of_the_tools():
    server = Shuffled(["pay", "look", "ask"], "Bank")

    async def scenario():
        async with HELD.connected(server) as ensemble, FakeBackend(["Hi.", "Hi.", "Hi."]) as backend:
            agent = Agent("m", ensembles=[ensemble], base_url=backend.url, mode="native")
            for _ in range(3):
                await agent.run("Hi.")
                await server.restart()
                await ensemble.disconnect()
                await ensemble.connect()
            return declared(backend)

    before, *after = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert after == [before, before]


@pytest.mark.parametrize("slow", [0, 1])
def test_librefang_3765_a_gateways_tools_stand_in_the_order_of_its_files_whichever_server_is_slow(slow, tmp_path):
    servers = [Shuffled(["pay", "look"], "Bank"), Shuffled(["buy", "ask"], "Shop")]

    async def scenario():
        servers[slow].waits_for = servers[1 - slow].listed = asyncio.Event()
        for name, server in zip(("bank", "shop"), servers, strict=True):
            await server.start()
            text = f'[mcp.{name}]\nurl = "http://127.0.0.1:{server.port}/mcp"\npinned = false\n'
            (tmp_path / f"{name}.toml").write_text(text)
        try:
            async with (
                FakeBackend(["Hi.", "Hi."]) as backend,
                GATEWAY._serving(
                    GATEWAY.behind(backend), ensembles=(str(tmp_path),), permissions=Permissions(allow=("*",))
                ) as served,
            ):
                for _ in range(2):
                    answer = await served.post("chat", {"model": "m", "messages": SAID[:2]})
                    assert answer.status == 200, answer
                    for server in servers:
                        server.waits_for = None
                        await server.restart()
                return declared(backend)
        finally:
            for server in servers:
                await server.stop()

    before, after = asyncio.run(asyncio.wait_for(scenario(), 60))
    names = [each["function"]["name"] for each in json.loads(before)]
    assert [name for name in names if name in {"pay", "look", "buy", "ask"}] == ["pay", "look", "buy", "ask"]
    assert after == before

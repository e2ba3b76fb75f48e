"""What users reported of calls in streams, loops, restarted MCP servers and efforts, each test named after its thread."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.tables import table
from tests.threads import passing

from callboard import Agent, Limits, tool
from callboard.core import Controls, ReplyEnded, Request, ResultCanister, UserCanister, reply_events
from callboard.mcp import McpEnsemble, ServerSettings
from callboard.providers import open_model
from callboard.testing import Call, FakeBackend, Raw, ScriptedModel

TESTS = Path(__file__).resolve().parents[1]
CODEX = {path.stem: json.loads(path.read_text("utf-8")) for path in (TESTS / "vectors/clients").glob("codex-*.json")}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "parameters": PARAMETERS}
QUESTION = {"role": "user", "content": "Weather in Oslo?"}


def through(replies, front, body, **options):
    """A gateway's answer to a request, and the bodies that its backend was sent."""
    (answer,), bodies = passing.through(replies, (front, body), **options)
    return answer, bodies


def responses(**fields):
    tools = [{"type": "function", **FUNCTION}]
    return {"model": "m", "input": "Weather in Oslo?", "tools": tools, "stream": True} | fields


def chat(**fields):
    tools = [{"type": "function", "function": FUNCTION}]
    return {"model": "m", "messages": [QUESTION], "tools": tools} | fields


def calls(answer):
    """The calls of a streamed response, by their `output_item.done`."""
    done = [event["item"] for event in answer.events if event["type"] == "response.output_item.done"]
    return [item for item in done if item["type"] == "function_call"]


def deltas(*given, finish="tool_calls"):
    """A streamed reply of Chat Completions, of deltas."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in given]
    return Raw([*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}, "[DONE]"])


def fragment(arguments, **fields):
    function = {"arguments": arguments} | {key: fields.pop(key) for key in ("name",) if key in fields}
    return {"tool_calls": [{"index": 0, **fields, "function": function}]}


# Calls in streams.


@table(
    "fragments",
    [
        [fragment("", id="call_1", name="get_weather"), fragment('{"city":'), fragment('"Oslo"}')],
        [
            fragment("", id="call_1", name="get_weather"),
            fragment('{"city":', id="", name=""),
            fragment('"Oslo"}', id="", name=""),
        ],
        [fragment("", id="call_1", name="get_weather"), fragment('{"city":"Oslo"}', id=None, name=None)],
    ],
    ids=["id only in the first", "empty ones later", "null ones later"],
)
def test_codex_7517_fragments_without_an_id_are_of_one_call(fragments):
    answer, _ = through([deltas(*fragments)], "responses", responses())
    (call,) = calls(answer)
    assert (call["call_id"], call["name"], call["arguments"]) == ("call_1", "get_weather", '{"city":"Oslo"}')


def test_cliproxyapi_4219_a_call_without_any_id_gets_one_and_is_not_lost():
    fragments = [fragment("", name="get_weather"), fragment('{"city":"Oslo"}')]
    answer, _ = through([deltas(*fragments)], "responses", responses())
    (call,) = calls(answer)
    assert call["call_id"]
    assert call["arguments"] == '{"city":"Oslo"}'
    assert answer.events[-1]["type"] == "response.completed"


def done_only(last):
    """A stream of Responses whose arguments come in `.done` alone; `last` is what the item has at its end."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "status": "completed"}
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    return Raw(
        [
            {"type": "response.created", "sequence_number": 0, "response": whole | {"status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": item | {"arguments": ""}},
            {
                "type": "response.function_call_arguments.done",
                "output_index": 0,
                "item_id": "fc_1",
                "arguments": '{"city":"Oslo"}',
            },
            {"type": "response.output_item.done", "output_index": 0, "item": item | {"arguments": last}},
            {"type": "response.completed", "response": whole | {"status": "completed", "output": []}},
        ]
    )


@table("last", ['{"city":"Oslo"}', "", "{}"])
@table("front", ["responses", "chat", "messages"])
def test_litellm_27144_arguments_that_come_in_done_alone_are_not_lost(front, last):
    tools = [{"name": "get_weather", "input_schema": PARAMETERS}]
    bodies = {
        "responses": responses(),
        "chat": chat(stream=True),
        "messages": {"model": "m", "messages": [QUESTION], "tools": tools, "stream": True, "max_tokens": 100},
    }
    answer, _ = through([done_only(last)], front, bodies[front], wire="responses")
    arguments = {
        "responses": lambda event: event.get("item", {}).get("arguments") if "item.done" in event["type"] else "",
        "chat": lambda event: "".join(
            call["function"].get("arguments") or ""
            for choice in event["choices"]
            for call in choice["delta"].get("tool_calls") or ()
        ),
        "messages": lambda event: (event.get("delta") or {}).get("partial_json") or "",
    }[front]
    assert json.loads("".join(arguments(event) or "" for event in answer.events)) == {"city": "Oslo"}


NAMESPACED = {
    "type": "namespace",
    "name": "mcp__forge",
    "description": "A forge.",
    "tools": [{"type": "function", **FUNCTION, "name": "list_issues"}],
}


@table("additional", [False, True], ids=["tools", "additional_tools"])
@table("captured", sorted(CODEX))
def test_codex_32318_a_namespaced_tool_is_declared_to_a_chat_backend_and_its_call_comes_back(captured, additional):
    body = dict(CODEX[captured]["first"]) | {"stream": True}
    if additional:
        body["input"] = [*body["input"], {"type": "additional_tools", "role": "developer", "tools": [NAMESPACED]}]
    else:
        body["tools"] = [*(body.get("tools") or ()), NAMESPACED]

    def reply(asked):
        (name,) = [each["function"]["name"] for each in asked["tools"] if "list_issues" in each["function"]["name"]]
        return deltas(fragment('{"city":"Oslo"}', id="call_1", name=name))

    answer, _ = through(reply, "responses", body)
    assert answer.status == 200, answer
    (call,) = calls(answer)
    assert (call.get("namespace"), call["name"]) == ("mcp__forge", "list_issues")


# Calls in text, as a server passes them on whose own parser is off, or breaks while it streams.

HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
XML = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"


@table(
    ("model", "text"),
    [("Qwen/Qwen3-32B", HERMES), ("Qwen/Qwen3-Coder-30B-A3B-Instruct", XML)],
    ids=["vllm_19056_hermes", "vllm_30439_xml"],
)
@table("pieces", ["tokens", "characters", "whole"])
def test_vllm_30439_qwen3_1595_the_deltas_of_a_raw_text_backend_are_the_same_call(model, text, pieces):
    """As tokens: the end of the arguments and of the object come in one piece, which vLLM's parser lost."""
    cut = {
        "whole": [text],
        "characters": list(text),
        "tokens": text.replace("}}", "\0}}\n").replace("{", "\0{\0").replace(">", ">\0").split("\0"),
    }[pieces]
    reply = deltas(*({"content": piece} for piece in cut), finish="stop")
    answer, _ = through([reply], "responses", responses(model=model))
    (call,) = calls(answer)
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Oslo"})


@table("fence", ["{}", "```json\n{}\n```", "Let me look.\n{}"])
def test_llama_cpp_22581_the_json_that_qwen_coder_writes_as_content_is_a_call(fence):
    text = fence.replace("{}", '{"name": "get_weather", "arguments": {"city": "Oslo"}}')
    answer, _ = through([text], "chat", chat(model="qwen2.5-coder-1.5b"))
    (choice,) = answer.body["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


@tool
def get_weather(city: str) -> str:
    """Says the weather."""
    return f"rain in {city}"


async def test_exo_1757_a_call_that_cannot_be_read_is_told_to_the_model():
    broken = '<tool_call>\n{"name": "get_weather", "arguments": {"city": Oslo\n</tool_call>'

    async with FakeBackend([broken, HERMES, "Rain."]) as backend:
        result = await Agent("Qwen/Qwen3-32B", [get_weather], base_url=backend.url, mode="validated").run("Oslo?")
        backend.assert_complete()
        told = json.dumps(backend.requests[1].body["messages"][-1])
    assert result.output == "Rain."
    assert "Error" in told
    assert "arguments" in told


# Loops.


def looping(*script, **options):
    """The result of a run whose model goes on as the script says, and how often the tool ran."""
    ran = []

    @tool
    def look(page: int, attempt: int = 0) -> str:
        ran.append((page, attempt))
        return f"page {page}"

    model = ScriptedModel([*script, *["I give up."] * 5])
    return Agent(model, [look], **options).run_sync("Look."), ran, model


SAME = [Call("look", {"page": 1})] * 300
COUNTED = [Call("look", {"page": 1, "attempt": number}) for number in range(300)]
ALTERNATING = [Call("look", {"page": number % 2}) for number in range(300)]


@table("script", [SAME, COUNTED, ALTERNATING], ids=["same", "cosmetic counter", "A-B-A-B"])
def test_pi_9637_220_calls_a_model_that_never_stops_calling_is_ended_with_its_reason(script):
    result, ran, _ = looping(*script, limits=Limits(rounds=10))
    assert result.state == "incomplete"
    assert "rounds" in result.why
    assert len(ran) <= 10


@table("choice", ["final_answer", "warn"])
def test_nanobot_2298_a_call_that_is_only_repeated_is_not_run_for_ever(choice):
    result, ran, model = looping(*SAME[:8], on_repeated_call=choice)
    assert len(ran) < 4
    assert result.state in ("completed", "incomplete")
    told = [each.text for request in model.requests for each in request.canisters if isinstance(each, ResultCanister)]
    assert any("again" in text or "before" in text or "already" in text for text in told), told


# MCP servers that restart.


class Restartable:
    """A server of one era on HTTP, whose process may end and begin again; `calls` outlives it."""

    def __init__(self, era, names=("pay", "look")):
        self.era, self.names = era, list(names)
        self.calls = []
        self.cut = False  # whether the next call runs and its answer is lost
        self.before_answer = None  # what happens while the next call runs
        self._sessions, self._started, self._runner = set(), 0, None
        self.port = 0

    async def start(self):
        application = web.Application()
        application.router.add_post("/mcp", self._post)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def stop(self):
        self._sessions.clear()
        await self._runner.cleanup()

    async def restart(self):
        await self.stop()
        await self.start()

    @property
    def settings(self):
        return ServerSettings(name="bank", transport="http", url=f"http://127.0.0.1:{self.port}/mcp", pinned=False)

    async def _post(self, request):
        message = await request.json()
        method, answer = message["method"], {"jsonrpc": "2.0", "id": message.get("id")}
        begins = {"legacy": "initialize", "modern": "server/discover"}[self.era]
        headers = {}
        if self.era == "legacy" and method == begins:
            self._started += 1
            headers["mcp-session-id"] = session = f"session-{self._started}"
            self._sessions.add(session)
        elif self._lost(request, method):
            error = {"code": -32001, "message": "Session not found"}
            return web.json_response({**answer, "error": error}, status=404)
        if message.get("id") is None:
            return web.Response(status=202)
        result = await self._result(request, method, message.get("params") or {})
        if result is None:
            return web.json_response({**answer, "error": {"code": -32601, "message": "Method not found"}})
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}
        return web.json_response({**answer, "result": {**result, **more}}, headers=headers)

    def _lost(self, request, method):
        asks = self.era == "legacy" and method != "server/discover"
        return asks and request.headers.get("mcp-session-id") not in self._sessions

    async def _result(self, request, method, params) -> dict[str, Any] | None:
        about = {"capabilities": {"tools": {"listChanged": True}}}
        match self.era, method:
            case "legacy", "initialize":
                return about | {"protocolVersion": "2025-11-25", "serverInfo": {"name": "bank", "version": "1"}}
            case "modern", "server/discover":
                return about | {"supportedVersions": ["2026-07-28"]}
            case _, "tools/list":
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.names]}
            case _, "tools/call":
                self.calls.append(params["name"])
                if self.cut:
                    self.cut = False
                    request.transport.abort()
                return {"content": [{"type": "text", "text": f"done {len(self.calls)}"}], "isError": False}
        return None


ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@asynccontextmanager
async def connected(server):
    await server.start()
    try:
        async with McpEnsemble(server.settings) as ensemble:
            yield ensemble
    finally:
        await server.stop()


@ERAS
async def test_qwen_code_9944_the_tools_of_an_http_server_that_restarted_between_calls_still_work(era):
    server = Restartable(era)

    async with connected(server) as ensemble:
        model = ScriptedModel([Call("pay"), "Paid.", Call("pay"), "Paid again."])
        agent = Agent(model, ensembles=[ensemble])
        first = await agent.run("Pay.")
        await server.restart()
        second = await agent.run("Pay again.")
    assert (first.output, second.output) == ("Paid.", "Paid again.")
    assert server.calls == ["pay", "pay"]
    assert model.requests[-1].canisters[-1].text == "done 2"


@ERAS
async def test_agent_native_5547_an_ambiguous_call_is_never_replayed_and_the_model_is_told(era):
    server = Restartable(era)
    server.cut = True

    async with connected(server) as ensemble:
        model = ScriptedModel([Call("pay"), Call("look"), "I looked."])
        result = await Agent(model, ensembles=[ensemble]).run("Pay.")
    assert result.output == "I looked."
    assert server.calls == ["pay", "look"]
    assert "may have run" in model.requests[1].canisters[-1].text
    assert model.requests[2].canisters[-1].text == "done 2"


def declared(bodies):
    return [json.dumps(body["tools"]) for body in bodies]


@ERAS
async def test_oh_my_pi_890_a_server_that_restarts_within_a_run_does_not_change_the_tools_of_the_requests(era):
    """A byte that moves in the tools costs the whole prompt cache."""
    server = Restartable(era)

    async with connected(server) as ensemble:

        @tool
        async def restart() -> str:
            server.names = ["look", "new", "pay"]
            await server.restart()
            return "restarted"

        script = iter([Call("restart"), Call("pay"), Call("look"), "Done."])
        model = ScriptedModel([lambda _: next(script)] * 4)
        result = await Agent(model, [restart], ensembles=[ensemble]).run("Go.")
    assert result.output == "Done."
    assert server.calls == ["pay", "look"]
    tools = [request.tools for request in model.requests]
    assert all(each == tools[0] for each in tools)


def test_librefang_3765_the_order_of_tools_is_that_of_the_ensembles_and_not_of_their_connections():
    servers = [Restartable("legacy", names) for names in (["a", "b"], ["c", "d"])]

    async def scenario(order):
        for server in servers:
            await server.start()
        ensembles = [
            McpEnsemble(ServerSettings(name=name, transport="http", url=server.settings.url, pinned=False))
            for name, server in zip(("first", "second"), servers, strict=True)
        ]
        try:
            for index in order:
                await ensembles[index].connect()
            async with FakeBackend(["Hi."]) as backend:
                await Agent("m", ensembles=ensembles, base_url=backend.url, mode="native").run("Hi.")
                return declared(asked.body for asked in backend.requests)
        finally:
            for each in ensembles:
                await each.disconnect()
            for server in servers:
                await server.stop()

    assert asyncio.run(scenario([0, 1])) == asyncio.run(scenario([1, 0]))


# Outputs that are arrays, and efforts.


@table("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
@table("wire", ["chat", "responses", "messages", "gemini"])
def test_sglang_33633_any_effort_ends_its_stream(wire, effort):
    body = responses(reasoning={"effort": effort})
    answer, _ = through(["Rain."], "responses", body, wire=wire)
    assert answer.events[-1]["type"] == "response.completed"
    assert answer.events[0]["response"]["reasoning"]["effort"] == effort


@pytest.mark.parametrize(
    ("effort", "nearest"), [("xhigh", "high"), ("minimal", "low"), ("max", "max"), ("none", "none")]
)
async def test_ollama_17252_an_effort_that_ollama_does_not_know_is_asked_for_as_the_nearest_one(
    effort, nearest, monkeypatch
):

    async with FakeBackend(["Rain."], strict="ollama") as backend:
        monkeypatch.setenv("OLLAMA_BASE_URL", backend.url)
        request = Request("qwen3", [UserCanister("Oslo?")], controls=Controls(effort=effort))
        model = open_model("ollama:qwen3")
        events = [event async for event in reply_events(model, request)]
        await model.aclose()
        asked = backend.requests[-1]
    assert isinstance(events[-1], ReplyEnded), events
    assert (asked.refused_by, asked.body["reasoning_effort"]) == ("", nearest)


@table(
    ("server", "effort", "nearest"),
    [
        ("ollama", "xhigh", "high"),
        ("ollama", "minimal", "low"),
        ("sglang", "max", "high"),
        ("sglang", "minimal", "low"),
    ],
)
def test_cliproxyapi_1572_an_effort_that_a_backend_refuses_is_asked_for_once_more_as_the_nearest(
    server, effort, nearest
):
    body = responses(reasoning={"effort": effort})
    answer, sent = through(["Rain."], "responses", body, strict=server)
    assert answer.status == 200, answer
    assert answer.events[-1]["type"] == "response.completed"
    assert [each["reasoning_effort"] for each in sent] == [effort, nearest]


@table(("server", "model"), [("deepseek", "deepseek-v4-flash"), ("kimi", "kimi-k2.6")])
@table("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_deepseek_v3_1376_a_call_that_cannot_be_forced_while_thinking_is_asked_for_with_its_tools(
    server, model, choice
):
    reply = deltas(fragment('{"city":"Oslo"}', id="call_1", name="get_weather"))
    body = responses(model=model, tool_choice=choice)
    answer, (first, second) = through([reply], "responses", body, strict=server)
    (call,) = calls(answer)
    assert call["name"] == "get_weather"
    assert first["tool_choice"] != "auto"
    assert second.get("tool_choice", "auto") == "auto"
    assert second["tools"] == first["tools"]

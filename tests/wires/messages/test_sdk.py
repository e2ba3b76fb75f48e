"""The server half, driven by Anthropic's own client over loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.tables import table

from callboard import core
from callboard.errors import CallerError
from callboard.text.sse import encode_frame
from callboard.wires.messages import StreamEncoder, decode_request, encode_error, encode_response

SIGNATURE = "EqQBCgIYAhIM+/sig=="
REPLY = [
    core.ReplyStarted("r", "m"),
    core.ReasoningPiece("Let me "),
    core.ReasoningPiece("think."),
    core.ReasoningPiece("", SIGNATURE, "m"),
    core.ReasoningPiece("", "redacted:Emw+", "m"),
    core.TextPiece("I'll "),
    core.TextPiece("look — ✓\n\n"),
    core.InvocationStarted(0, "toolu_1", "weather"),
    core.ArgumentsPiece(0, '{"city":'),
    core.InvocationStarted(1, "toolu_2", "clock"),
    core.ArgumentsPiece(0, '"Oslo"}'),
    core.InvocationEnded(0, "toolu_1", "weather", {"city": "Oslo"}, '{"city":"Oslo"}'),
    core.InvocationEnded(1, "toolu_2", "clock", {}, ""),
    core.Usage(30, 12, 10, 5),
    core.ReplyEnded("invocations"),
]
TOOLS = [
    {
        "name": "weather",
        "description": "says it",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
    {"name": "clock", "input_schema": {"type": "object"}},
]
OVERLOADED = core.ReplyFailed("provider", "overloaded_error", "busy")


class Server:
    """Replies with the events that it is given, and keeps what it was asked."""

    def __init__(self, events):
        self.events = events
        self.asked = []

    async def messages(self, http):
        try:
            request = decode_request(await http.json())
        except CallerError as error:
            status, body = encode_error(core.ReplyFailed("caller", "invalid_request_error", str(error)))
            return web.json_response(body, status=status)
        self.asked.append(request)
        about = {"identifier": "msg_1", "model": request.model, "created": 1, "request": request}
        if isinstance(self.events[0], core.ReplyFailed):
            status, body = encode_error(self.events[0])
            return web.json_response(body, status=status)
        if not request.stream:
            return web.json_response(encode_response(self.events, **about))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        encoder = StreamEncoder(**about)
        for event in self.events:
            for frame in encoder.feed(event):
                await response.write(encode_frame(frame[1], frame[0]))
        for frame in encoder.finish():
            await response.write(encode_frame(frame[1], frame[0]))
        return response


@asynccontextmanager
async def serving(server):
    from anthropic import AsyncAnthropic

    application = web.Application()
    application.router.add_post("/v1/messages", server.messages)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="none", max_retries=0) as client:
            yield client
    finally:
        await runner.cleanup()


def ask(events, use):
    """What `use` gets of a client of a server that replies with these events, and what the server was asked."""
    server = Server(events)

    async def main():
        async with serving(server) as client:
            return await use(client)

    return asyncio.run(main()), server.asked


ASKED = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "Weather?"}],
    "tools": TOOLS,
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}


async def stream(client):
    async with client.messages.stream(**ASKED) as events:
        seen = [event.type async for event in events]
        return seen, await events.get_final_message()


async def create(client):
    return await client.messages.create(**ASKED)


def check(message):
    thinking, redacted, text, first, second = message.content
    assert (thinking.type, thinking.thinking, thinking.signature) == ("thinking", "Let me think.", SIGNATURE)
    assert (redacted.type, redacted.data) == ("redacted_thinking", "Emw+")
    assert (text.type, text.text) == ("text", "I'll look — ✓\n\n")
    assert (first.type, first.id, first.name, first.input) == ("tool_use", "toolu_1", "weather", {"city": "Oslo"})
    assert (second.type, second.id, second.name, second.input) == ("tool_use", "toolu_2", "clock", {})
    assert (message.id, message.model, message.stop_reason) == ("msg_1", "m", "tool_use")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (20, 10, 12)
    assert usage.output_tokens_details.thinking_tokens == 5


def test_a_stream():
    (seen, message), (request,) = ask(REPLY, stream)
    check(message)
    assert {"thinking", "signature", "text", "input_json", "message_stop"} <= set(seen)
    supervisor, user = request.canisters
    assert isinstance(supervisor, core.SupervisorCanister)
    assert supervisor.content[0].extra == {"cache_control": {"type": "ephemeral"}}
    assert user == core.UserCanister("Weather?")
    assert request.tools[0] == core.ToolDeclaration("weather", "says it", TOOLS[0]["input_schema"])
    assert (request.tool_choice, request.parallel, request.stream) == (core.NamedTool("weather"), False, True)
    assert request.extra == {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def test_a_whole_reply():
    message, (request,) = ask(REPLY, create)
    check(message)
    assert not request.stream


def test_what_was_said_comes_back():
    """The client replays the reply and gives results; thinking is byte for byte the same."""

    async def twice(client):
        _, message = await stream(client)
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "4", "is_error": call.name == "clock"}
            for call in message.content
            if call.type == "tool_use"
        ]
        history = [message.to_param(), {"role": "user", "content": results}]
        await client.messages.create(**{**ASKED, "messages": [*ASKED["messages"], *history]})

    _, (_, request) = ask(REPLY, twice)
    _, _, said, first, second, one, two = request.canisters
    assert said.content[:2] == (
        core.ReasoningContent("Let me think.", SIGNATURE, "m"),
        core.ReasoningContent("", "redacted:Emw+", "m"),
    )
    assert said.text == "I'll look — ✓\n\n"
    assert (first.arguments, second.arguments) == ({"city": "Oslo"}, {})
    assert one == core.ResultCanister("4", invocation_id="toolu_1")
    assert two.error.category == "execution"


def test_only_text():
    (_, message), _ = ask([core.TextPiece("Hi"), core.ReplyEnded("stop")], stream)
    assert (message.content[0].text, message.stop_reason, message.usage.output_tokens) == ("Hi", "end_turn", 0)


@table("use", [stream, create])
def test_a_failure_at_once(use):
    from anthropic import OverloadedError

    with pytest.raises(OverloadedError, match="busy"):
        ask([OVERLOADED], use)


@table("events", [[core.TextPiece("a"), OVERLOADED], [core.TextPiece("a")]], ids=["told", "broken off"])
def test_a_failure_in_the_middle(events):
    from anthropic import APIStatusError

    with pytest.raises(APIStatusError, match=r"_error"):
        ask(events, stream)


def test_a_request_that_is_none():
    from anthropic import BadRequestError

    async def bad(client):
        await client.messages.create(**{**ASKED, "messages": [{"role": "wizard", "content": "x"}]})

    with pytest.raises(BadRequestError, match=r"messages\[0\]\.role"):
        ask(REPLY, bad)

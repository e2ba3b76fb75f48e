"""The server half behind Google's own client."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from tests.wires.replies import encode, whole

from callboard import core
from callboard.wires.gemini import decode_request, encode_error

FAILURE = core.ReplyFailed("provider", "overloaded_error", "too much", "<html>")
OFFICIAL = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
"""The official package inherits where it is discouraged."""

OPAQUES = ["U2ln", ">U2ln", "+/+/", "gAAAA-_x", "é|{}"]


def serve(replies_, asked, use):
    """What `use` makes of Google's client in front of a server that gives `replies_` one after the other."""
    from google import genai

    async def answer(request):
        stream = request.path.endswith(":streamGenerateContent")
        model = request.path.rpartition("/")[2].partition(":")[0]
        assert (request.query.get("alt") == "sse") == stream
        asked.append(decode_request(await request.json(), model=model, stream=stream))
        events = next(replies_)
        if isinstance(events, core.ReplyFailed):
            status, body = encode_error(events)
            return web.json_response(body, status=status)
        if not stream:
            return web.json_response(whole("gemini", events))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for frame in encode("gemini", events):
            await response.write(frame)
        return response

    async def main():
        app = web.Application()
        app.router.add_post("/{version}/models/{call}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{port}"})
        try:
            return await use(client.aio)
        finally:
            await client.aio.aclose()
            client.close()
            await runner.cleanup()

    return asyncio.run(main())


@OFFICIAL
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("opaque", OPAQUES)
def test_google_s_client_calls_a_tool(stream, opaque):
    """Question, thought, call, result, answer: the signature comes back on the part that it came on."""
    from google.genai import types

    asked = []
    first = [
        core.ReplyStarted("r1", "m"),
        core.ReasoningPiece("hm", opaque, "m"),
        core.InvocationStarted(0, "a", "f"),
        core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}'),
        core.Usage(9, 4, 5, 2),
        core.ReplyEnded("invocations"),
    ]
    second = [
        core.ReplyStarted("r2", "m"),
        core.TextPiece("It is "),
        core.TextPiece("2."),
        core.Usage(1, 1),
        core.ReplyEnded("stop"),
    ]
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    declaration = {"name": "f", "description": "does", "parameters_json_schema": schema}

    async def use(client):
        chat = client.chats.create(
            model="m",
            config={
                "system_instruction": "s",
                "tools": [{"function_declarations": [declaration]}],
                "tool_config": {"function_calling_config": {"mode": "ANY"}},
                "temperature": 0.5,
                "automatic_function_calling": {"disable": True},
            },
        )

        async def send(message):
            if stream:
                return [chunk async for chunk in await chat.send_message_stream(message)]
            return [await chat.send_message(message)]

        given_calls = [call for chunk in await send("u") for call in chunk.function_calls or []]
        part = types.Part.from_function_response(name="f", response={"output": "2"})
        part.function_response.id = given_calls[0].id
        chunks = await send(part)
        return given_calls, "".join(chunk.text or "" for chunk in chunks), chunks[-1]

    calls, said, last = serve(iter([first, second]), asked, use)
    assert [(call.id, call.name, call.args) for call in calls] == [("a", "f", {"x": 1})]
    assert said == "It is 2."
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.usage_metadata.total_token_count == 2
    assert last.response_id == "r1"  # the encoder's own
    assert [request.stream for request in asked] == [stream, stream]
    request = asked[1]
    assert request.tools[0].schema == schema
    assert (request.tool_choice, request.controls.temperature) == ("required", 0.5)
    supervisor, user, thought, call, result = request.canisters
    assert (supervisor.text, user) == ("s", core.UserCanister("u"))
    assert thought.content == (core.ReasoningContent("hm", opaque, "m"),)
    assert call == core.InvocationCanister("a", "f", {"x": 1}, '{"x":1}')
    assert result == core.ResultCanister("2", invocation_id="a")


@OFFICIAL
def test_google_s_client_reads_failures():
    from google.genai.errors import APIError

    async def use(client):
        told = []
        for refused in (True, False):
            try:
                if refused:
                    await client.models.generate_content(model="m", contents="u")
                else:
                    async for _ in await client.models.generate_content_stream(model="m", contents="u"):
                        pass
            except APIError as error:
                told.append((error.code, error.status, error.message))
        return told

    refusal = core.ReplyFailed("caller", "context_length_exceeded", "too long")
    told = serve(iter([refusal, [core.ReplyStarted("r1", "m"), core.TextPiece("a"), FAILURE]]), [], use)
    assert told == [(400, "INVALID_ARGUMENT", "too long"), (503, "UNAVAILABLE", "too much")]

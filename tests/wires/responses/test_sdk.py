"""OpenAI's own client against the server half, over a socket."""

from __future__ import annotations

import asyncio

import pytest
from tests.tables import table

from callboard import core
from callboard.text.sse import encode_frame
from callboard.wires.responses import (
    StreamEncoder,
    decode_request,
    encode_error,
    encode_response,
)

START = core.ReplyStarted("x", "m")
WEATHER = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "d", "parameters": WEATHER, "strict": False},
    {"type": "namespace", "name": "ns", "description": "n", "tools": [{"type": "custom", "name": "exec"}]},
    {"type": "custom", "name": "apply_patch", "description": "d"},
]


def call(index, identifier, name, raw, arguments):
    half = len(raw) // 2
    return [
        core.InvocationStarted(index, identifier, name),
        core.ArgumentsPiece(index, raw[:half]),
        core.ArgumentsPiece(index, raw[half:]),
        core.InvocationEnded(index, identifier, name, arguments, raw),
    ]


CALLS = [
    *call(0, "c1", "get_weather", '{"location":"Paris"}', {"location": "Paris"}),
    *call(1, "c2", "apply_patch", '{"input":"*** Begin\\n\\"x\\""}', {"input": '*** Begin\n"x"'}),
    *call(2, "c3", "ns__exec", '{"input":"ls"}', {"input": "ls"}),
]


def replying(events, heartbeats=0):
    """A server that gives this reply to whatever it is asked, whole or streamed."""
    from aiohttp import web

    async def respond(http):
        body = await http.json()
        request = decode_request(body)
        if isinstance(events[0], int):
            status, error = encode_error(events[1])
            return web.json_response(error, status=status)
        named = {"identifier": "resp_1", "model": request.model, "created": 1, "request": request, "echo": body}
        if not request.stream:
            return web.json_response(encode_response(events, **named))
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(http)
        encoder = StreamEncoder(**named, compat_events="x-seed" in http.headers)
        for event in events:
            for frame in [*[each for _ in range(heartbeats) for each in encoder.heartbeat()], *encoder.feed(event)]:
                await answer.write(encode_frame(frame[1], frame[0]))
        for frame in encoder.finish():
            await answer.write(encode_frame(frame[1], frame[0]))
        return answer

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    return app


def ask(events, use, **fields):
    """What `use` makes of OpenAI's client that asks such a server."""
    from aiohttp import web
    from openai import AsyncOpenAI

    async def run():
        runner = web.AppRunner(replying(events, **fields))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0) as client:
                return await use(client)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


async def streamed(client, **fields):
    """The types of the events, and the response of the terminal one."""
    kinds, last = [], None
    async with client.responses.stream(model="m", input="u", tools=TOOLS, **fields) as stream:
        async for event in stream:
            kinds.append(event.type)
            if event.type in {"response.completed", "response.incomplete", "response.failed"}:
                last = event.response
    return kinds, last


def dump_response(response):
    return response.model_dump(exclude_none=True)


SAID = [
    START,
    core.ReasoningPiece("hm", "sig", "m"),
    core.TextPiece("Hel"),
    core.TextPiece("lo"),
    *CALLS,
    core.TextPiece(" again"),
    core.Usage(7, 5, 3, 2),
    core.ReplyEnded("invocations"),
]


@table("fields", [{}, {"extra_headers": {"x-seed": "1"}}], ids=["official", "with the seed's events"])
@table("heartbeats", [0, 1])
def test_a_stream_with_everything(fields, heartbeats):
    async def use(client):
        async with client.responses.stream(model="m", input="u", tools=TOOLS, **fields) as stream:
            events = [event async for event in stream]
            return events, await stream.get_final_response()

    events, final = ask(SAID, use, heartbeats=heartbeats)
    assert final.output_text == "Hello again"
    items = {item.type: item for item in final.output}
    assert items["reasoning"].summary[0].text == "hm"
    assert items["reasoning"].encrypted_content.endswith(".sig")
    assert (items["function_call"].call_id, items["function_call"].arguments) == ("c1", '{"location":"Paris"}')
    custom = [item for item in final.output if item.type == "custom_tool_call"]
    assert [(item.namespace, item.name, item.input) for item in custom] == [
        (None, "apply_patch", '*** Begin\n"x"'),
        ("ns", "exec", "ls"),
    ]
    assert (final.usage.input_tokens, final.usage.input_tokens_details.cached_tokens) == (7, 3)
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert snapshots[:2] == ["Hel", "Hello"]
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == '*** Begin\n"x"ls'
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))


def test_the_whole_is_the_stream_s():
    async def use(client):
        whole = await client.responses.create(model="m", input="u", tools=TOOLS)
        _, last = await streamed(client)
        return whole, last

    whole, last = ask(SAID, use)
    assert [dump_response(item) for item in whole.output] == [
        {name: value for name, value in dump_response(item).items() if name not in {"parsed", "parsed_arguments"}}
        for item in last.output
    ]
    assert whole.usage == last.usage
    assert whole.tools == last.tools


def test_the_raw_stream():
    async def use(client):
        stream = await client.responses.create(model="m", input="u", tools=TOOLS, stream=True)
        return [event.type async for event in stream]

    kinds = ask(SAID, use)
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 6


def test_a_refusal():
    async def use(client):
        async with client.responses.stream(model="m", input="u") as stream:
            return await stream.get_final_response()

    final = ask([START, core.RefusalPiece("I "), core.RefusalPiece("won't"), core.ReplyEnded("refusal")], use)
    assert final.output[0].content[0].refusal == "I won't"


def test_output_that_is_parsed():
    from pydantic import BaseModel

    class Answer(BaseModel):
        x: int

    async def use(client):
        async with client.responses.stream(model="m", input="u", text_format=Answer) as stream:
            return await stream.get_final_response()

    final = ask([START, core.TextPiece('{"x"'), core.TextPiece(": 1}"), core.ReplyEnded("stop")], use)
    assert final.output_parsed == Answer(x=1)


@table(
    ("events", "kind", "reason"),
    [
        ([START, core.TextPiece("Hel"), core.ReplyEnded("length")], "response.incomplete", "max_output_tokens"),
        ([START, *CALLS[:2], core.ReplyEnded("length")], "response.incomplete", "max_output_tokens"),
        ([START, core.ReplyEnded("filter")], "response.incomplete", "content_filter"),
        ([START, *CALLS[:2], core.ReplyFailed("provider", "server_error", "x")], "response.failed", None),
        ([START, core.TextPiece("Hel")], "response.failed", None),
        ([START, *CALLS[:2], core.ReplyEnded("stop")], "response.incomplete", "max_output_tokens"),
    ],
)
def test_every_end(events, kind, reason):
    kinds, last = ask(events, streamed)
    assert kinds[-1] == kind
    assert (last.incomplete_details and last.incomplete_details.reason) == reason
    if kind == "response.failed":
        assert last.error.message


def test_an_error_before_anything_was_said():
    from openai import RateLimitError

    async def use(client):
        with pytest.raises(RateLimitError) as caught:
            await client.responses.create(model="m", input="u")
        return caught.value

    error = ask([429, core.ReplyFailed("provider", "rate_limit_exceeded", "slow down")], use)
    assert (error.code, error.body["message"]) == ("rate_limit_exceeded", "slow down")

"""A fake llama.cpp that writes what is missing in a text."""

import asyncio
from contextlib import aclosing

from aiohttp import web
from aiohttp.test_utils import TestServer

from callboard import core
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers import HttpModel, Transport
from callboard.providers.local.fill import HOLE, MAX_TOKENS, FillModel

ASKED = core.Request(
    "local",
    (core.SupervisorCanister("Be kind."), core.UserCanister(f"def add(a, b):\n    {HOLE}\n")),
    controls=core.Controls(temperature=0.8, seed=1, stop=("\n",)),
)


def ask(answer, status=200, request=ASKED):
    """Return the bodies that the server got, and the events of the reply."""
    bodies = []

    async def infill(given):
        assert given.headers["Authorization"] == "Bearer key"
        bodies.append(await given.json())
        return web.json_response(answer, status=status)

    async def scenario():
        app = web.Application()
        app.router.add_post("/infill", infill)
        resolution = resolve("fake-model")
        async with TestServer(app) as server, aclosing(Transport(retries=0)) as transport:
            url = f"http://127.0.0.1:{server.port}/v1"
            model = HttpModel(resolution, make_plan(resolution), transport, base_url=url, api_key="key")
            return [each async for each in core.reply_events(FillModel(model), request)]

    return bodies, asyncio.run(scenario())


def test_the_text_around_the_hole_is_sent():
    bodies, events = ask({"content": "return a + b", "tokens_evaluated": 12, "tokens_predicted": 5, "stop": True})
    sent = {"input_prefix": "def add(a, b):\n    ", "input_suffix": "\n", "n_predict": MAX_TOKENS}
    assert bodies == [{**sent, "stop": ["\n"], "temperature": 0.8, "seed": 1}]
    assert events[1:] == [core.TextPiece("return a + b"), core.Usage(12, 5), core.ReplyEnded("stop")]


def test_an_empty_line_is_a_reply():
    assert core.TextPiece("\n") in ask({"content": ""})[1]


def test_a_model_without_this_form_fails():
    error = {"error": {"code": 501, "message": "Infill is not supported by this model"}}
    for given, why in ((error, "Infill is not supported"), ({"other": 1}, "no text"), ({"content": 1}, "content")):
        (failed,) = ask(given, 501)[1]
        assert isinstance(failed, core.ReplyFailed)
        assert "cannot write what is missing" in failed.message
        assert why in failed.message


def test_a_reply_has_a_span(telemetry):
    told = telemetry()
    ask({"content": "return a + b", "tokens_evaluated": 12, "tokens_predicted": 5})
    (span,) = told.spans
    assert (span.name, span.attributes["gen_ai.usage.output_tokens"]) == ("chat fake-model", 5)

"""What stands in the log, when everybody who has a say in it writes what they must not."""

from __future__ import annotations

import ast
import io
import logging
from itertools import product
from pathlib import Path

import msgspec
import pytest
from tests.servers.gateway.fronts import call_chunk, chunk
from tests.tables import table

from callboard.core import ReplyStarted, TextPiece
from callboard.servers import gateway
from callboard.servers.gateway import GatewayLimits
from callboard.servers.gateway.auth import digest
from callboard.telemetry.logs import sanitize_records
from callboard.testing import FakeBackend, Raw, StatusReply

FORGED = "FORGED 2026-01-01 INFO admin logged in"
HOSTILE = f"ok\x1b[2J\n{FORGED}\r\n{FORGED}\x0b{FORGED}\x85{FORGED}\u2028{FORGED}\u2029\u202e\u2066\x9b31m\x00\x7f\u200b\ud7ff"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FLAT = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
CALLED = [
    call_chunk(HOSTILE, identifier=HOSTILE, arguments="{}"),
    call_chunk(HOSTILE, name=HOSTILE),
    chunk("tool_calls"),
    "[DONE]",
]
ERROR = msgspec.json.encode(
    {"error": {"message": f"tools are not supported {HOSTILE}", "type": HOSTILE, "code": HOSTILE}}
)
REPLIES = {"calls": Raw(CALLED), "refuses tools": StatusReply(400, ERROR), "fails": StatusReply(500, ERROR)}
HISTORY = [
    {"type": "function_call", "call_id": HOSTILE, "name": HOSTILE, "arguments": "{}"},
    {"type": "function_call_output", "call_id": HOSTILE, "output": HOSTILE},
]
BODIES = {
    "responses": {"model": HOSTILE, "input": HISTORY, "tools": [FLAT]},
    "/responses/compact": {"model": HOSTILE, "input": HISTORY},
    "chat": {"model": HOSTILE, "messages": [{"role": "user", "content": HOSTILE}], "tools": [TOOL]},
    "messages": {"model": HOSTILE, "max_tokens": 9, "messages": [{"role": "user", "content": HOSTILE}]},
    "/messages/count_tokens": {"model": HOSTILE, "messages": [{"role": "user", "content": HOSTILE}]},
    "gemini": {
        "model": HOSTILE,
        "contents": [{"parts": [{"text": HOSTILE}]}],
        "tools": [{"functionDeclarations": [{"name": HOSTILE}]}],
    },
}


@pytest.fixture
def written():
    """What a handler wrote that knows nothing of us; each record begins with RECORD."""
    there = io.StringIO()
    handler = logging.StreamHandler(there)
    handler.setFormatter(logging.Formatter("RECORD %(levelname)s %(message)s"))
    log = logging.getLogger("callboard.gateway")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield there
    log.setLevel(before)
    log.removeHandler(handler)


def records(written):
    """The lines, as a file's reader or a terminal would see them."""
    text = written.getvalue()
    lines = text.split("\n")
    assert lines.pop() == ""
    assert all(line.isprintable() for line in lines), [line for line in lines if not line.isprintable()]
    assert all(line.startswith(("RECORD ", "    ")) for line in lines), lines
    return lines


@pytest.mark.parametrize("reply", REPLIES)
async def test_nobody_writes_lines_of_their_own_into_the_log(serving, behind, written, reply):
    # A name that the operator mapped gets further than the door.
    mapped = {"model_map": {HOSTILE: HOSTILE}, "models": ("*",)}
    key = {"authorization": "Bearer \x85\xa0\x9b31m-a-key-of-a-client"}
    async with (
        FakeBackend(lambda _: REPLIES[reply], models=[HOSTILE]) as backend,
        serving(behind(backend, **mapped), failure_threshold=1000) as served,
    ):
        for path, stream in product(BODIES, (True, False)):
            await served.post(path, {**BODIES[path], "stream": stream}, key)
        await served.get("/v1/models", **key)
        await served.get("/v1/responses/%0AFORGED%1B")
        await served.request("POST", served.url + "/responses/%0AFORGED/cancel")
    records(written)


async def test_nobody_writes_lines_of_their_own_over_a_websocket(serving, behind, written):
    async with (
        FakeBackend([Raw(CALLED)]) as backend,
        serving(behind(backend, model_map={HOSTILE: "m"})) as served,
        served.client.ws_connect(served.url + "/responses") as socket,
    ):
        await socket.send_bytes(msgspec.json.encode({"type": "response.create", **BODIES["responses"]}))
        while msgspec.json.decode((await socket.receive()).data)["type"] not in {"response.completed", "error"}:
            pass
    assert any("Tool call started" in line for line in records(written))


async def test_the_name_of_a_model_is_told_with_its_escapes(serving, behind, written):
    async with FakeBackend(["Hello"]) as backend, serving(behind(backend, model_map={HOSTILE: "m"})) as served:
        await served.post("chat", {**BODIES["chat"], "tools": []})
    (told,) = [line for line in records(written) if line.startswith("RECORD INFO chat ")]
    assert r"ok\x1b[2J\nFORGED" in told


class Broken:
    def __init__(self, model):
        self.plan, self.resolution = model.plan, model.resolution

    async def batches(self, request, **_):
        yield [ReplyStarted(), TextPiece("Hel")]
        raise KeyError(HOSTILE) from ValueError(HOSTILE)


async def test_a_traceback_cannot_be_taken_for_records(serving, written):
    async with FakeBackend([]) as backend, serving(backend) as served:
        bad = served.gateway.backends[0]
        bad._models["m", "", b"{}"] = Broken(bad.model("m"))
        await served.post("chat", {**BODIES["chat"], "model": "m"})
    lines = records(written)
    assert "RECORD ERROR a request failed in the gateway" in lines
    assert any("ValueError" in line for line in lines)


@table(
    ("message", "arguments"),
    [
        (HOSTILE, ()),
        ("%s", (HOSTILE,)),
        ("%r", (HOSTILE,)),
        ("%(name)s", ({"name": HOSTILE},)),
        ("%s", (ValueError(HOSTILE),)),
        ("%s", ([HOSTILE],)),
        ("%d of %.3f for %s", (3, 0.5, HOSTILE)),
    ],
)
def test_every_way_to_log_gives_one_line(message, arguments):
    there = io.StringIO()
    log = logging.Logger("one", logging.DEBUG)  # noqa: LOG001 - of this test alone
    log.addHandler(logging.StreamHandler(there))
    sanitize_records(log)
    sanitize_records(log)
    log.info(message, *arguments)
    line, end = there.getvalue().split("\n")
    assert (line.isprintable(), end) == (True, "")


def test_a_handler_can_be_guarded_for_what_others_log():
    there = io.StringIO()
    handler = logging.StreamHandler(there)
    sanitize_records(handler)
    log = logging.Logger("another", logging.DEBUG)  # noqa: LOG001 - of this test alone
    log.addHandler(handler)
    log.warning("%s - %d", HOSTILE, 3, stack_info=True)
    assert all(line.isprintable() for line in there.getvalue().split("\n"))


def test_the_gateway_has_one_log():
    """The guard is on one logger, and loggers do not inherit it."""
    named = set()
    for path in Path(gateway.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
                named.add((path.name, ast.unparse(node)))
    others = {call for name, call in named if name != "server.py"}  # it sets up the handlers of the process
    assert others == {"logging.getLogger('callboard.gateway')"}


async def test_a_refused_request_tells_no_key_and_no_line(serving, written):
    keys = {"ann": digest("sk-ann-12345678")}
    async with FakeBackend([]) as backend, serving(backend, keys=keys, limits=GatewayLimits(body=100)) as served:
        for token in ("\x85FORGED-and-long-enough", "short\xad"):
            await served.post("responses", BODIES["responses"], {"x-api-key": token})
    records(written)


@pytest.mark.parametrize("front", ["chat", "responses", "messages"])
@pytest.mark.parametrize("arguments", ['{"token": "hunter2"', '{"token": hunter2}', '["hunter2"]'])
async def test_malformed_arguments_are_logged_once_without_what_they_hold(serving, behind, written, front, arguments):
    call = call_chunk(identifier="call_1", name="get_weather", arguments=arguments)
    said = Raw([call, chunk("tool_calls"), "[DONE]"])
    tools = {
        "chat": {"tools": [TOOL]},
        "responses": {"tools": [FLAT], "input": "Hi"},
        "messages": {"tools": [{"name": "get_weather", "input_schema": {"type": "object"}}]},
    }
    async with FakeBackend([said]) as backend, serving(behind(backend)) as served:
        await served.post(front, {**BODIES[front], **tools[front], "model": "m", "stream": True})
    lines = records(written)
    (told,) = [line for line in lines if line.startswith("RECORD WARNING")]
    assert "a call of get_weather are not a JSON object" in told
    assert not any("hunter2" in line for line in lines)

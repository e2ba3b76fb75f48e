"""What backends were seen to do, on every wire: from bytes to canisters, however the bytes are cut and framed.

A row of `vectors/conformance.json` is one reply: what it says (texts, and calls as a name and its arguments, null where
they are no object or did not become whole) and how it ends (the reason, or `failed` and a code). Under `on` it has, for
each wire, the frames and the whole body in which a backend sends it, with `says` and `ends` of its own where the wire
makes them differ. A sentence in place of frames, a body or a wire says why there is none. `raw` is sent as it is.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.tables import table

from callboard import core
from callboard.core import identify_in_turn, pipe
from callboard.dialects import get_dialect
from callboard.modes import Watcher
from callboard.text.sse import SSEDecoder, encode_frame
from callboard.wires import WIRES, DecodeContext

SCHEMA = {"type": "object", "properties": {"x": {}}}
TOOLS = (core.ToolDeclaration("f", "", SCHEMA), core.ToolDeclaration("g", "", SCHEMA))
ROWS = json.loads((Path(__file__).parents[1] / "vectors" / "conformance.json").read_text("utf-8"))


def framed(reply):
    if "raw" in reply["frames"]:
        return reply["frames"]["raw"].encode()
    names = [frame.get("type", "") if isinstance(frame, dict) else "" for frame in reply["frames"]]
    datas = [frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False) for frame in reply["frames"]]
    return b"".join(encode_frame(data.encode(), name.encode()) for name, data in zip(names, datas, strict=True))


FRAMINGS = {
    "line feeds": lambda sent: sent,
    "carriage returns and line feeds": lambda sent: sent.replace(b"\n", b"\r\n"),
    "carriage returns": lambda sent: sent.replace(b"\n", b"\r"),
    "comments": lambda sent: b": OPENROUTER PROCESSING\n\n" + sent.replace(b"data: ", b":\nretry: 9\ndata:"),
    "no blank line at the end": lambda sent: sent.removesuffix(b"\n"),
    "no line end at the end": lambda sent: sent.rstrip(b"\n"),
    "a byte order mark": lambda sent: b"\xef\xbb\xbf" + sent,
}


def context():
    declared = frozenset(tool.name for tool in TOOLS)
    return DecodeContext(identify=identify_in_turn(0), declared=declared, origin="m")


def watcher(row):
    return Watcher(get_dialect(row.get("dialect", "auto")), TOOLS, identify_in_turn(0, "t"))


class Data:
    """Frames to their data."""

    def feed(self, frame, /):
        return [frame.data] if frame.data else []

    def finish(self, why="stop", /):
        return []


def streamed(row, wire, chunks):
    stages = pipe(SSEDecoder(), Data(), WIRES[wire].stream_decoder(context()), watcher(row))
    return [event for chunk in chunks for event in stages.feed(chunk)] + stages.finish()


def decoded(row, wire, body):
    seen = watcher(row)
    return [found for event in WIRES[wire].decode_response(body, context()) for found in seen.feed(event)]


def check(row, reply, events):
    """What a user would notice."""
    fold = core.Fold()
    canisters = [canister for event in events for canister in fold.feed(event)]
    said = [[c.name, c.arguments] if isinstance(c, core.InvocationCanister) else c.text for c in canisters]
    assert said == reply.get("says", row["says"])
    terminals = [event for event in events if isinstance(event, core.ReplyEnded | core.ReplyFailed)]
    assert terminals == events[-1:]
    last = terminals[0]
    ends = last.reason if isinstance(last, core.ReplyEnded) else f"failed {last.code}"
    assert ends == (reply.get("ends") or row["ends"])
    assert sum(isinstance(event, core.ReplyStarted) for event in events) <= 1
    assert isinstance(events[0], core.ReplyStarted | core.ReplyFailed)
    identifiers = [canister.identifier for canister in canisters if isinstance(canister, core.InvocationCanister)]
    assert all(identifiers)
    assert len(set(identifiers)) == len(identifiers)
    if "identifiers" in row:
        assert identifiers == row["identifiers"]
    if "usage" in row:
        assert [event for event in events if isinstance(event, core.Usage)] == msgspec.convert(
            row["usage"], list[core.Usage]
        )


CASES = [
    pytest.param(row, wire, row["on"][wire], id=f"{wire}: {row['name']}")
    for row in ROWS
    for wire in WIRES
    if not isinstance(row["on"][wire], str)
]
STREAMED = [case for case in CASES if not isinstance(case.values[2]["frames"], str)]
WHOLE = [case for case in CASES if not isinstance(case.values[2]["body"], str)]


def test_every_row_has_every_wire():
    assert all(set(row["on"]) == set(WIRES) for row in ROWS)
    assert len({row["name"] for row in ROWS}) == len(ROWS)


@table(("row", "wire", "reply"), STREAMED)
def test_stream(row, wire, reply):
    for framing in FRAMINGS.values():
        check(row, reply, streamed(row, wire, [framing(framed(reply))]))


@table(("row", "wire", "reply"), STREAMED)
def test_byte_by_byte(row, wire, reply):
    for framing in ("line feeds", "carriage returns and line feeds"):
        sent = FRAMINGS[framing](framed(reply))
        check(row, reply, streamed(row, wire, [sent[at : at + 1] for at in range(len(sent))]))


@table(("row", "wire", "reply"), WHOLE)
def test_whole_reply(row, wire, reply):
    value = reply["body"]
    body = value["raw"] if "raw" in value else json.dumps(value, ensure_ascii=False)
    check(row, reply, decoded(row, wire, body))
    check(row, reply, decoded(row, wire, body.encode()))
    if "raw" not in value:
        check(row, reply, decoded(row, wire, value))


ASKED = {
    "chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "tools": [
            {"type": "web_search"},
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "function", "function": {"name": "g", "parameters": SCHEMA}},
            {"type": "from_the_future"},
        ],
    },
    "responses": {
        "model": "m",
        "input": "q",
        "tools": [
            {"type": "web_search"},
            {"type": "function", "name": "f", "parameters": SCHEMA},
            {"type": "mcp", "server_label": "s", "server_url": "https://example.org"},
            {"type": "function", "name": "g", "parameters": SCHEMA},
            {"type": "from_the_future"},
        ],
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "q"}],
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"name": "f", "input_schema": SCHEMA},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "custom", "name": "g", "input_schema": SCHEMA},
            {"type": "from_the_future", "name": "z"},
        ],
    },
    "gemini": {
        "model": "models/m",
        "contents": [{"role": "user", "parts": [{"text": "q"}]}],
        "tools": [
            {"googleSearch": {}},
            {"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]},
            {"codeExecution": {}},
            {"functionDeclarations": [{"name": "g", "parametersJsonSchema": SCHEMA}]},
            {"fromTheFuture": {}},
        ],
    },
}
"""Requests with tools that are no functions."""


@table("wire", WIRES)
def test_tools_that_are_no_functions_do_not_hide_the_functions(wire):
    request = WIRES[wire].decode_request(ASKED[wire])
    assert [(tool.name, tool.schema) for tool in request.tools] == [("f", SCHEMA), ("g", SCHEMA)]
    assert all(hosted.wire == wire for hosted in request.hosted)

"""Replay the rows of `tests/vectors/WIRE/*.json` through a wire's stream decoder.

A row has a `name`, the `payloads` that a backend sends (values, or texts that are no JSON), and the `events` that they
mean; besides `names` and `declared` as of DecodeContext, and `why` the stream ended. `test_replay` holds every row of
every wire to the same laws; a new wire is one line in WIRES and a folder of vectors.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec

from callboard import core
from callboard.text.sse import SSEDecoder, encode_frame
from callboard.wires import WIRES, DecodeContext

VECTORS = Path(__file__).parents[1] / "vectors"
LF, CRLF = b"\n", b"\r\n"
FRAMINGS = {
    "chat": [(b"", b"", LF)],
    "responses": [(b"", b"", LF)],
    "messages": [(b": a comment\n\n", b"x", LF), (b": a comment\n\n", b"x", CRLF)],
    "gemini": [(b"", b"", CRLF)],
}
"""How a wire's frames come: what is before them, the name of each, and the end of a line."""


@cache
def rows(wire):
    """By their names, such as `calls: two at once`."""
    return {
        f"{path.stem}: {row['name']}": row
        for path in sorted((VECTORS / wire).glob("*.json"))
        for row in json.loads(path.read_text("utf-8"))
    }


def minted(index, _name):
    return f"minted_{index}"


def context(row, **fields):
    declared = row.get("declared")
    declared = None if declared is None else frozenset(declared)
    return DecodeContext(identify=minted, names=row.get("names", {}), declared=declared, **fields)


def decoder(wire, row):
    return WIRES[wire].stream_decoder(context(row))


def payloads(row):
    return [p if isinstance(p, str) else json.dumps(p, ensure_ascii=False) for p in row["payloads"]]


def expected(row):
    return msgspec.convert(row["events"], list[core.Event])


def run(stage, items, why="stop"):
    return [event for item in items for event in stage.feed(item)] + stage.finish(why)


def run_bytes(stage, chunks, why="stop"):
    framing = SSEDecoder()
    frames = [frame for chunk in chunks for frame in framing.feed(chunk)] + framing.finish(why)
    return run(stage, [frame.data for frame in frames], why)


def stream(wire, row, framing=0):
    before, name, line_end = FRAMINGS[wire][framing]
    sent = before + b"".join(encode_frame(payload.encode(), name) for payload in payloads(row))
    return sent.replace(LF, line_end)


def without_prose(events):
    """Failures without what only a person reads."""
    return [
        msgspec.structs.replace(event, excerpt="", message="..." if event.code == "malformed" else event.message)
        if isinstance(event, core.ReplyFailed)
        else event
        for event in events
    ]


def terminals(events):
    return [event for event in events if isinstance(event, core.ReplyEnded | core.ReplyFailed)]


def check_cut(wire, row, events):
    """The laws of a reply that was cut: one end, one start, and no call or text that the whole reply lacks."""
    closing = core.InvocationEnded if wire == "gemini" else core.InvocationEnded | core.InvocationIncomplete
    whole = [event for event in expected(row) if isinstance(event, closing)]
    raws = {(event.identifier if wire != "responses" else "", event.raw) for event in whole}
    text = "".join(event.text for event in expected(row) if isinstance(event, core.TextPiece))
    assert terminals(events) == events[-1:] != []
    assert [type(event) is core.ReplyStarted for event in events][1:].count(True) == 0
    ended = [event for event in events if isinstance(event, core.InvocationEnded)]
    assert {(event.identifier if wire != "responses" else "", event.raw) for event in ended} <= raws
    assert text.startswith("".join(event.text for event in events if isinstance(event, core.TextPiece)))


def broken(value, wrong):
    """The value with each of its places, at any depth, replaced or left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {**value, key: wrong}
            yield {name: other for name, other in value.items() if name != key}
            yield from ({**value, key: each} for each in broken(inner, wrong))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield [*value[:place], wrong, *value[place + 1 :]]
            yield from ([*value[:place], each, *value[place + 1 :]] for each in broken(inner, wrong))

"""Replies of any kind, and what each wire makes of them, streamed and whole."""

from __future__ import annotations

import base64
import json

import msgspec
from hypothesis import strategies as st

from callboard import core
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires import WIRES, DecodeContext

CONTEXT = DecodeContext(identify=lambda index, _name: f"minted_{index}")
FIELDS = {core.TextPiece: "text", core.ReasoningPiece: "text", core.RefusalPiece: "text", core.ArgumentsPiece: "json"}
NAMED = {"identifier": "r1", "model": "m", "created": 1}
TOOLS = {
    "f": core.ToolDeclaration("f", "does", {"type": "object", "properties": {"x": {"type": "integer"}}}),
    "ns__g": core.ToolDeclaration("ns__g", "", {"type": "object"}, namespace="ns"),
    "apply_patch": core.ToolDeclaration("apply_patch", kind="custom"),
    "ns__exec": core.ToolDeclaration("ns__exec", kind="custom", namespace="ns"),
}
OPTIONS = {"responses": {"request": core.Request("m", (core.UserCanister("u"),), tuple(TOOLS.values()))}}


def encoder(wire, **options):
    return core.pipe(
        WIRES[wire].stream_encoder(**(NAMED | OPTIONS.get(wire, {}) | options)),
        SSEEncoder(),
    )


def encode(wire, events, why="stop", **options):
    stage = encoder(wire, **options)
    return [frame for event in events for frame in stage.feed(event)] + stage.finish(why)


def read(frames):
    """The names and data of frames, each of which has to be one whole frame; `[DONE]` is left out."""
    found = []
    for frame in frames:
        (one,) = SSEDecoder().feed(frame)
        if one.data != "[DONE]":
            found.append((one.event, json.loads(one.data)))
    return found


def decode(wire, frames):
    stage = WIRES[wire].stream_decoder(CONTEXT)
    datas = [frame.data for frame in SSEDecoder().feed(b"".join(frames))]
    return [event for data in datas for event in stage.feed(data)] + stage.finish()


def whole(wire, events, **options):
    """The body of the reply that is not streamed."""
    return WIRES[wire].encode_response(events, **(NAMED | OPTIONS.get(wire, {}) | options))


def decode_whole(wire, body):
    return WIRES[wire].decode_response(body, CONTEXT)


def joined(events):
    """The events with neighbouring pieces of one kind joined; a signature ends a piece of reasoning."""
    found = []
    for event in events:
        last = found[-1] if found else None
        field = FIELDS.get(type(event))
        closed = getattr(last, "opaque", "") or getattr(event, "opaque", "").startswith("redacted:")
        if (
            field
            and type(last) is type(event)
            and getattr(last, "index", 0) == getattr(event, "index", 0)
            and not closed
        ):
            found[-1] = msgspec.structs.replace(event, **{field: getattr(last, field) + getattr(event, field)})
        else:
            found.append(event)
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
VALUES = TEXT | st.integers(-9, 9) | st.none() | st.lists(TEXT, max_size=2)
ARGUMENTS = st.dictionaries(TEXT, VALUES, max_size=2)
SIGNATURES = st.binary(min_size=1, max_size=4).map(lambda data: base64.b64encode(data).decode())
SAID = st.builds(core.TextPiece, TEXT)
REFUSED = st.builds(core.RefusalPiece, TEXT)
THOUGHT = st.builds(core.ReasoningPiece, TEXT, origin=st.just("m"))
SPEECH = {
    "chat": SAID | THOUGHT | REFUSED,
    "messages": SAID
    | THOUGHT
    | st.builds(core.ReasoningPiece, TEXT | st.just(""), st.just("c2ln"), st.just("m"))
    | st.just(core.ReasoningPiece("", "redacted:ZGF0YQ==", "m")),
    "responses": SAID | THOUGHT | st.builds(core.ReasoningPiece, st.just(""), TEXT, st.just("m")) | REFUSED,
}
ENDS = {"chat": st.just(False), "messages": st.booleans(), "responses": st.just(True)}
"""Whether a call is told as ended when its arguments are whole, or at the end of the reply."""


@st.composite
def replies(draw, wire):
    """What a reply may be: pieces of all kinds in any order, calls interleaved, an end that fits."""
    if wire == "gemini":
        return draw(gemini_replies())
    names = draw(st.lists(st.sampled_from(list(TOOLS) if wire == "responses" else ["f", "get_weather"]), max_size=3))
    objects = st.dictionaries(TEXT, VALUES, min_size=wire == "messages", max_size=2)
    is_custom = [wire == "responses" and TOOLS[name].kind == "custom" for name in names]
    values = [{"input": draw(TEXT)} if custom else draw(objects) for custom in is_custom]
    raws = [json.dumps(value) if wire == "chat" else msgspec.json.encode(value).decode() for value in values]
    ended = [core.InvocationEnded(i, f"c{i}", names[i], values[i], raw) for i, raw in enumerate(raws)]
    events, at, started = [], [0] * len(raws), 0
    while True:
        waiting = [index for index, raw in enumerate(raws) if at[index] < len(raw)]
        if draw(st.integers(0, 3)) == 0 or not waiting:
            events.append(draw(SPEECH[wire]))
            if not waiting:
                break
        index = draw(st.sampled_from(waiting))
        while started <= index:
            events.append(core.InvocationStarted(started, f"c{started}", names[started]))
            started += 1
        step = draw(st.integers(1, 12))
        events.append(core.ArgumentsPiece(index, raws[index][at[index] : at[index] + step]))
        at[index] += step
        if at[index] >= len(raws[index]) and draw(ENDS[wire]):
            events.append(ended[index])
    events += [end for end in ended if end not in events]
    if wire == "messages" or draw(st.booleans()):
        events.append(core.Usage(7, 5, draw(st.integers(0, 7)), draw(st.integers(0, 5))))
    refused = any(isinstance(event, core.RefusalPiece) for event in events)
    natural = "invocations" if raws else "refusal" if refused else "stop"
    endings = [natural, "length", "refusal" if wire == "messages" else "filter"]
    return [core.ReplyStarted("r1", "m"), *events, core.ReplyEnded(draw(st.sampled_from(endings)))]


@st.composite
def gemini_replies(draw):
    """Pieces, signatures and whole calls in any order."""
    events, count = [], 0
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "signature", "call"]), max_size=6)):
        match kind:
            case "text":
                events.append(draw(SAID))
            case "thought":
                events.append(core.ReasoningPiece(draw(TEXT), draw(st.just("") | SIGNATURES), "m"))
            case "signature":
                events += [core.ReasoningPiece("", f">{draw(SIGNATURES)}", "m"), draw(SAID)]
            case "call":
                arguments = draw(ARGUMENTS)
                raw = msgspec.json.encode(arguments).decode()
                call = count, f"c{count}", draw(st.sampled_from(["f", "get_weather"]))
                events += draw(st.sampled_from([[], [core.ReasoningPiece("", ">QQ==", "m")]]))
                events += [core.InvocationStarted(*call), core.ArgumentsPiece(count, raw)]
                events.append(core.InvocationEnded(*call, arguments, raw))
                count += 1
    if draw(st.booleans()):
        events.append(core.Usage(7, 5, draw(st.integers(0, 7)), draw(st.integers(0, 5))))
    endings = ["invocations" if count else "stop", "length", "filter"]
    return [core.ReplyStarted("r1", "m"), *events, core.ReplyEnded(draw(st.sampled_from(endings)))]

"""Names on the wire are safe, distinct and stable."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import identify_in_turn, pipe
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires import WIRES
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.common.tool_calls import CalledTools
from callboard.wires.common.tool_declarations import ToolNames


def naming(*tools, history=(), choice="auto"):
    canisters = [core.InvocationCanister("a", name, {}) for name in history]
    return ToolNames(core.Request("m", canisters, tuple(map(core.ToolDeclaration, tools)), choice))


def test_safe_names_stay():
    names = naming("get_weather", "a-b", "x" * 64)
    assert [names.on_wire(name) for name in ("get_weather", "a-b", "x" * 64)] == ["get_weather", "a-b", "x" * 64]
    assert names.reverse == {}


def test_unsafe_names_are_replaced_and_come_back():
    names = naming("io.read", "wetter/für")
    assert names.reverse == {"io_read": "io.read", "wetter_f_r": "wetter/für"}


def test_collisions_and_overflow_get_a_hash():
    names = naming("a.b", "a_b", "a/b", "x" * 65, "")
    assert names.on_wire("a_b") == "a_b"
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", names.on_wire("a.b"))
    assert re.fullmatch(r"x{55}_[0-9a-f]{8}", names.on_wire("x" * 65))
    assert re.fullmatch(r"_[0-9a-f]{8}", names.on_wire(""))


def test_history_and_choice_never_move_a_tool():
    names = naming("a.b", history=["a_b", "c.d"], choice=core.NamedTool("a.b"))
    assert names.on_wire("a.b") == naming("a.b").on_wire("a.b") == "a_b"
    assert names.on_wire("a_b") != "a_b"
    assert names.reverse[names.on_wire("c.d")] == "c.d"


@given(st.lists(st.text(), max_size=8), st.lists(st.text(), max_size=8))
def test_every_name_has_a_safe_one_of_its_own(tools, history):
    names = naming(*tools, history=history)
    wires = {name: names.on_wire(name) for name in [*tools, *history]}
    assert len(set(wires.values())) == len(wires)
    for name, wire in wires.items():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire)
        assert names.reverse.get(wire, wire) == name


# As it is called, as it is on the wire of what is declared, and what it is taken for.
LEAKED = {
    "the namespace of gpt-oss": ("functions.f", "f", True),
    "and the number of Kimi": ("functions.f:12", "f", True),
    "a name that had to be made safe": ("functions.io_read:0", "io.read", True),
    "what is declared like that": ("functions.g", "functions.g", True),
    "what is not declared": ("functions.h:0", "functions.h:0", False),
    "no number": ("functions.f:x", "functions.f:x", False),
    "no namespace": ("f:0", "f:0", False),
    "nothing in it": ("functions.", "functions.", False),
}
NAMES = {"io_read": "io.read"}
DECLARED = frozenset({"f", "io.read", "functions.g"})


@table("whole", [False, True], ids=["streamed", "whole"])
@table(("called", "name", "known"), LEAKED.values(), ids=LEAKED)
@table("wire", WIRES)
def test_a_leaked_namespace_is_taken_off(wire, called, name, known, whole):
    events = [
        core.ReplyStarted("r", "m"),
        core.InvocationStarted(0, "c", called),
        core.InvocationEnded(0, "c", called, {"x": 1}, '{"x":1}'),
        core.ReplyEnded("invocations"),
    ]
    reading = {"names": NAMES, "identify": identify_in_turn(0), "declared": DECLARED}
    telling = {"identifier": "r", "model": "m", "created": 0}
    if whole:
        told = WIRES[wire].decode_response(WIRES[wire].encode_response(events, **telling), DecodeContext(**reading))
    else:
        encoder = pipe(WIRES[wire].stream_encoder(**telling), SSEEncoder())
        decoder = WIRES[wire].stream_decoder(DecodeContext(**reading))
        frames = SSEDecoder().feed(b"".join(frame for event in events for frame in encoder.feed(event)))
        told = [event for frame in frames for event in decoder.feed(frame.data)] + decoder.finish()
    begun = [event for event in told if isinstance(event, core.InvocationStarted)]
    ended = [event for event in told if isinstance(event, core.InvocationEnded)]
    assert [(event.name, event.known) for event in begun] == [(name, known)]
    assert [(event.name, event.arguments) for event in ended] == [(name, {"x": 1})]
    repaired = [core.Note("repaired", f"{name}, called as {called}")] if called != name else []
    assert [event for event in told if isinstance(event, core.Note)] == repaired
    assert isinstance(told[0], core.ReplyStarted)


def test_nothing_is_repaired_where_every_name_is_known():
    tools = CalledTools(DecodeContext(identify=identify_in_turn(0)))
    assert tools.declared_name("functions.f:0") == "functions.f:0"


@table("name", ["3d_model", "-flag", "9", "-"])
def test_a_name_for_gemini_begins_with_a_letter_or_an_underscore_and_comes_back(name):
    tools = (core.ToolDeclaration(name), core.ToolDeclaration(f"_{name}"))
    low = WIRES["gemini"].encode_request(core.Request("m", (), tools))
    sent = [each["name"] for each in low.body["tools"][0]["functionDeclarations"]]
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}", each) for each in sent)
    assert [low.names.get(each, each) for each in sent] == [name, f"_{name}"]
    assert WIRES["chat"].encode_request(core.Request("m", (), tools)).names == {}

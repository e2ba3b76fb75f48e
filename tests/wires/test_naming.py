"""Names on the wire are safe, distinct and stable."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from callboard.core import InvocationCanister, NamedTool, Request, ToolDeclaration
from callboard.wires.naming import Naming


def naming(*tools, history=(), choice="auto"):
    canisters = [InvocationCanister("a", name, {}) for name in history]
    return Naming(Request("m", canisters, tuple(map(ToolDeclaration, tools)), choice))


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
    names = naming("a.b", history=["a_b", "c.d"], choice=NamedTool("a.b"))
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

"""A client's tool whose schema was made strict is called without the nulls that this asked for."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import reply_events
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers import HttpModel, Transport
from callboard.providers.restore_arguments import ArgumentRestorer
from callboard.testing import FakeBackend
from callboard.wires import WIRES
from callboard.wires.common.encoded_request import EncodedRequest

INNER = {"type": "object", "properties": {"deep": {"type": "integer"}}, "additionalProperties": False}
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "inner": INNER},
    "required": ["query"],
    "additionalProperties": False,
}
NULLS = {"query": "x", "limit": None, "inner": {"deep": None}}
BARE = {"query": "x", "inner": {}}
MAKING = {"chat", "responses"}
"""The wires on which nothing may be left out."""


def call(index, name, arguments, pieces=3):
    raw = msgspec.json.encode(arguments).decode()
    size = len(raw) // pieces + 1
    return [
        core.InvocationStarted(index, f"call_{index}", name),
        *[core.ArgumentsPiece(index, raw[at : at + size]) for at in range(0, len(raw), size)],
        core.InvocationEnded(index, f"call_{index}", name, arguments, raw),
    ]


def replied(wire, reply, tools, *, stream):
    async def scenario():
        resolution = resolve("m", {"wire": wire})
        async with FakeBackend([reply]) as backend:
            root = backend.url.removesuffix("/v1") if wire == "messages" else backend.url
            model = HttpModel(resolution, make_plan(resolution, "native"), Transport(), base_url=root)
            try:
                return [
                    event
                    async for event in reply_events(
                        model, core.Request("m", (core.UserCanister("u"),), tools, stream=stream)
                    )
                ]
            finally:
                await model.aclose()

    return asyncio.run(scenario())


def calls(events):
    """The arguments of each call: as JSON in pieces, as an object, and as they were written."""
    ended = [event for event in events if isinstance(event, core.InvocationEnded)]
    return [
        (
            each.name,
            msgspec.json.decode(
                "".join([piece.json for piece in events if isinstance(piece, core.ArgumentsPiece) and piece.index == each.index])
                or each.raw
            ),
            each.arguments,
            msgspec.json.decode(each.raw),
        )
        for each in ended
    ]  # fmt: skip


@table("wire", WIRES)
@table("stream", [True, False])
def test_a_tool_that_was_made_strict_is_called_as_it_was_given(wire, stream):
    tools = tuple(
        core.ToolDeclaration(name, "", SCHEMA, strict=strict) for name, strict in [("made", True), ("loose", None)]
    )
    reply = [core.ReplyStarted(), *call(0, "made", NULLS), *call(1, "loose", NULLS), core.ReplyEnded("invocations")]
    events = replied(wire, reply, tools, stream=stream)
    made = BARE if wire in MAKING else NULLS
    assert calls(events) == [("made", made, made, made), ("loose", NULLS, NULLS, NULLS)]
    assert isinstance(events[-1], core.ReplyEnded)


@table("wire", sorted(MAKING))
def test_a_schema_that_is_strict_already_keeps_its_nulls(wire):
    schema = {**SCHEMA, "properties": {"limit": {"type": ["integer", "null"]}}, "required": ["limit"]}
    events = replied(
        wire,
        [core.ReplyStarted(), *call(0, "f", {"limit": None}), core.ReplyEnded("invocations")],
        (core.ToolDeclaration("f", "", schema, strict=True),),
        stream=True,
    )
    assert calls(events) == [("f", *[{"limit": None}] * 3)]


@table("stream", [True, False])
def test_a_call_with_names_that_the_provider_takes_comes_back_with_those_of_the_tool(stream):
    schema = {"type": "object", "properties": {"user name": {"type": "string"}}, "required": ["user name"]}
    reply = [core.ReplyStarted(), *call(0, "f", {"user_name_7935f403": "x"}), core.ReplyEnded("invocations")]
    events = replied("messages", reply, (core.ToolDeclaration("f", "", schema),), stream=stream)
    assert calls(events) == [("f", *[{"user name": "x"}] * 3)]


GIVEN = {"f": SCHEMA}


def fed(events):
    stage = ArgumentRestorer(EncodedRequest({}, nullable=GIVEN))
    return [out for event in events for out in stage.feed(event)] + stage.finish()


def test_the_arguments_are_one_piece_and_come_when_they_are_whole():
    started, *pieces, ended = call(0, "f", NULLS)
    stage = ArgumentRestorer(EncodedRequest({}, nullable=GIVEN))
    assert [stage.feed(event) for event in [started, *pieces]] == [[started], *[[] for _ in pieces]]
    raw = '{"query":"x","inner":{}}'
    assert stage.feed(ended) == [core.ArgumentsPiece(0, raw), core.InvocationEnded(0, "call_0", "f", BARE, raw)]


@table(
    "events",
    [
        call(0, "f", {"query": "x"}, pieces=1),
        [core.InvocationStarted(0, "a", "f"), core.InvocationEnded(0, "a", "f", {"query": "x"}, '{"query": "x"}')],
        [core.InvocationStarted(0, "a", "f"), core.ArgumentsPiece(0, "[nul"), core.InvocationEnded(0, "a", "f", None, "[nul")],
        [core.InvocationStarted(0, "a", "f"), core.ArgumentsPiece(0, '{"limit":null'), core.InvocationIncomplete(0, "a", "f", '{"limit":null', "cut")],
        call(0, "g", NULLS),
        [core.ReplyStarted(), core.TextPiece("t"), core.ReplyEnded("stop")],
    ],
    ids=["without nulls", "without pieces", "no object", "incomplete", "another tool", "no call"],
)  # fmt: skip
def test_what_is_left_as_it_was(events):
    assert fed(events) == events


@given(st.permutations([0, 1, 2]), st.data())
def test_calls_that_overlap_are_each_told_whole(order, data):
    waiting = [call(index, "f" if index else "g", NULLS, data.draw(st.integers(1, 9))) for index in order]
    events = []
    while any(waiting):
        events.append(data.draw(st.sampled_from([each for each in waiting if each])).pop(0))
    told = calls(fed(events))
    assert sorted(name for name, *_ in told) == ["f", "f", "g"]
    for name, *said in told:
        assert said == [NULLS if name == "g" else BARE] * 3

"""What a reply says is written in few large pieces, and its calls at its end."""

from __future__ import annotations

import asyncio

import pytest

from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    Usage,
)
from callboard.jobs.claim import Superseded
from callboard.servers.gateway.background_events import EventWriter


class Segment:
    """Keeps what is written, as a claim would; with `failure` it raises that."""

    def __init__(self, failure=None):
        self.claim = self
        self.writes = []
        self.failure = failure
        self.written = asyncio.Event()
        self.aborted = None

    async def append(self, events, **changes):
        if self.failure is not None:
            raise self.failure
        self.writes.append([*events])
        self.written.set()

    def announce(self):
        pass

    def abort(self, failure):
        self.aborted = failure
        self.written.set()


def write(*events, is_streamed=False):
    async def main():
        segment = Segment()
        writer = EventWriter(segment, is_streamed=is_streamed)
        for event in events:
            writer.add(event)
        await writer.write(is_end=True)
        return segment.writes

    return asyncio.run(main())


def test_pieces_are_joined_and_calls_come_before_the_end():
    assert write(
        ReplyStarted("x", "m"),
        ReasoningPiece("h"),
        ReasoningPiece("m", opaque="seal"),
        ReasoningPiece("so"),
        TextPiece("Hel", (0, 3)),
        TextPiece("lo", (3, 5)),
        InvocationStarted(0, "call_1", "look", offsets=(5, 9)),
        ArgumentsPiece(0, "{}"),
        InvocationEnded(0, "call_1", "look", {}, "{}"),
        Note("coerced", "a number"),
        TextPiece("!"),
        Usage(1, 2),
        ReplyEnded("invocations"),
    ) == [
        [
            ReasoningPiece("hm", opaque="seal"),
            ReasoningPiece("so"),
            TextPiece("Hello!"),
            Usage(1, 2),
            InvocationStarted(0, "call_1", "look"),
            InvocationEnded(0, "call_1", "look", {}, "{}"),
            ReplyEnded("invocations"),
        ]
    ]


def test_a_call_that_broke_off_keeps_its_arguments():
    started, cut = InvocationStarted(0, "c", "look"), InvocationIncomplete(0, "c", "look", '{"a', "cut")
    assert write(started, cut, ReplyEnded("length")) == [
        [started, ArgumentsPiece(0, '{"a'), cut, ReplyEnded("length")],
    ]


@pytest.mark.parametrize("failure", [None, Superseded("another has it")])
def test_a_stream_is_written_while_it_comes(failure):
    async def main():
        segment = Segment(failure)
        writer = EventWriter(segment, is_streamed=True)
        writer.add(TextPiece("Hello"))
        await segment.written.wait()
        assert segment.aborted is failure
        assert segment.writes == ([] if failure else [[TextPiece("Hello")]])
        writer.stop()

    asyncio.run(main())

"""A background response is encoded alike each time, also where an attempt at it was interrupted."""

from __future__ import annotations

import json

import pytest

from callboard.core import ReasoningPiece, ReplyEnded, RoundStarted, TextPiece, Usage
from callboard.wires.responses.background_stream import BackgroundEncoder

EVENTS = [
    RoundStarted(0),
    RoundStarted(1),
    TextPiece("First."),
    ReasoningPiece("add() -> 3", opaque="seal"),
    RoundStarted(2),
    ReasoningPiece("so"),
    TextPiece("Hello wor"),
    RoundStarted(2),
    TextPiece("Hello "),
    TextPiece("world."),
    Usage(1, 2),
    ReplyEnded("stop"),
]


def encode(events, **options):
    encoder = BackgroundEncoder(identifier="resp_1", model="m", created=1, **options)
    payloads = [payload for event in events for payload in encoder.feed(event)] + encoder.finish()
    return [json.loads(data) for _, data in payloads if data != b"[DONE]"], encoder.response


def test_what_an_interrupted_round_said_is_closed_and_not_in_the_response():
    frames, response = encode(EVENTS)
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    texts = [item["content"][0]["text"] for item in done if item["type"] == "message"]
    assert texts == ["First.", "Hello wor", "Hello world."]
    assert [item["status"] for item in done if item["type"] == "message"] == ["completed", "incomplete", "completed"]
    assert [item["type"] for item in response["output"]] == ["message", "reasoning", "message"]
    assert response["output"][-1]["content"][0]["text"] == "Hello world."
    assert response["status"] == "completed"


def test_an_earlier_round_that_is_said_again_takes_the_later_ones_with_it():
    _, response = encode([*EVENTS[:7], RoundStarted(1), TextPiece("Anew."), ReplyEnded("stop")])
    assert [item["content"][0]["text"] for item in response["output"]] == ["Anew."]


@pytest.mark.parametrize("number", range(-1, 30))
def test_frames_behind_a_number_are_those_of_the_whole_stream(number):
    whole, _ = encode(EVENTS)
    rest, response = encode(EVENTS, starting_after=number)
    assert rest == whole[number + 1 :]
    assert response["status"] == "completed"


def test_a_response_that_waits_is_queued():
    frames, _ = encode(EVENTS[:1])
    assert [(frame["type"], frame["response"]["status"]) for frame in frames[:2]] == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
    ]

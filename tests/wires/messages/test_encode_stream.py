"""The server half: what it sends is what the client half and Anthropic's own client read."""

from __future__ import annotations

import json
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard import core
from callboard.core import pipe
from callboard.text.sse import SSEDecoder, SSEEncoder
from callboard.wires.common.reply_stream import DecodeContext
from callboard.wires.messages import StreamDecoder, StreamEncoder, decode_response, encode_response

PIECES = {core.TextPiece: "text", core.ArgumentsPiece: "json"}


def minted(index, _name):
    return f"minted_{index}"


def encode(events, *, why="stop"):
    stage = pipe(StreamEncoder(identifier="r1", model="m", created=1), SSEEncoder())
    return [frame for event in events for frame in stage.feed(event)] + stage.finish(why)


def read(frames):
    """The names and data of frames, each of which has to be one whole frame."""
    found = []
    for frame in frames:
        (each,) = SSEDecoder().feed(frame)
        found.append((each.event, json.loads(each.data)))
    return found


def decode(frames):
    stage = StreamDecoder(DecodeContext(identify=minted))
    return [event for _, data in read(frames) for event in stage.feed(json.dumps(data))] + stage.finish()


def whole(events):
    """The body of the reply that is not streamed."""
    return encode_response(events, identifier="r1", model="m", created=1)


def coalesced(events):
    """The events with neighbouring pieces of one block joined."""
    joined = []
    for event in events:
        last = joined[-1] if joined else None
        if (
            type(event) is type(last)
            and type(event) in PIECES
            and getattr(event, "index", 0) == getattr(last, "index", 0)
        ):
            name = PIECES[type(event)]
            joined[-1] = msgspec.structs.replace(last, **{name: getattr(last, name) + getattr(event, name)})
        elif isinstance(event, core.ReasoningPiece) and isinstance(last, core.ReasoningPiece) and not last.opaque:
            if event.opaque.startswith("redacted:"):
                joined.append(event)
            else:
                joined[-1] = msgspec.structs.replace(last, text=last.text + event.text, opaque=event.opaque)
        else:
            joined.append(event)
    return joined


def in_order(events):
    """The events block by block, in the order in which the blocks begin."""
    blocks = {}
    place = 0
    rest = []
    previous = None
    for event in events:
        match event:
            case core.InvocationStarted(index=i) | core.ArgumentsPiece(index=i) | core.InvocationEnded(index=i):
                key = ("call", i)
            case core.TextPiece() | core.ReasoningPiece():
                if type(event) is not type(previous):
                    place += 1
                key = ("said", place)
            case _:
                rest.append(event)
                continue
        if not isinstance(event, core.ArgumentsPiece | core.InvocationEnded):
            previous = event
        blocks.setdefault(key, []).append(event)
    start, *end = rest
    return coalesced([start, *[event for block in blocks.values() for event in block], *end])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
ARGUMENTS = st.dictionaries(
    TEXT, TEXT | st.integers(-9, 9) | st.none() | st.lists(TEXT, max_size=2), min_size=1, max_size=2
)
THOUGHTS = st.one_of(
    st.builds(core.ReasoningPiece, TEXT, origin=st.just("m")),
    st.builds(core.ReasoningPiece, TEXT | st.just(""), st.just("c2ln"), st.just("m")),
    st.builds(core.ReasoningPiece, st.just(""), st.just("redacted:ZGF0YQ=="), st.just("m")),
)


@st.composite
def replies(draw):
    """What a reply may be: pieces of all kinds in any order, calls interleaved, an end that fits."""
    given_arguments = draw(st.lists(ARGUMENTS, max_size=3))
    raws = [json.dumps(arguments, separators=(",", ":"), ensure_ascii=False) for arguments in given_arguments]
    names = [draw(st.sampled_from(["f", "get_weather"])) for _ in raws]
    events = []
    at = [0] * len(raws)
    while True:
        waiting = [index for index in range(len(raws)) if at[index] < len(raws[index])]
        if draw(st.integers(0, 3)) == 0 or not waiting:
            events.append(draw(st.builds(core.TextPiece, TEXT) | THOUGHTS))
            if not waiting:
                break
        index = draw(st.sampled_from(waiting))
        for begun in range(index + 1):
            if at[begun] == 0 and not any(isinstance(e, core.InvocationStarted) and e.index == begun for e in events):
                events.append(core.InvocationStarted(begun, f"c{begun}", names[begun]))
        step = draw(st.integers(1, 12))
        events.append(core.ArgumentsPiece(index, raws[index][at[index] : at[index] + step]))
        at[index] += step
        if at[index] >= len(raws[index]) and draw(st.booleans()):
            events.append(core.InvocationEnded(index, f"c{index}", names[index], json.loads(raws[index]), raws[index]))
    ended = {event.index for event in events if isinstance(event, core.InvocationEnded)}
    events += [
        core.InvocationEnded(i, f"c{i}", names[i], json.loads(raw), raw) for i, raw in enumerate(raws) if i not in ended
    ]
    events.append(core.Usage(7, 5, draw(st.integers(0, 7)), draw(st.integers(0, 5))))
    natural = "invocations" if raws else "stop"
    return [
        core.ReplyStarted("r1", "m"),
        *events,
        core.ReplyEnded(draw(st.sampled_from([natural, "length", "refusal"]))),
    ]


@given(replies())
def test_what_is_encoded_is_decoded(events):
    assert coalesced(decode(encode(events))) == in_order(events)


@given(replies())
def test_the_whole_reply_says_what_the_stream_says(events):
    expected = in_order(events)
    assert coalesced(decode_response(whole(events), DecodeContext(identify=minted))) == expected
    assert coalesced(decode_response(msgspec.json.encode(whole(events)), DecodeContext(identify=minted))) == expected


@given(replies())
def test_blocks_are_open_one_at_a_time(events):
    frames = read(encode(events))
    assert all(name == data["type"] for name, data in frames)
    kinds = [name.removeprefix("content_block_") for name, _ in frames]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    places = [data["index"] for name, data in frames if name.startswith("content_block")]
    assert places == sorted(places)
    for index, block in groupby(frames[1:-2], key=lambda frame: frame[1]["index"]):
        names = [name for name, _ in block]
        assert (names[0], names[-1]) == ("content_block_start", "content_block_stop"), index
        assert set(names[1:-1]) <= {"content_block_delta"}


CALL = [
    core.ReplyStarted("r0", "m0"),
    core.ReasoningPiece("hm"),
    core.ReasoningPiece("", "c2ln"),
    core.TextPiece("I'll look."),
    core.InvocationStarted(0, "a", "f"),
    core.ArgumentsPiece(0, '{"x'),
    core.ArgumentsPiece(0, '":1}'),
    core.InvocationStarted(1, "b", "g"),
    core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}'),
    core.InvocationEnded(1, "b", "g", {}, ""),
    core.InvocationStarted(2, "c", "h"),
    core.InvocationEnded(2, "c", "h", {"y": 2}, '{"y":2}'),
    core.Note("repaired", "something"),
    core.Usage(9, 4, 5, 2),
    core.ReplyEnded("invocations"),
]
NO_USAGE = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": {"thinking_tokens": 0},
}
USAGE = {
    "input_tokens": 4,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 5,
    "output_tokens": 4,
    "output_tokens_details": {"thinking_tokens": 2},
}
MESSAGE = {"id": "r1", "type": "message", "role": "assistant", "model": "m"}


def test_a_stream_frame_by_frame():
    def opened(index, **block):
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(index, kind, **piece):
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}

    def closed(index):
        return {"type": "content_block_stop", "index": index}

    begun = MESSAGE | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": NO_USAGE}
    assert [data for _, data in read(encode(CALL))] == [
        {"type": "message_start", "message": begun},
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="c2ln"),
        closed(0),
        opened(1, type="text", text=""),
        delta(1, "text_delta", text="I'll look."),
        closed(1),
        opened(2, type="tool_use", id="a", name="f", input={}),
        delta(2, "input_json_delta", partial_json='{"x'),
        delta(2, "input_json_delta", partial_json='":1}'),
        closed(2),
        opened(3, type="tool_use", id="b", name="g", input={}),
        closed(3),
        opened(4, type="tool_use", id="c", name="h", input={}),
        delta(4, "input_json_delta", partial_json='{"y":2}'),
        closed(4),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": USAGE},
        {"type": "message_stop"},
    ]


def test_a_whole_reply():
    assert whole(CALL) == MESSAGE | {
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "I'll look."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            {"type": "tool_use", "id": "c", "name": "h", "input": {"y": 2}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": USAGE,
    }


def test_a_whole_call_does_not_wait_for_its_end_when_another_begins():
    stage = pipe(StreamEncoder(identifier="r1", model="m", created=1), SSEEncoder())
    for event in CALL[:7]:
        stage.feed(event)
    assert [name for name, _ in read(stage.feed(CALL[7]))] == ["content_block_stop", "content_block_start"]


def test_what_overtakes_a_call_waits_for_it():
    stage = pipe(StreamEncoder(identifier="r1", model="m", created=1), SSEEncoder())
    stage.feed(core.InvocationStarted(0, "a", "f"))
    stage.feed(core.ArgumentsPiece(0, '{"x'))
    assert stage.feed(core.TextPiece("meanwhile")) == stage.feed(core.InvocationStarted(1, "b", "g")) == []
    assert stage.feed(core.ArgumentsPiece(1, "{}")) == []
    assert len(stage.feed(core.ArgumentsPiece(0, '":1}'))) == 1
    frames = read(stage.feed(core.InvocationEnded(0, "a", "f", {"x": 1}, '{"x":1}')))
    assert [(name, data["index"]) for name, data in frames] == [
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
    ]


def test_many_calls_that_wait():
    """20,000 calls, none whole before the end: this finishes because each is told once."""
    count = 20_000
    events = [core.InvocationStarted(i, f"c{i}", "f") for i in range(count)]
    events += [core.ArgumentsPiece(i, '{"x":1}') for i in reversed(range(count))]
    assert len(encode([*events, core.ReplyEnded("invocations")])) == 3 * count + 3


@table(
    ("reason", "expected"),
    [
        ("stop", "end_turn"),
        ("invocations", "tool_use"),
        ("length", "max_tokens"),
        ("filter", "refusal"),
        ("refusal", "refusal"),
    ],
)
def test_reasons(reason, expected):
    events = [core.ReplyStarted("r1", "m"), core.RefusalPiece("no"), core.ReplyEnded(reason)]
    (*_, (_, delta), _) = read(encode(events))
    assert delta["delta"]["stop_reason"] == whole(events)["stop_reason"] == expected
    assert delta["usage"] == whole(events)["usage"] == NO_USAGE
    assert whole(events)["content"] == [{"type": "text", "text": "no"}]


def test_a_reply_that_says_nothing():
    assert [name for name, _ in read(encode([core.ReplyEnded("stop")]))] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert whole([core.ReplyEnded("stop")])["content"] == []


FAILURE = core.ReplyFailed("provider", "overloaded_error", "too much", "<html>")


def test_a_failure_is_told_and_ends_the_stream():
    frames = encode(
        [core.ReplyStarted("r1", "m"), core.TextPiece("a"), FAILURE, core.TextPiece("b"), core.ReplyEnded("stop")]
    )
    expected = {"type": "error", "error": {"type": "overloaded_error", "message": "too much"}}
    assert read(frames)[-1] == ("error", expected)
    assert whole([FAILURE]) == expected
    assert msgspec.structs.replace(decode(frames)[-1], excerpt="<html>") == FAILURE
    assert (
        msgspec.structs.replace(decode_response(expected, DecodeContext(identify=minted))[-1], excerpt="<html>")
        == FAILURE
    )


@table("why", ["stop", "cut", "cancelled"])
def test_events_that_break_off_are_a_failure(why):
    frames = encode([core.ReplyStarted("r1", "m"), core.TextPiece("a")], why=why)
    assert read(frames)[-1][0] == "error"
    assert whole([core.ReplyStarted("r1", "m")])["type"] == "error"


def test_nothing_is_sent_twice_at_the_end():
    stage = pipe(StreamEncoder(identifier="r1", model="m", created=1), SSEEncoder())
    assert read(stage.feed(core.ReplyEnded("stop")))[-1][0] == "message_stop"
    late = [
        core.TextPiece("a"),
        core.ReplyStarted(),
        core.ReplyEnded("stop"),
        FAILURE,
        core.InvocationStarted(0, "a", "f"),
    ]
    assert [stage.feed(event) for event in late] == [[]] * len(late)
    assert stage.finish() == []


def test_an_incomplete_call_is_sent_as_far_as_it_came():
    events = [
        core.ReplyStarted("r1", "m"),
        core.InvocationStarted(0, "a", "f"),
        core.ArgumentsPiece(0, '{"x'),
        core.InvocationIncomplete(0, "a", "f", '{"x', "length"),
        core.InvocationIncomplete(1, "b", "", "{}", "no name"),
        core.Usage(1, 1),
        core.ReplyEnded("length"),
    ]
    assert decode(encode(events)) == [*events[:4], *events[5:]]
    assert whole(events)["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": {"raw": '{"x'}}]


def test_after_a_retry_the_whole_reply_is_the_second():
    events = [
        core.TextPiece("bad"),
        core.ReplyEnded("retry"),
        core.ReplyStarted("r1", "m"),
        core.TextPiece("good"),
        core.ReplyEnded("stop"),
    ]
    assert whole(events)["content"] == [{"type": "text", "text": "good"}]


@table(
    "events",
    [
        [core.ArgumentsPiece(3, "{}"), core.InvocationEnded(4, "a", "f", {}, ""), core.ReplyEnded("stop")],
        [
            core.TextPiece(""),
            core.ReasoningPiece(""),
            core.ReplyStarted(),
            core.ReplyEnded("retry"),
            core.ReplyEnded("stop"),
            core.ReplyEnded("stop"),
        ],
        [core.InvocationStarted(0, "a", "f"), core.TextPiece("a"), core.ReplyEnded("invocations")],
        [
            core.InvocationStarted(0, "a", "f"),
            core.InvocationEnded(0, "a", "f", None, "[1"),
            core.ArgumentsPiece(0, "]"),
            core.ReplyEnded("stop"),
        ],
        [],
    ],
)
def test_events_in_the_wrong_order(events):
    names = [name for name, _ in read(encode(events))]
    assert sum(name in {"message_stop", "error"} for name in names) == 1
    assert names[-1] in {"message_stop", "error"}
    assert names.count("content_block_start") == names.count("content_block_stop")
    whole(events)


@table(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"\xff",
        {},
        {"content": {"a": 1}},
        {"type": "error"},
        {"error": "no"},
        {"content": ["x"]},
        "[" * 9999,
    ],
)
def test_a_body_that_is_no_reply_is_a_failure(body):
    (failure,) = decode_response(body, DecodeContext(identify=minted))
    assert failure.party == "provider"
    assert failure.code in {"malformed", "cut", "server_error"}
    assert len(failure.excerpt) <= 500


BODY = whole(CALL) | {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "no"}}


def test_anything_at_every_field_of_a_whole_reply():
    for name in BODY:
        for value in (None, True, -1, 1.5, "x", [], [1], [None], {}, [{"type": "x"}], [{"type": "tool_use"}]):
            events = decode_response(BODY | {name: value}, DecodeContext(identify=minted))
            assert [isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events].index(True) == len(
                events
            ) - 1


def test_an_explained_refusal():
    assert decode_response(BODY, DecodeContext(identify=minted))[-3:] == [
        core.RefusalPiece("no"),
        core.Usage(9, 4, 5, 2),
        core.ReplyEnded("refusal"),
    ]


@pytest.fixture(scope="module")
def types():
    """What the official package reads."""
    from anthropic import types
    from pydantic import TypeAdapter

    return TypeAdapter(types.RawMessageStreamEvent), types.Message


@given(events=replies())
def test_anthropic_reads_the_frames(types, events):
    for _, data in read(encode(events)):
        types[0].validate_python(data)


@given(events=replies())
def test_anthropic_reads_the_whole(types, events):
    types[1].model_validate(whole(events), strict=True)


@given(events=replies())
def test_anthropic_adds_the_frames_up_as_we_do(types, events):
    from anthropic.lib.streaming._messages import accumulate_event

    snapshot, buffers = None, {}
    for _, data in read(encode(events)):
        event = types[0].validate_python(data)
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    ours = types[1].model_validate(whole(events))
    assert snapshot.to_dict(exclude_none=True) == ours.to_dict(exclude_none=True)

"""What the stream decoder of Chat Completions does besides the rows of `test_replay`."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wires.replay import minted, run

from callboard import core
from callboard.wires.chat import StreamDecoder
from callboard.wires.common.reply_stream import DecodeContext

KEYS = """
    id model choices index delta message content finish_reason tool_calls function name arguments usage error
    prompt_tokens prompt_tokens_details cached_tokens type text function_call reasoning code
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["stop", "length", "f", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4),
    max_leaves=12,
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "index": JSON,
        "id": JSON,
        "function": st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON}),
    },
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(
            st.fixed_dictionaries(
                {
                    "delta": st.fixed_dictionaries(
                        {}, optional={"content": JSON, "tool_calls": st.lists(CALLS, max_size=3)}
                    )
                },
                optional={"finish_reason": st.sampled_from(["stop", "length", None])},
            ),
            max_size=2,
        ),
        "usage": JSON,
    },
)


@given(st.lists(JSON | CHUNKS, max_size=6), st.sampled_from(["stop", "cut", "length", "cancelled"]))
def test_any_json_is_taken(chunks, why):
    events = run(StreamDecoder(DecodeContext(identify=minted)), [json.dumps(chunk) for chunk in chunks], why)
    assert isinstance(events[-1], core.ReplyEnded | core.ReplyFailed)
    assert sum(isinstance(event, core.ReplyEnded | core.ReplyFailed) for event in events) == 1
    opened = [event.index for event in events if isinstance(event, core.InvocationStarted)]
    closed = [event.index for event in events if isinstance(event, core.InvocationEnded | core.InvocationIncomplete)]
    assert opened == list(range(len(opened)))
    assert sorted(closed) == list(range(len(closed)))
    assert set(opened) <= set(closed)
    assert len({event.identifier for event in events if isinstance(event, core.InvocationStarted)}) == len(opened)


@table("payload", ["\ud83d", '{"choices":[{"delta":{"content":"\ud83d"}}]}'])
def test_lone_surrogates_are_malformed(payload):
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed(payload)
    assert event.code == "malformed"


def test_an_excerpt_is_short():
    (event,) = StreamDecoder(DecodeContext(identify=minted)).feed("<html>" + "x" * 10_000)
    assert len(event.excerpt) == 500
    assert event.excerpt.startswith("<html>xxx")


def test_reasoning_is_marked_with_the_model_that_was_asked():
    events = StreamDecoder(DecodeContext(identify=minted, origin="asked")).feed(
        '{"model":"answered","choices":[{"delta":{"reasoning_content":"hm"}}]}'
    )
    assert [event.origin for event in events[1:]] == ["asked"]


def test_a_megabyte_of_arguments_in_pieces():
    """100,000 deltas of one call: this finishes because a piece costs the same wherever it stands."""
    stage = StreamDecoder(DecodeContext(identify=minted))
    stage.feed(
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"x\\":\\""}}]}}]}'
    )
    piece = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"0123456789"}}]}}]}'
    for _ in range(100_000):
        assert len(stage.feed(piece)) == 1
    stage.feed('{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"}"}}]}}]}')
    (ended, last) = stage.feed('{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}') + stage.feed("[DONE]")
    assert len(ended.arguments["x"]) == 1_000_000
    assert last == core.ReplyEnded("invocations")


def test_many_calls():
    stage = StreamDecoder(DecodeContext(identify=minted))
    for index in range(20_000):
        stage.feed(
            f'{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"a","function":{{"name":"f"}}}}]}}}}]}}'
        )
    events = stage.feed("[DONE]")
    assert len({event.identifier for event in events if isinstance(event, core.InvocationEnded)}) == 20_000

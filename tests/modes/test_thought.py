"""A thought in two lines is reasoning; whatever else a reply begins with is its text."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard import Agent, tool
from callboard.core import Note, ReasoningPiece, ReplyEnded, TextPiece
from callboard.dialects.thought_form import write_thought_form
from callboard.modes.thought import ThoughtFilter
from callboard.testing import FakeBackend

CALL = '{"name": "weather", "arguments": {"city": "Oslo"}}'


def split(text, cuts=()):
    """The thought and the text of a reply that comes in pieces."""
    stage = ThoughtFilter()
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    events = [out for piece in pieces if piece for out in stage.feed(TextPiece(piece))] + stage.finish()
    order = [type(event) for event in events]
    assert order == sorted(order, key=[ReasoningPiece, TextPiece].index)
    return tuple(
        "".join([event.text for event in events if isinstance(event, kind)]) for kind in (ReasoningPiece, TextPiece)
    )


CASES = [
    (f"Function: weather\nKey args: Oslo\n{CALL}", "Function: weather\nKey args: Oslo\n", CALL),
    (f"\n\nFunction: weather\n{CALL}", "Function: weather\n", CALL),
    ("Function: none\nIt is cold.", "Function: none\n", "It is cold."),
    ("Function: none\nKey args: are what a key has", "Function: none\n", "Key args: are what a key has"),
    ("Function: none", "Function: none", ""),
    ("Function: weather\nKey args: Oslo", "Function: weather\nKey args: Oslo", ""),
    ("It is cold.\nFunction: none\n", "", "It is cold.\nFunction: none\n"),
    ("Func", "", "Func"),
    ("Function", "", "Function"),
    ("  Functional programming", "", "  Functional programming"),
    ("", "", ""),
    (" " * 2000 + "Function: weather\n", "", " " * 2000 + "Function: weather\n"),
    ("Function: " + "x" * 2000 + "\nAnswer", "", "Function: " + "x" * 2000 + "\nAnswer"),
]


@pytest.mark.parametrize(("text", "thought", "rest"), CASES)
def test_what_a_reply_begins_with(text, thought, rest):
    assert split(text) == (thought, rest)


@given(
    st.sampled_from([case[0] for case in CASES]) | st.text("Function: noe\nKyargs"),
    st.lists(st.integers(0, 3000), max_size=6),
)
@example("Function: a\nKey args: b\nc", range(30))
def test_how_it_is_cut_changes_nothing(text, cuts):
    assert split(text, cuts) == split(text)
    thought, rest = split(text)
    assert "".join((thought + rest).split()) == "".join(text.split())


def test_what_stands_beside_the_text_passes():
    stage = ThoughtFilter()
    note = Note("alert", "x")
    assert stage.feed(TextPiece("Func")) == []
    assert stage.feed(note) == [note]
    assert stage.feed(ReplyEnded("stop")) == [TextPiece("Func"), ReplyEnded("stop")]


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"cold in {city}"


@pytest.mark.parametrize("mode", ["native", "validated"])
def test_a_client_sees_the_outcome(mode):
    async def scenario():
        replies = [f"Function: weather\nKey args: Oslo\n```json\n{CALL}\n```", "Function: none\nIt is cold."]
        async with FakeBackend(replies) as backend:
            profile = {"thought_tokens": 16, "mode": mode}
            agent = Agent("qwen2.5-coder-7b", [weather], base_url=backend.url, profile=profile)
            result = await agent.run("The weather in Oslo?")
            return result, backend.requests

    result, requests = asyncio.run(scenario())
    assert result.output == "It is cold."
    assert write_thought_form(16) in requests[0].body["messages"][0]["content"]

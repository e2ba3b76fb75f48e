"""A model with a gate: whoever asks it sees one reply, in the library and behind the gateway."""

from __future__ import annotations

import asyncio

import pytest

from callboard import Agent, tool
from callboard.core import (
    ArgumentsPiece,
    InvocationEnded,
    InvocationStarted,
    Note,
    ReplyEnded,
    ReplyStarted,
    TextPiece,
    UserCanister,
)
from callboard.testing import FakeBackend

GATED = {"gate": "question", "uses_tools": True, "supports_logprobs": True}
WRITTEN = '```json\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```'

READ_BY_SERVER = [
    ReplyStarted("r1"),
    InvocationStarted(0, "call_1", "weather", known=True),
    ArgumentsPiece(0, '{"city":"Oslo"}'),
    InvocationEnded(0, "call_1", "weather", {"city": "Oslo"}, '{"city":"Oslo"}'),
    ReplyEnded("invocations"),
]


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"cold in {city}"


def ask(replies, prompt="The weather in Oslo?", profile=GATED, **options):
    async def scenario():
        async with FakeBackend(replies) as backend:
            agent = Agent("qwen2.5-coder-1.5b", [weather], base_url=backend.url, profile=profile, **options)
            run = agent.stream(prompt)
            events = [event async for event in run]
            return events, run.result, backend.requests

    return asyncio.run(scenario())


@pytest.mark.parametrize("call", [WRITTEN, READ_BY_SERVER])
def test_a_call_that_the_model_stands_by_is_made(call):
    _, result, requests = ask([call, "Yes", "It is cold."])
    assert result.output == "It is cold."
    draft, question, _ = [request.body for request in requests]
    assert question["messages"][: len(draft["messages"])] == draft["messages"]
    assert question["tools"] == draft["tools"]
    assert question["max_tokens"] == 1
    assert question["logprobs"] is True


def test_the_question_stands_behind_what_the_model_wrote():
    _, _, requests = ask([WRITTEN, "Yes", "It is cold."])
    assert requests[1].body["messages"][-2] == {"role": "assistant", "content": WRITTEN}


def test_a_call_that_is_stopped_is_an_answer_that_was_asked_for_without_tools():
    events, result, requests = ask([WRITTEN, "No", "I do not know."], "Who wrote Faust, and where is Oslo?")
    assert result.output == "I do not know."
    assert [each.code for each in events if isinstance(each, Note)] == ["stopped_call"]
    assert "".join([each.text for each in events if isinstance(each, TextPiece)]) == "I do not know."
    assert "tools" not in requests[2].body
    assert len(result.canisters) == 2  # the question and its answer: nothing of what was stopped


def test_the_usage_is_that_of_all_that_was_asked():
    _, plain, _ = ask(["Hm."], profile={"uses_tools": True})
    _, gated, _ = ask([WRITTEN, "No", "Hm."])
    assert gated.usage.input > 2 * plain.usage.input


def test_an_endpoint_without_log_probabilities_is_asked_for_the_word():
    _, result, requests = ask([WRITTEN, "No", "Hm."], profile={**GATED, "supports_logprobs": False})
    assert result.output == "Hm."
    assert "logprobs" not in requests[1].body


def test_values_alone_cost_no_question():
    profile = {"gate": "grounding", "gate_threshold": -1.0, "uses_tools": True}
    _, result, requests = ask([WRITTEN, "I do not know."], "Who wrote Faust?", profile)
    assert (result.output, len(requests)) == ("I do not know.", 2)
    _, result, requests = ask([WRITTEN, "It is cold."], "The weather in Oslo?", profile)
    assert (result.output, len(requests)) == ("It is cold.", 2)
    assert isinstance(result.canisters[0], UserCanister)

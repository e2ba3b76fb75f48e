"""The Open Responses specification, and the framework that its clients use most."""

from __future__ import annotations

import json

import pytest
from tests.servers.gateway.fronts import call_events, posted, reply

from callboard.core import ReasoningPiece, RefusalPiece, ReplyStarted, TextPiece, Usage
from callboard.testing import Cut, FakeBackend, Raw, StatusReply

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = call_events("get_weather", '{"city":"Oslo"}', identifier="call_1", size=8)
WRITTEN = 'I look.\n```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```'
REPLIES = {
    "text": "Hello you",
    "nothing": reply(Usage(1, 0)),
    "all of it": reply(
        ReasoningPiece("Let me "), ReasoningPiece("think."), TextPiece("I look."), *CALL, Usage(11, 7, 3, 2)
    ),
    "text behind a call": reply(*CALL, TextPiece("There.")),
    "a call in text": WRITTEN,
    "a refusal": reply(RefusalPiece("I won't."), end="refusal"),
    "length": reply(TextPiece("It is"), Usage(1, 2), end="length"),
    "length inside a call": reply(*CALL[:2], end="length"),
    "filter": reply(end="filter"),
    "cut": Cut([ReplyStarted(), TextPiece("Hel")]),
    "cut inside a call": Cut([ReplyStarted(), *CALL[:2]]),
    "garbage": Raw(["{", "[DONE]"]),
    "500": StatusReply(500, {"error": {"message": "out of memory"}}),
}
ASKS = {
    "plain": {"input": "Hi"},
    "everything": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "instructions": "Be kind.",
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "tools": [WEATHER],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}},
        "store": False,
        "truncation": "disabled",
        "service_tier": "auto",
    },
}
ENDS = {"response.completed", "response.incomplete", "response.failed"}
TOOLS = {"tools": [WEATHER]}


@pytest.fixture(scope="module")
def judge():
    """Checks an event, and a response, against the specification."""
    from openresponses_types import ResponseResource, types

    found = [model for name, model in vars(types).items() if name.endswith("StreamingEvent")]
    events = {kind.value: model for model in found for kind in model.model_fields["type"].annotation}
    assert len(events) == 24
    return lambda event: events[event["type"]].model_validate(event), ResponseResource.model_validate


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_every_event_and_every_response_is_the_specification_s(serving, judge, ask):
    answers = {}
    body = {"model": "m", **TOOLS, **ask}
    async with (
        FakeBackend([each for each in REPLIES.values() for _ in range(2)]) as backend,
        serving(backend, failure_threshold=1000) as served,
    ):
        for name in REPLIES:
            answers[name] = [await served.post("responses", body | {"stream": stream}) for stream in (True, False)]
    judge_event, judge_response = judge
    for name, (streamed, whole) in answers.items():
        assert [kind for kind, _ in streamed.frames[:-1]] == [event["type"] for event in streamed.events], name
        assert streamed.frames[-1] == ("", "[DONE]")
        assert [event["sequence_number"] for event in streamed.events] == list(range(len(streamed.events)))
        assert [event["type"] in ENDS for event in streamed.events] == [False] * (len(streamed.events) - 1) + [True]
        assert len({event["response"]["id"] for event in streamed.events if "response" in event}) == 1
        for event in streamed.events:
            judge_event(event)
        if whole.status == 200:
            judge_response(whole.body)
            final = streamed.events[-1]["response"]
            # Where a chat backend's call stands in its text is told by a stream alone.
            assert sorted(kinds(whole.body)) == sorted(kinds(final)), name
            assert (whole.body["status"], whole.body["usage"]) == (final["status"], final["usage"]), name
        else:
            assert set(whole.body["error"]) >= {"message", "type", "code"}, name
            assert streamed.events[-1]["type"] == "response.failed", name


def kinds(response):
    return [item["type"] for item in response["output"]]


@pytest.fixture(scope="module")
def agents():
    import agents

    agents.set_tracing_disabled(disabled=True)
    return agents


@pytest.mark.parametrize("spoken", ["native", "written"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_openai_agents_complete_a_tool_loop(serving, agents, wire, streamed, spoken):
    from openai import AsyncOpenAI

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather."""
        asked.append(city)
        return f"Rain in {city}."

    kind = {"responses": agents.OpenAIResponsesModel, "chat": agents.OpenAIChatCompletionsModel}[wire]
    calling = reply(*CALL, Usage(3, 2)) if spoken == "native" else WRITTEN
    asked = []
    async with (
        FakeBackend([calling, "It rains."]) as backend,
        serving(backend) as served,
        AsyncOpenAI(base_url=served.url, api_key="k", max_retries=0) as client,
    ):
        agent = agents.Agent("weather", model=kind("m", client), tools=[get_weather])
        if streamed:
            running = agents.Runner.run_streamed(agent, "How is Oslo?")
            async for _ in running.stream_events():
                pass
        else:
            running = await agents.Runner.run(agent, "How is Oslo?")
        said, (_, second) = running.final_output, posted(backend)
    assert (said, asked) == ("It rains.", ["Oslo"])
    assert [message["role"] for message in second["messages"]][-3:] == ["user", "assistant", "tool"]
    (call,) = second["messages"][-2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    assert second["messages"][-1]["tool_call_id"] == call["id"]
    assert second["messages"][-1]["content"] == "Rain in Oslo."

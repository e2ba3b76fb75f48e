"""What a refusal says of an endpoint: another request is tried, and only what helped is known."""

from __future__ import annotations

import asyncio

import pytest

from callboard import access_model
from callboard.core import (
    AssistantCanister,
    Note,
    ReasoningContent,
    ReplyEnded,
    ReplyFailed,
    Request,
    SupervisorCanister,
    TextualContent,
    ToolDeclaration,
    UserCanister,
    reply_events,
)
from callboard.providers.lessons import MAX_TRIALS, suggest_facts
from callboard.testing import FakeBackend, StatusReply

SAID = (
    SupervisorCanister("Be brief."),
    UserCanister("Hi"),
    AssistantCanister((ReasoningContent("Hm.", origin="m"), TextualContent("Hello."))),
    SupervisorCanister("Be kind."),
    UserCanister("And?"),
)
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOL = ToolDeclaration("add", schema=SCHEMA, strict=True)


def refusing(*rules):
    """A backend that refuses what a rule finds in a body, in its words."""

    def reply(body):
        return next((StatusReply(400, {"error": {"message": said}}) for fault, said in rules if fault(body)), "Fine.")

    return reply


def late_system(body):
    return any(each["role"] == "system" for each in body["messages"][1:])


def strict(body):
    return any("strict" in each["function"] for each in body.get("tools", ()))


def thought(field):
    return lambda body: any(field in each for each in body["messages"])


LATE = (late_system, "System message must be at the beginning.")
STRICT = (strict, "tools.0.function.strict: Extra inputs are not permitted")


def ask(replies, *, count=2, tools=(TOOL,), **profile):
    async def scenario():
        async with FakeBackend(replies) as backend:
            model = access_model(
                "m", base_url=backend.url, profile={"uses_tools": True, "reasoning_history": "all", **profile}
            )
            request = Request("m", SAID, tuple(tools))
            events = [[event async for event in reply_events(model, request)] for _ in range(count)]
            await model.aclose()
            return events, backend.requests

    return asyncio.run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_what_helped_is_known_from_then_on(stream):
    (first, second), requests = ask(refusing(LATE, STRICT), supports_streaming=stream)
    assert isinstance(first[-1], ReplyEnded)
    assert isinstance(second[-1], ReplyEnded)
    assert len(requests) == 4  # refused twice, taken twice
    notes = [each.text for each in first if isinstance(each, Note)]
    assert notes == ["the endpoint refused a request: merge_system_messages=true, supports_strict=false from now on"]
    assert not [each for each in second if isinstance(each, Note)]
    texts = [each["content"] for each in requests[-1].body["messages"]]
    assert texts[0] == "Be brief."
    assert "Be kind." in texts[-2] + texts[-1]


def test_one_fact_after_the_other_is_tried():
    rules = [(thought(field), f"unknown field: {field}") for field in ("reasoning_content", "reasoning")]
    (first, _), requests = ask(refusing(*rules))
    assert isinstance(first[-1], ReplyEnded)
    assert len(requests) == 4
    assert not thought("reasoning")(requests[-1].body)


def test_nothing_is_known_unless_the_other_request_is_taken():
    (first, second), requests = ask(refusing((lambda _: True, "System message must be at the beginning")))
    assert isinstance(first[-1], ReplyFailed)
    assert isinstance(second[-1], ReplyFailed)
    assert len(requests) == 4
    assert late_system(requests[2].body)


def test_what_would_change_nothing_of_the_request_is_not_tried():
    (failed,), requests = ask(refusing((lambda _: True, "strict is not supported")), count=1, tools=())
    assert isinstance(failed[-1], ReplyFailed)
    assert len(requests) == 1


def test_a_refusal_that_names_everything_costs_few_requests():
    """A server may repeat what a client sent."""
    said = "system must be first, strict, stream_options, parallel_tool_calls, reasoning_content, content: unsupported"
    _, requests = ask(refusing((lambda _: True, said)), count=1)
    assert len(requests) <= MAX_TRIALS + 1


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("System message must be at the beginning.", {"merge_system_messages": True}),
        ("Jinja Exception: System role not supported", {"supports_system_role": False}),
        ("Conversation roles must alternate user/assistant/user/assistant/...", {"requires_alternating_roles": True}),
        ("Unknown parameter: 'stream_options'.", {"reports_usage": False}),
        ("parallel_tool_calls is not supported with this model", {"supports_parallel_calls": False}),
        (
            "The reasoning_content in the thinking mode must be passed back to the API.",
            {"requires_reasoning_history": True, "reasoning_history": "tools"},
        ),
        ("messages[1].content: Input should be a valid string", {"supports_content_parts": False}),
        ("content must be a string", {"supports_content_parts": False}),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            {"max_tokens_field": "max_completion_tokens"},
        ),
        ("Assistant response prefill is incompatible with enable_thinking.", {"prefill": "none"}),
        ("This model's maximum context length is 8192 tokens", {}),
        ("Rate limit reached", {}),
        ("Invalid API key", {}),
    ],
)
def test_the_words_of_servers(said, facts):
    assert next(suggest_facts(ReplyFailed("provider", "invalid_request", said), {}), {}) == facts

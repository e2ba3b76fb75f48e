"""A backend's rate limit reaches every client as a rate limit, with the seconds to wait."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from tests.servers.gateway.fronts import FRONTS, request, row

from callboard.testing import FakeBackend, Raw, StatusReply

LIMITS = {
    "Anthropic": (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}),
    "Anthropic, overloaded": (529, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}),
    "OpenAI": (429, {"error": {"message": "slow", "type": "tokens", "code": "rate_limit_exceeded"}}),
    "Google": (429, {"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}),
    "Mistral": (429, {"object": "error", "message": "slow", "type": "rate_limited", "code": "1300"}),
    "vLLM": (429, {"object": "error", "message": "slow", "type": "TooManyRequests", "code": 429}),
    "Azure": (429, {"error": {"message": "slow", "code": "429"}}),
}
SAID = {
    "chat": {"type": "rate_limit_error", "code": "rate_limit_exceeded"},
    "responses": {"code": "rate_limit_exceeded"},
    "messages": {"type": "rate_limit_error"},
    "gemini": {"code": 429, "status": "RESOURCE_EXHAUSTED"},
}


def error_of(answer):
    """The error of an answer, whole or in the last event of a stream."""
    said = answer.events[-1] if answer.streamed else answer.body
    error = said.get("error") or said["response"]["error"]
    return {name: value for name, value in error.items() if name in {"type", "code", "status"}}


@asynccontextmanager
async def limited(serving, behind, wire, replies):
    """A backend that gives the last of these replies: gives what asks on every front, whole and streamed."""
    async with (
        FakeBackend(lambda _: replies[-1]) as backend,
        serving(behind(backend, wire=wire), failure_threshold=999) as served,
    ):

        async def ask():
            ways = [(front, stream) for front in FRONTS for stream in (True, False)]
            return [(front, await served.post(front, request(front, stream=stream))) for front, stream in ways]

        yield ask


async def ask(serving, behind, wire, reply):
    async with limited(serving, behind, wire, [reply]) as asking:
        return await asking()


@pytest.mark.parametrize("wire", ["chat", "responses", "messages", "gemini"])
async def test_a_rate_limit_is_one_for_every_client(serving, behind, wire):
    replies = []
    async with limited(serving, behind, wire, replies) as asking:
        for name, (status, body) in LIMITS.items():
            replies.append(StatusReply(status, body, {"retry-after": "7"}))
            for front, answer in await asking():
                with row(name, front):
                    assert answer.headers["retry-after"] == "7"
                    assert SAID[front].items() <= error_of(answer).items()
                    expected = {429, 529} if front == "messages" else {429}
                    assert answer.status in expected or (answer.status == 200 and answer.streamed)


async def test_a_rate_limit_in_the_middle_of_a_stream(serving, behind):
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
    for front, answer in await ask(serving, behind, "messages", Raw([json.dumps(error)])):
        assert SAID[front].items() <= error_of(answer).items(), front


async def test_an_overloaded_backend(serving, behind):
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    said = {"messages": {"type": "overloaded_error"}, "gemini": {"code": 503, "status": "UNAVAILABLE"}}
    for front, answer in await ask(serving, behind, "messages", StatusReply(529, body, {"retry-after": "7"})):
        assert answer.headers["retry-after"] == "7", front
        assert said.get(front, {"code": "overloaded_error"}).items() <= error_of(answer).items(), front


async def test_an_empty_account_is_no_rate_limit(serving, behind):
    body = {"error": {"message": "pay", "type": "insufficient_quota", "code": "insufficient_quota"}}
    said = {"messages": {"type": "billing_error"}, "gemini": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}
    for front, answer in await ask(serving, behind, "chat", StatusReply(429, body)):
        assert said.get(front, {"code": "insufficient_quota"}).items() <= error_of(answer).items(), front


async def test_a_backend_s_limits_and_cache_writes_reach_the_client(serving, behind):
    limits = {"anthropic-ratelimit-tokens-remaining": "7", "x-ratelimit-limit-requests": "9" * 999}
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 0}
    lifetimes = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hi"}],
        "usage": {**usage, "cache_creation": lifetimes},
    }
    reply = StatusReply(200, body, {**limits, "anthropic-organization-id": "theirs"})
    async with FakeBackend([reply]) as backend, serving(behind(backend, wire="messages")) as served:
        answer = await served.post("messages", request("messages"))
    assert answer.body["usage"]["cache_creation"] == lifetimes
    assert (
        answer.headers["anthropic-ratelimit-tokens-remaining"],
        len(answer.headers["x-ratelimit-limit-requests"]),
    ) == ("7", 200)
    assert "anthropic-organization-id" not in answer.headers

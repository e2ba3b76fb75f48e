from __future__ import annotations

import pytest
from tests.tables import table

from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.http_errors import STATUSES, HttpError
from callboard.servers.gateway.settings import GatewayLimits

LIMITS = GatewayLimits(items=3, instructions=10, max_tokens=100, top_logprobs=5)
SEED = {
    "too_many_messages": 400,
    "invalid_max_tokens": 400,
    "instructions_too_large": 400,
    "input_content_too_large": 413,
    "invalid_top_logprobs": 400,
    "background_not_supported": 400,
    "prompt_reference_not_supported": 400,
    "model_required": 400,
    "invalid_request": 400,
    "missing_api_key": 401,
    "backend_unavailable_circuit_open": 503,
    "backend_unavailable": 502,
}
"""Seed 002's codes."""


@table(("code", "status"), SEED.items())
def test_the_seed_s_codes_have_its_statuses(code, status):
    refusal = HttpError(code, "why", path="there")
    assert (refusal.status, refusal.failure.code, refusal.failure.message) == (status, code, "there: why")


@table("code", STATUSES)
def test_whose_fault_it_is(code):
    refusal = HttpError(code, "why")
    assert refusal.failure.party == ("caller" if refusal.status < 500 else "provider")


CHECKS = [
    ("responses", {"background": True}, "background_not_supported"),
    ("responses", {"background": False}, None),
    ("responses", {"prompt": {"id": "p"}}, "prompt_reference_not_supported"),
    ("responses", {"prompt": None}, None),
    ("responses", {"input": [{}] * 4}, "too_many_messages"),
    ("responses", {"input": [{}] * 3}, None),
    ("responses", {"input": "a text of more than three"}, None),
    ("responses", {"max_output_tokens": 101}, "invalid_max_tokens"),
    ("responses", {"max_output_tokens": 0}, "invalid_max_tokens"),
    ("responses", {"max_output_tokens": 100}, None),
    ("responses", {"max_output_tokens": None}, None),
    ("responses", {"instructions": "x" * 11}, "instructions_too_large"),
    ("responses", {"instructions": "é" * 10}, None),
    ("responses", {"top_logprobs": 6}, "invalid_top_logprobs"),
    ("responses", {"top_logprobs": -1}, "invalid_top_logprobs"),
    ("responses", {"top_logprobs": 5}, None),
    ("chat", {"messages": [{}] * 4}, "too_many_messages"),
    ("chat", {"max_tokens": -1}, "invalid_max_tokens"),
    ("chat", {"max_completion_tokens": 101}, "invalid_max_tokens"),
    ("chat", {"top_logprobs": 6}, "invalid_top_logprobs"),
    ("chat", {"max_tokens": True, "max_completion_tokens": "100"}, None),  # the wire says what is wrong with them
    ("messages", {"messages": [{}] * 4}, "too_many_messages"),
    ("messages", {"max_tokens": 101}, "invalid_max_tokens"),
    ("messages", {"max_tokens": 100}, None),
    ("messages", {"thread": {"type": "create"}}, "thread_unsupported_request"),
    ("messages", {"thread": None}, None),
    ("responses", {"conversation": "conv_1"}, "conversation_not_supported"),
    ("responses", {"conversation": {"id": "conv_1"}}, "conversation_not_supported"),
    ("responses", {"conversation": None}, None),
    ("chat", {"n": 2}, "invalid_request"),
    ("chat", {"n": 0}, "invalid_request"),
    ("chat", {"n": 1}, None),
    ("chat", {"n": None}, None),
    ("gemini", {"contents": [{}] * 4}, "too_many_messages"),
]


@table(("front", "body", "code"), CHECKS)
def test_what_a_front_checks(front, body, code):
    check = FRONTENDS[front].check
    if code is None:
        check(body, LIMITS)
        return
    with pytest.raises(HttpError) as caught:
        check(body, LIMITS)
    (place,) = body
    assert (caught.value.failure.code, caught.value.path) == (code, place)


@table("name", ["generationConfig", "generation_config"])
@table(
    ("fields", "code", "path"),
    [
        ({"maxOutputTokens": 101}, "invalid_max_tokens", "maxOutputTokens"),
        ({"max_output_tokens": 0}, "invalid_max_tokens", "maxOutputTokens"),
        ({"candidateCount": 2}, "invalid_request", "candidateCount"),
        ({"candidate_count": 1, "maxOutputTokens": 100}, None, ""),
    ],
)
def test_gemini_s_front_checks_the_generation_in_either_spelling(name, fields, code, path):
    check = FRONTENDS["gemini"].check
    if code is None:
        check({name: fields}, LIMITS)
        return
    with pytest.raises(HttpError) as caught:
        check({name: fields}, LIMITS)
    assert (caught.value.failure.code, caught.value.path) == (code, f"generationConfig.{path}")


def test_the_fronts():
    assert {name: (front.name, front.prefix) for name, front in FRONTENDS.items()} == {
        "responses": ("responses", "resp_"),
        "chat": ("chat", "chatcmpl-"),
        "messages": ("messages", "msg_"),
        "gemini": ("gemini", ""),
    }

"""Requests that a client might send, and what may come of them.

Owns the fields of each front as a client may fill them, rightly, nearly rightly or not at all, and what an answer has
to be whatever was sent. Law: the same random numbers give the same request.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.servers.gateway.fronts import FRONTS, call_events, ends_of, reply

from callboard.core import ReasoningPiece, RefusalPiece, ReplyStarted, TextPiece, Usage
from callboard.testing import Cut, Html, Raw, StatusReply

ANTHROPIC_CODES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "timeout_error",
    "overloaded_error",
    "billing_error",
}
WORDS = ("", "Hi", "x" * 300, "naïve — ✓ 😀", "\u0000", "a\nb", "<tool_call>", "data: x\n\n", "[DONE]", "../..", "null")
NAMES = ("search", "get_weather", "f", "", "a b", "x" * 70, "ns__f", "😀")
GRAMMAR = Path(__file__).resolve().parents[3] / "vectors/fuzz/requests.json"
RULES = {**json.loads(GRAMMAR.read_text("utf-8")), "word": {"$any": WORDS}, "name": {"$any": NAMES}}
LEAVES = (None, True, False, 0, -1, 1, 1.5, -0.0, 1e300, 2**70, -(2**63), [], {}, [[]], [None], {"": None}, *WORDS)


def junk(r, depth=0):
    kind = r.random()
    if depth > 3 or kind < 0.7:
        return r.choice(LEAVES)
    if kind < 0.85:
        return [junk(r, depth + 1) for _ in range(r.randrange(4))]
    return {
        r.choice(("type", "role", "content", "name", "id", "text", "x")): junk(r, depth + 1)
        for _ in range(r.randrange(4))
    }


def spoilt(r, value, share):
    """The value with about that share of its parts replaced, dropped or added."""
    if r.random() < share:
        return junk(r)
    if isinstance(value, dict):
        kept = {key: spoilt(r, each, share) for key, each in value.items() if r.random() >= share / 2}
        return {**kept, r.choice(WORDS): junk(r)} if r.random() < share else kept
    if isinstance(value, list):
        return [spoilt(r, each, share) for each in value]
    return value


def fill(r, node):
    """A value of the grammar.

    `$any` chooses one of several, `$some` repeats one at most `most` times, and `$seldom` stands now and then in place of
    one that is `usual`. A text `$NAME` is the rule of that name.
    """
    if isinstance(node, str) and node.startswith("$"):
        return fill(r, RULES[node[1:]])
    if isinstance(node, list):
        return [fill(r, each) for each in node]
    if not isinstance(node, dict):
        return node
    if "$any" in node:
        return fill(r, r.choice(node["$any"]))
    if "$some" in node:
        return [fill(r, node["$some"]) for _ in range(r.randrange(node.get("most", 3) + 1))]
    if "$seldom" in node:
        return fill(r, node["$seldom"] if r.random() < 0.03 else r.choice(node["usual"]))
    return {name: fill(r, each) for name, each in node.items()}


def body_of(r, front):
    """The bytes of a request to that front."""
    filled = {name: value for name, value in fill(r, RULES[front]).items() if value is not None or r.random() < 0.1}
    body = {"model": "m", "stream": r.random() < 0.5, **filled}
    share = r.choice((0, 0, 0, 0, 0.01, 0.02, 0.1))
    if share:
        body = spoilt(r, body, share)
        if isinstance(body, dict) and r.random() < 0.9:
            body["model"] = "m"
    data = json.dumps(body, ensure_ascii=r.random() < 0.5).encode()
    cut = r.random()
    return data[: r.randrange(len(data) + 1)] if cut < 0.02 else data + b"}" if cut < 0.03 else data


# What the backend does

CALL = call_events("search", '{"query":"x"}', identifier="call_9", size=8)
REPLIES = (
    "Hello",
    "",
    'I look.\n<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>',
    '```json\n{"name": "f", "arguments": {}}',
    reply(ReasoningPiece("hm"), TextPiece("Well."), *CALL, Usage(3, 2, 1, 1)),
    reply(RefusalPiece("No."), end="refusal"),
    reply(TextPiece("It"), end="length"),
    StatusReply(400, {"error": {"message": "this model does not support tools"}}),
    StatusReply(429, {"error": {"message": "slow down"}}, {"Retry-After": "2"}),
    StatusReply(500),
    Html(503),
    Raw(["{", "[DONE]"]),
    Raw(['{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}']),
    Cut([ReplyStarted(), *CALL[:2]]),
)


def judged(front, answer):
    """Raises AssertionError for an answer that no client understands, or that says the gateway failed."""
    if answer.streamed:
        assert answer.status == 200
        assert answer.data.endswith(b"\n\n")
        assert len(ends_of(front, answer)) == 1, answer
        assert b"internal_error" not in answer.data
        return
    assert answer.headers["content-type"] == "application/json", answer
    body = answer.body
    assert isinstance(body, dict)
    if answer.status == 200 and front == "gemini":
        assert body["candidates"][0]["finishReason"], answer
        return
    if answer.status == 200:
        assert body.get("object", body.get("type")) in {"response", "chat.completion", "message"}, answer
        return
    assert 400 <= answer.status < 600, answer
    error = body["error"]
    assert isinstance(error["message"], str)
    assert error["message"], answer
    if front == "messages":
        assert error["type"] in ANTHROPIC_CODES, answer
        assert "its log says why" not in error["message"], answer
    elif front == "gemini":
        assert error["code"] == answer.status, answer
        assert "its log says why" not in error["message"], answer
    else:
        assert set(error) == {"message", "type", "param", "code"}, answer
        assert isinstance(error["code"], str), answer
        assert error["code"] != "internal_error", answer


class Fuzz:
    fronts = FRONTS
    replies = REPLIES
    body = staticmethod(body_of)
    judge = staticmethod(judged)

    @staticmethod
    def forget(served):
        """What was learned of the model from one request is not to hide what comes of the next."""
        for backend in served.gateway.backends:
            backend._learned.clear()
            backend._models.clear()


@pytest.fixture(scope="session")
def fuzz():
    """`fronts`, `replies` of a backend, `body(random, front)` in bytes, `judge(front, answer)`, `forget(served)`."""
    return Fuzz

"""A request for a few tokens gets an answer from a model that thinks, and says so if it gets none."""

from __future__ import annotations

from tests.tables import table
from tests.threads.passing import exchange

from callboard.core import ReasoningPiece, ReplyEnded, ReplyStarted, TextPiece

OFF = {"enable_thinking": False}


def think(body):
    """A backend's model that thinks for 100 tokens, unless its chat template is told not to."""
    thinks = body.get("chat_template_kwargs", {}).get("enable_thinking", True)
    is_short = body.get("max_tokens", 9999) < 100
    thought = [ReasoningPiece("Hm. A title? ", origin=body["model"])] if thinks else []
    if thinks and is_short:
        return [ReplyStarted(), *thought, ReplyEnded("length")]
    return [ReplyStarted(), *thought, TextPiece("A title"), ReplyEnded("stop")]


def chat(limit, model="qwen3-8b", **fields):
    return "chat", {
        "model": model,
        "messages": [{"role": "user", "content": "Name it."}],
        "max_tokens": limit,
        **fields,
    }


def messages(limit, **fields):
    body = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "Name it."}], "max_tokens": limit}
    return "messages", {**body, **fields}


BUDGET = {"type": "enabled", "budget_tokens": 1024}


@table(
    ("request", "is_off", "header"),
    [
        (chat(64), True, "thinking is off"),
        (messages(64), True, "thinking is off"),
        (messages(512, stream=True), True, "thinking is off"),
        (chat(1024), True, "thinking is off"),
        (chat(1025), False, ""),
        (chat(None), False, ""),
        # What a client says about thinking holds.
        (chat(200, reasoning_effort="low"), False, ""),
        (messages(2000, thinking=BUDGET), False, ""),
        (chat(200, chat_template_kwargs={"enable_thinking": True}), False, ""),
        # It ends within a thought, as the client asked for.
        (chat(64, reasoning_effort="low"), False, "the reply reached its limit before an answer"),
        # Nothing is known about thinking of this one.
        (chat(200, model="my-model"), False, ""),
    ],
)
def test_a_short_reply_has_no_thoughts_unless_the_client_asks_for_them(request, is_off, header):
    (answer,), (asked,) = exchange(think, request, strict=("vllm",))
    assert answer.status == 200
    assert (asked.body.get("chat_template_kwargs") == OFF) == is_off
    assert ("x-callboard-thinking" in answer.headers) == bool(header)
    assert header in answer.headers.get("x-callboard-thinking", "")

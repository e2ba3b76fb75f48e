"""Callboard with a model behind the chat wire; the bytes come from the process instead of a socket."""

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from callboard import Agent, Limits
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.providers.http_model import HttpModel

_CALL = b'"tool_call_id":"call_'
_DONE = [{"content": "done"}]


class HttpResponse:
    """As `providers.transport.HttpResponse`."""

    status = 200
    content_type = "text/event-stream"
    idle_limit = SimpleNamespace(is_patient=False)

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def next_chunk(self) -> bytes:
        chunk, self._body = self._body, b""
        return chunk

    def close(self) -> None:
        """There is no connection."""


class Stub:
    """A transport whose server asks for the call after the last one, and is done after `rounds` of them."""

    def __init__(self, rounds: int) -> None:
        self._replies = [*(_reply(_call(number), "tool_calls") for number in range(rounds)), _reply(_DONE, "stop")]

    async def ask(self, _: str, __: str, *, body: bytes, **___: Any) -> HttpResponse:
        at = body.rfind(_CALL)
        last = body[at + len(_CALL) : body.find(b'"', at + len(_CALL))]
        return HttpResponse(self._replies[0 if at < 0 else int(last) + 1])


def prepare(add: Callable[..., Any], rounds: int) -> Callable[[], Awaitable[Any]]:
    resolution = resolve("gpt-4o", {"mode": "native"})
    model = HttpModel(resolution, make_plan(resolution), Stub(rounds), base_url="http://stub")  # type: ignore[arg-type]
    agent = Agent(model, [add], limits=Limits(rounds=rounds + 1, errors=None))

    async def run() -> Any:
        return (await agent.run("go")).output

    return run


def _call(number: int) -> list[dict[str, Any]]:
    function = {"name": "add", "arguments": ""}
    pieces = ['{"a": ', f"{number}", ', "b": ', "3}"]
    head = {"tool_calls": [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]}
    return [head, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)]


def _reply(deltas: list[dict[str, Any]], ending: str) -> bytes:
    """As OpenAI sends it: a role, the deltas, an ending, the usage."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    choices = [({"role": "assistant", "content": None}, None), *((delta, None) for delta in deltas), ({}, ending)]
    chunks = [
        *({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": why}]} for delta, why in choices),
        {**head, "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}},
    ]
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"

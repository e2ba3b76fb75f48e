"""What a gateway tells of itself and its models.

Owns the answers to /health, /v1/models and count_tokens. Knows nothing of replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callboard.servers.gateway.answer import send_json
from callboard.servers.gateway.body import read_body, worked
from callboard.servers.gateway.callers import token_of
from callboard.servers.gateway.connections import Share
from callboard.servers.gateway.gateway import Gateway

_BYTES_OF_A_TOKEN = 4
"""About, in English and in code."""


def health(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    """200, or 503 while every backend's breaker is open. Where a backend is, is told to the gateway's keys alone."""

    async def tell(request: Request) -> Response:
        now = monotonic()
        is_known = gateway.callers.knows(token_of(request.headers))
        states = [
            _state(_name(gateway, place, is_known=is_known), backend.breaker.failures, backend.breaker.state(now))
            for place, backend in enumerate(gateway.backends)
        ]
        unhealthy = all(state["is_open"] for state in states)
        told = {
            "status": "unhealthy" if unhealthy else "healthy",
            "circuit_breaker": {
                "enabled": True,
                "is_open": unhealthy,
                "consecutive_failures": max([state["consecutive_failures"] for state in states]),
            },
            "backends": states,
        }
        return Response(msgspec.json.encode(told), 503 if unhealthy else 200, media_type="application/json")

    return tell


def _name(gateway: Gateway, place: int, *, is_known: bool) -> str:
    """What a backend is called: without one of the gateway's keys nobody is told where it is, nor its name if there are
    keys.
    """
    backend = gateway.backends[place]
    if is_known:
        return backend.name
    return (not gateway.settings.keys and backend.settings.name) or f"backend-{place + 1}"


def _state(name: str, failures: int, state: str) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {**named, "state": state, "is_open": state == "open", "consecutive_failures": failures}


async def models(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """The names that may be asked for; in Anthropic's shape for a client that says its version."""
    names = await scope["gateway"].models(scope["owner"], token)
    told: Mapping[str, Any]
    if "anthropic-version" in Headers(scope=scope):
        data = [
            {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"} for name in names
        ]
        told = {
            "data": data,
            "has_more": False,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
    else:
        told = {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "callboard"} for name in names],
        }
    await send_json(send, 200, told)


async def count_tokens(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """How many tokens a body of Messages has, about: four bytes of its text each, as a header says."""
    gateway: Gateway = scope["gateway"]
    with Share(gateway.room) as share:
        data = await read_body(Headers(scope=scope), receive, gateway.settings.limits, share)
        body = await gateway.read(data)
        if isinstance(model := body.get("model"), str):
            gateway.check_name(model)
        said = [each for name in ("system", "messages", "tools") if (each := body.get(name)) is not None]
        count = await worked(len(data), lambda: len(msgspec.json.encode(said)) // _BYTES_OF_A_TOKEN)
    await send_json(send, 200, {"input_tokens": max(1, count)}, {"x-callboard-estimated": "1"})

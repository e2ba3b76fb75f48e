"""What a gateway tells of itself and its models.

Owns the answers to /health, to questions for models, and those for the size of a request. Knows nothing of replies.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callboard.servers.gateway.auth import read_token
from callboard.servers.gateway.backend import Backend
from callboard.servers.gateway.connections import BudgetShare
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.google_urls import KEY_HEADER, model_in_path
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import read_body, run_in_thread_if_large
from callboard.servers.gateway.response_stream import send_json

_BYTES_OF_A_TOKEN = 4
"""About, in English and in code."""
_TOKENS_OF_A_FILE = 1000
"""Of a picture, about; of others nothing can be known."""
_FILE = re.compile(rb'"(?:data:[^",]{0,200},)?[\w+/=-]{2000,}"')
"""A string without a space that is too long for a word: base64."""
_SHOWN = 100
"""Characters of a name in a message."""


def health(gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    """200, or 503 while every backend's breaker is open. Where a backend is, is told to the gateway's keys alone."""

    async def tell(request: Request) -> Response:
        now = monotonic()
        is_known = gateway.authenticator.is_key(read_token(request.headers))
        states = [
            _state(_name(gateway, place, is_known=is_known), backend.breaker.failures, backend.breaker.state(now))
            | _learned(gateway, backend, request)
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


def _learned(gateway: Gateway, backend: Backend, request: Request) -> dict[str, Any]:
    """What the requests of this key have shown of the backend's models."""
    token = read_token(request.headers)
    try:
        owner = gateway.authenticator.owner(gateway.authenticator.authenticate(request.headers, token), token)
    except HttpError:
        return {}
    learned = backend.learned_facts(owner)
    return {"learned": learned} if learned else {}


def _state(name: str, failures: int, state: str) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {**named, "state": state, "is_open": state == "open", "consecutive_failures": failures}


def client_format(scope: Scope) -> str:
    """The front in whose form a client wants what every front has: Google's and Anthropic's clients say who they are."""
    headers = Headers(scope=scope)
    if scope["path"].startswith("/v1beta") or KEY_HEADER in headers:
        return "gemini"
    return "messages" if "anthropic-version" in headers else "chat"


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "callboard"}


def _anthropic_model(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _google_model(name: str) -> dict[str, Any]:
    methods = ["generateContent", "streamGenerateContent", "countTokens"]
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}


def _openai_list(names: Sequence[str]) -> dict[str, Any]:
    return {"object": "list", "data": [_openai_model(name) for name in names]}


def _anthropic_list(names: Sequence[str]) -> dict[str, Any]:
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return {"data": [_anthropic_model(name) for name in names], "has_more": False, **ends}


def _google_list(names: Sequence[str]) -> dict[str, Any]:
    return {"models": [_google_model(name) for name in names]}


_FORMS: Mapping[str, tuple[Callable[[str], Any], Callable[[Sequence[str]], Any]]] = MappingProxyType(
    {
        "chat": (_openai_model, _openai_list),
        "messages": (_anthropic_model, _anthropic_list),
        "gemini": (_google_model, _google_list),
    }
)


async def models(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """The names that may be asked for, in the client's form."""
    names = await scope["gateway"].models(scope["owner"], token)
    await send_json(send, 200, _FORMS[client_format(scope)][1](names))


async def model(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """One of them."""
    name = str(scope["path_params"]["name"])
    if not await scope["gateway"].has_model(name, scope["owner"], token):
        raise HttpError("model_not_found", f"there is no model {name[:_SHOWN]!r} here", path="model")
    await send_json(send, 200, _FORMS[client_format(scope)][0](name))


async def _of_messages(scope: Scope, body: Mapping[str, Any], size: int, share: BudgetShare) -> tuple[Any, Any]:
    return body.get("model"), _fields(body, "system", "messages", "tools")


async def _of_responses(scope: Scope, body: Mapping[str, Any], size: int, share: BudgetShare) -> tuple[Any, Any]:
    items = await scope["gateway"].conversations.items(body, owner=scope["owner"], share=share, size=size)
    return body.get("model"), [*_fields(body, "instructions", "tools"), items]


async def _of_gemini(scope: Scope, body: Mapping[str, Any], size: int, share: BudgetShare) -> tuple[Any, Any]:
    asked = body.get("generateContentRequest", body.get("generate_content_request"))
    names = ("systemInstruction", "system_instruction", "contents", "tools")
    return model_in_path(scope), _fields(asked if isinstance(asked, dict) else body, *names)


def _fields(body: Mapping[str, Any], *names: str) -> list[Any]:
    return [each for name in names if (each := body.get(name)) is not None]


class _TokenCounter(msgspec.Struct, frozen=True):
    """Answers how many tokens a body has, about: four bytes of its text each, as a header says.

    `counted` gives the model's name and what is counted of a body of so many bytes, `told` what is said of the number.
    """

    counted: Callable[[Scope, Mapping[str, Any], int, BudgetShare], Awaitable[tuple[Any, Any]]]
    told: Callable[[int], dict[str, Any]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send, token: str) -> None:
        gateway: Gateway = scope["gateway"]
        with BudgetShare(gateway.request_budget) as share:
            data = await read_body(Headers(scope=scope), receive, gateway.settings.limits, share)
            name, said = await self.counted(scope, await gateway.read(data), len(data), share)
            if isinstance(name, str):
                gateway.check_model_name(name)
            count = await run_in_thread_if_large(len(data), partial(_tokens, said))
        await send_json(send, 200, self.told(count), {"x-callboard-estimated": "1"})


def _tokens(said: Any) -> int:
    text, files = _FILE.subn(b"", msgspec.json.encode(said))
    return max(1, len(text) // _BYTES_OF_A_TOKEN + files * _TOKENS_OF_A_FILE)


count_messages = _TokenCounter(_of_messages, lambda count: {"input_tokens": count})
count_responses = _TokenCounter(_of_responses, lambda count: {"object": "response.input_tokens", "input_tokens": count})
count_gemini = _TokenCounter(_of_gemini, lambda count: {"totalTokens": count})

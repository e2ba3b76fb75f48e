"""Endpoints that count the tokens of a request.

A backend's own tokenizer counts the request as it would be sent. If no tokenizer answers, four bytes of text are a
token, and a picture or file is 1,000.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from callboard.errors import CallboardError
from callboard.providers.count_tokens import BYTES_PER_TOKEN, TokenCount
from callboard.servers.gateway.endpoints import ApiRequest, Services, json_response, url_fields
from callboard.servers.gateway.exchange import ReplyRequest, read_betas
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.request_body import BudgetShare, read_body, run_in_thread_if_large

_HEADER: Final = "x-callboard-tokens"
_TOKENS_PER_FILE: Final = 1000
"""Approximate tokens of a picture. The size of other files is unknown."""
_FILE: Final = re.compile(rb'"(?:data:[^",]{0,200},)?[\w+/=-]{2000,}"')
"""A long string without spaces, presumably base64."""


class TokenCounter(msgspec.Struct, frozen=True):
    """An endpoint that counts the tokens of a body for one front. A header says if the count is exact or estimated.

    `read_parts` returns the body that a reply would need, and the parts of it that a model reads. `answer` makes the
    body of the answer.
    """

    front: str
    read_parts: Callable[[ApiRequest, ReplyRequest], Awaitable[tuple[Mapping[str, Any], Any]]]
    answer: Callable[[int], dict[str, Any]]

    async def __call__(self, request: ApiRequest) -> Response:
        gateway = request.services.gateway
        with BudgetShare(gateway.request_budget) as share:
            data = await read_body(request.headers, request.receive, gateway.settings.limits, share)
            counted_request = ReplyRequest(
                front=FRONTENDS[self.front],
                body=await gateway.read(data),
                owner=request.owner,
                size=len(data),
                token=request.token,
                beta=read_betas(self.front, request.headers),
                budget=share,
            )
            body, parts = await self.read_parts(request, counted_request)
            if isinstance(name := body.get("model"), str):
                gateway.check_model_name(name)
            count = await _count_exactly(request.services, replace(counted_request, body=body))
            if count is None:
                count = TokenCount(await run_in_thread_if_large(len(data), partial(_estimate_tokens, parts)), False)
        return json_response(self.answer(count.tokens), headers={_HEADER: "exact" if count.is_exact else "estimated"})


async def _count_exactly(services: Services, counted_request: ReplyRequest) -> TokenCount | None:
    """Return a backend's count. None if it has none, or if a reply to the body would be refused."""
    make_exchange = (
        services.conversations.exchange if counted_request.front.name == "responses" else services.gateway.exchange
    )
    try:
        return await services.gateway.count_tokens(await make_exchange(counted_request))
    except (HttpError, CallboardError):
        return None


def _estimate_tokens(parts: Any) -> int:
    text, files = _FILE.subn(b"", msgspec.json.encode(parts))
    return max(1, len(text) // BYTES_PER_TOKEN + files * _TOKENS_PER_FILE)


async def _messages_parts(_: ApiRequest, counted_request: ReplyRequest) -> tuple[Mapping[str, Any], Any]:
    return counted_request.body, _fields(counted_request.body, "system", "messages", "tools")


async def _responses_parts(request: ApiRequest, counted_request: ReplyRequest) -> tuple[Mapping[str, Any], Any]:
    items = await request.services.conversations.items(counted_request)
    return counted_request.body, [*_fields(counted_request.body, "instructions", "tools"), items]


async def _gemini_parts(request: ApiRequest, counted_request: ReplyRequest) -> tuple[Mapping[str, Any], Any]:
    inner = counted_request.body.get("generateContentRequest", counted_request.body.get("generate_content_request"))
    body = inner if isinstance(inner, dict) else counted_request.body
    names = ("systemInstruction", "system_instruction", "contents", "tools")
    return {**body, **url_fields(request.scope, stream=False)}, _fields(body, *names)


def _fields(body: Mapping[str, Any], *names: str) -> list[Any]:
    return [each for name in names if (each := body.get(name)) is not None]


count_messages = TokenCounter("messages", _messages_parts, lambda count: {"input_tokens": count})
count_responses = TokenCounter(
    "responses", _responses_parts, lambda count: {"object": "response.input_tokens", "input_tokens": count}
)
count_gemini = TokenCounter("gemini", _gemini_parts, lambda count: {"totalTokens": count})

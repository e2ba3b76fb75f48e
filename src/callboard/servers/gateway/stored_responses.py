"""Responses that are kept, as resources.

Owns the answers to GET, DELETE, cancel and input_items below /v1/responses. Knows nothing of how replies come about.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from callboard.servers.gateway.conversation_state import ConversationState
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.response_store import StoredResponse
from callboard.servers.gateway.response_stream import send_json

_LIMIT = 20
_MOST = 100
_SHOWN = 100
"""Characters of an identifier in a message."""


class _Status(msgspec.Struct):
    status: str


_read_status = msgspec.json.Decoder(_Status).decode
_read_items = msgspec.json.Decoder(list[dict[str, Any]]).decode


async def retrieve(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """GET /v1/responses/{id}: the response as it was."""
    if _asked(scope).get("stream", "false") != "false":
        raise HttpError("stream_not_supported", "a response that is kept is not streamed again", path="stream")
    kept = await _found(scope)
    await send_json(send, 200, msgspec.Raw(kept.body))


async def delete(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """DELETE /v1/responses/{id}."""
    identifier = _identifier(scope)
    store = _turns(scope).store
    if store is None or not await store.delete(identifier, scope["owner"]):
        raise _unknown(identifier)
    await send_json(send, 200, {"id": identifier, "object": "response", "deleted": True})


async def cancel(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """POST /v1/responses/{id}/cancel: a reply of this process is ended."""
    body: Any = await _turns(scope).cancel(_identifier(scope), scope["owner"])
    if body is None:
        kept = await _found(scope)
        if (status := _read_status(kept.body).status) != "cancelled":
            raise HttpError("invalid_request", f"Cannot cancel a {status} response.")
        body = msgspec.Raw(kept.body)
    await send_json(send, 200, body)


async def input_items(scope: Scope, receive: Receive, send: Send, token: str) -> None:
    """GET /v1/responses/{id}/input_items: the items of the response's own turn, the last first if not asked."""
    asked = _asked(scope)
    limit = asked.get("limit", str(_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= _MOST):
        raise HttpError("invalid_request", f"not a number from 1 to {_MOST}", path="limit")
    order = asked.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise HttpError("invalid_request", "neither asc nor desc", path="order")
    items = _read_items((await _found(scope)).input)
    if order == "desc":
        items.reverse()
    if after := asked.get("after", ""):
        place = next((place for place, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise HttpError("invalid_request", "no such item", path="after")
        items = items[place + 1 :]
    page = items[: int(limit)]
    told = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }
    await send_json(send, 200, told)


async def _found(scope: Scope) -> StoredResponse:
    identifier = _identifier(scope)
    store = _turns(scope).store
    kept = None if store is None else await store.find(identifier, scope["owner"])
    if kept is None:
        raise _unknown(identifier)
    return kept


def _turns(scope: Scope) -> ConversationState:
    turns: ConversationState = scope["gateway"].conversations
    return turns


def _identifier(scope: Scope) -> str:
    return str(scope["path_params"]["identifier"])


def _unknown(identifier: str) -> HttpError:
    return HttpError("not_found", f"Response with id {identifier[:_SHOWN]!r} not found.")


def _asked(scope: Scope) -> dict[str, str]:
    """What stands behind the path; the last where something stands there twice."""
    said = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return {name: values[-1] for name, values in said.items()}

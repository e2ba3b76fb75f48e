"""Stored responses as resources: GET, DELETE, cancel and input_items below /v1/responses."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from callboard.servers.gateway.conversation_state import StoredResponse
from callboard.servers.gateway.endpoints import ApiRequest, json_response
from callboard.servers.gateway.http_errors import HttpError

_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100
_MAX_SHOWN = 100
"""Characters of an identifier in a message."""


class _Status(msgspec.Struct):
    status: str


_decode_status = msgspec.json.Decoder(_Status).decode
_decode_items = msgspec.json.Decoder(list[dict[str, Any]]).decode


async def retrieve(request: ApiRequest) -> Response:
    """GET /v1/responses/{id}. Raise an HttpError if the query asks for a stream."""
    response = await _find(request)
    if request.query.get("stream", "false") != "false":
        raise HttpError("stream_not_supported", "a stored response is not streamed again", path="stream")
    return json_response(msgspec.Raw(response.body))


async def delete(request: ApiRequest) -> Response:
    """DELETE /v1/responses/{id}."""
    identifier = request.path_params["identifier"]
    store = request.services.conversations.store
    if store is None or not await store.delete(identifier, request.owner):
        raise _not_found(identifier)
    return json_response({"id": identifier, "object": "response", "deleted": True})


async def cancel(request: ApiRequest) -> Response:
    """POST /v1/responses/{id}/cancel: end a reply of this process."""
    body: Any = await request.services.conversations.cancel(request.path_params["identifier"], request.owner)
    if body is None:
        response = await _find(request)
        if (status := _decode_status(response.body).status) != "cancelled":
            raise HttpError("invalid_request", f"Cannot cancel a {status} response.")
        body = msgspec.Raw(response.body)
    return json_response(body)


async def input_items(request: ApiRequest) -> Response:
    """GET /v1/responses/{id}/input_items: the items of the response's own turn, by default the last first."""
    query = request.query
    limit = query.get("limit", str(_DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= _MAX_LIMIT):
        raise HttpError("invalid_request", f"not a number from 1 to {_MAX_LIMIT}", path="limit")
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise HttpError("invalid_request", "neither asc nor desc", path="order")
    items = _decode_items((await _find(request)).input)
    if order == "desc":
        items.reverse()
    if after := query.get("after", ""):
        index = next((index for index, item in enumerate(items) if item["id"] == after), None)
        if index is None:
            raise HttpError("invalid_request", "no such item", path="after")
        items = items[index + 1 :]
    page = items[: int(limit)]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > len(page),
        }
    )


async def _find(request: ApiRequest) -> StoredResponse:
    identifier = request.path_params["identifier"]
    store = request.services.conversations.store
    response = None if store is None else await store.find(identifier, request.owner)
    if response is None:
        raise _not_found(identifier)
    return response


def _not_found(identifier: str) -> HttpError:
    return HttpError("not_found", f"Response with id {identifier[:_MAX_SHOWN]!r} not found.")

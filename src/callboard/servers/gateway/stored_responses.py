"""Stored responses as resources: GET, DELETE, cancel and input_items below /v1/responses."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callboard.servers.gateway.conversation_state import StoredResponse
from callboard.servers.gateway.endpoints import ApiRequest, json_response
from callboard.servers.gateway.exchange import Exchange
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.response_stream import respond

_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100
_MAX_SHOWN = 100
"""Characters of an identifier in a message."""


class _Status(msgspec.Struct):
    status: str


_decode_status = msgspec.json.Decoder(_Status).decode
_decode_items = msgspec.json.Decoder(list[dict[str, Any]]).decode


class _StreamedResponse(Response):
    """A stream as an answer of Starlette's."""

    def __init__(self, exchange: Exchange, heartbeat: float) -> None:
        super().__init__()
        self._exchange = exchange
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(self._exchange, receive, send, self._heartbeat)


async def retrieve(request: ApiRequest) -> Response:
    """GET /v1/responses/{id}: the response as it is; one of the background also as a stream."""
    if request.query.get("stream", "false") == "false":
        return json_response(msgspec.Raw((await _find(request)).body))
    after = request.query.get("starting_after", "-1")
    if not (after == "-1" or (after.isascii() and after.isdecimal())):
        raise HttpError("invalid_request", "not the number of an event", path="starting_after")
    identifier = request.path_params["identifier"]
    exchange = await request.services.background.stream(identifier, request.owner, int(after[:9]))
    if exchange is None:
        await _find(request)
        raise HttpError("stream_not_supported", "only a background response is streamed again", path="stream")
    return _StreamedResponse(exchange, request.services.gateway.settings.heartbeat)


async def delete(request: ApiRequest) -> Response:
    """DELETE /v1/responses/{id}."""
    identifier = request.path_params["identifier"]
    store = request.services.conversations.store
    was_job = await request.services.background.delete(identifier, request.owner)
    was_kept = store is not None and await store.delete(identifier, request.owner)
    if not (was_job or was_kept):
        raise _not_found(identifier)
    return json_response({"id": identifier, "object": "response", "deleted": True})


async def cancel(request: ApiRequest) -> Response:
    """POST /v1/responses/{id}/cancel: end a background response, or a reply of this process."""
    if response := await request.services.background.cancel(request.path_params["identifier"], request.owner):
        return json_response(msgspec.Raw(response.body))
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
        response = await request.services.background.find(identifier, request.owner)
    if response is None:
        raise _not_found(identifier)
    return response


def _not_found(identifier: str) -> HttpError:
    return HttpError("not_found", f"Response with id {identifier[:_MAX_SHOWN]!r} not found.")

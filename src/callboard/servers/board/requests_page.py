"""The gateway's backends and its last requests, while they happen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.servers.board import request_page
from callboard.servers.board.input import read_value
from callboard.servers.board.live import PageUpdate, send_updates, wait
from callboard.servers.board.templating import now, render
from callboard.servers.board.traffic_display import digest, traffic_of
from callboard.servers.gateway.traffic_values import PROBLEMS, RowFilter, RowPage

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

LOOK_SECONDS: Final = 1.0
"""Between two looks while somebody watches the list."""
_FILTERS: Final = ("model", "backend", "end", "problem")
_ENDS: Final = ("open", "stop", "invocations", "length", "no_call", "failed", "refused", "left")


class ListQuery(NamedTuple):
    """What of the list is shown."""

    row_filter: RowFilter
    before: str = ""

    def encode(self) -> str:
        """As the query of an address."""
        fields = {**msgspec.structs.asdict(self.row_filter), "before": self.before}
        return urlencode({name: value for name, value in fields.items() if value})


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of the list, and those of one request."""

    async def show(request: Request) -> Response:
        query = _read_query(request)
        page = await traffic_of(board).page(query.row_filter, query.before)
        parts = _render_parts(board, board.values(request), page, query)
        return board.render(
            request,
            "requests.html",
            parts={name: markup for name, (_, markup) in parts.items()},
            live=f"/requests/live?{query.encode()}",
            row_filter=query.row_filter,
            problems=PROBLEMS,
            ends=_ENDS,
            models=page.models,
            backends=sorted({each.name for each in traffic_of(board).backends()}),
        )

    async def stream(request: Request) -> Response:
        return send_updates(board, request, _follow(board, board.values(request), _read_query(request)))

    return [
        Route("/requests", show),
        Route("/requests/live", stream),
        *request_page.routes(board),
    ]


async def _follow(board: Board, values: Mapping[str, Any], query: ListQuery) -> AsyncGenerator[PageUpdate]:
    """What changes in the list, for as long as the browser stays."""
    keys: dict[str, str] = {}
    while True:
        page = await traffic_of(board).page(query.row_filter, query.before)
        parts = _render_parts(board, values, page, query, keys)
        if parts:
            keys |= {name: key for name, (key, _) in parts.items()}
            yield PageUpdate(event="parts", data={name: markup for name, (_, markup) in parts.items()})
        if not await wait(board, LOOK_SECONDS):
            return


def _render_parts(
    board: Board,
    values: Mapping[str, Any],
    page: RowPage,
    query: ListQuery,
    known: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, tuple[str, Markup]]:
    """The parts of the page with their keys, but for those whose key is known."""
    backends = traffic_of(board).backends()
    more: dict[str, dict[str, Any]] = {
        "backends": {"backends": backends},
        "rows": {"page": page, "next_page": query._replace(before=page.cursor).encode() if page.cursor else ""},
    }
    keys = {"backends": digest(backends), "rows": digest(page)}
    shared = {**values, "now": now()}
    return {
        name: (keys[name], render(f"requests_{name}.html", {**shared, **fields, "key": keys[name]}))
        for name, fields in more.items()
        if known.get(name) != keys[name]
    }


def _read_query(request: Request) -> ListQuery:
    query = request.query_params
    fields = {name: read_value(query.get(name)) for name in _FILTERS}
    return ListQuery(RowFilter(**fields), read_value(query.get("before")))

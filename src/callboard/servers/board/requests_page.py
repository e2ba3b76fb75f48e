"""What the gateway does: its figures, its last requests, one of them side by side, and asking it again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.dialects import DIALECTS
from callboard.errors import CallerError
from callboard.modes.mode import MODES
from callboard.servers.gateway.traffic_values import (
    PROBLEMS,
    RepeatOrder,
    RequestRow,
    RequestView,
    RowFilter,
    TrafficSource,
)

if TYPE_CHECKING:
    from callboard.servers.board.app import Board, Form

_MAX_VALUE: Final = 500
"""Characters of a value that a browser sends."""
_FILTERS: Final = ("model", "backend", "end", "problem")


def routes(board: Board) -> Sequence[BaseRoute]:
    """The routes of the requests' pages."""
    pages = _RequestsPages(board)
    return [
        Route("/requests", pages.show_list),
        Route("/requests/{identifier}", pages.show_request),
        Route("/requests/{identifier}/again", board.action(pages.ask_again), methods=["POST"]),
        Route("/requests/{identifier}/keep", board.action(pages.keep), methods=["POST"]),
    ]


class _RequestsPages:
    def __init__(self, board: Board) -> None:
        self._board = board

    @property
    def _traffic(self) -> TrafficSource:
        traffic = self._board.parts.traffic
        if traffic is None:
            raise HTTPException(404)
        return traffic

    async def show_list(self, request: Request) -> Response:
        """GET: the figures, and a page of the list."""
        row_filter = RowFilter(**{name: _read_value(request.query_params.get(name)) for name in _FILTERS})
        before = _read_value(request.query_params.get("before"))
        overview = await self._traffic.overview()
        page = await self._traffic.page(row_filter, before)
        query = {name: value for name, value in msgspec.structs.asdict(row_filter).items() if value}
        return self._board.render(
            request,
            "requests.html",
            overview=overview,
            since=_to_time(overview.since),
            page=page,
            row_filter=row_filter,
            problems=PROBLEMS,
            ends=sorted({row.end for row in page.rows} | {"open", "failed", "refused", row_filter.end} - {""}),
            models=sorted({each.model for each in overview.models if each.model}),
            backends=sorted({each.name for each in overview.backends}),
            before=before,
            figures_key=_digest(overview),
            rows_key=_digest(page),
            this_page=urlencode(query | ({"before": before} if before else {})),
            next_page=urlencode({**query, "before": page.cursor}) if page.cursor else "",
            **_HELPERS,
        )

    async def show_request(self, request: Request) -> Response:
        """GET: one request side by side; with `dialect`, as that dialect would have read the `place`th answer."""
        identifier = _read_value(request.path_params["identifier"])
        view = await self._traffic.view(identifier)
        dialect = _read_value(request.query_params.get("dialect"))
        place = _read_place(request.query_params.get("place", ""), view)
        other_events = await self._traffic.read_as(identifier, place, dialect) if dialect else ()
        earlier = await self._find_earlier(view)
        overview = await self._traffic.overview()
        return self._board.render(
            request,
            "request.html",
            view=view,
            view_key=_digest(view),
            **_HELPERS,
            at=_to_time(view.row.at),
            dialect=dialect,
            place=place,
            other_events=other_events,
            earlier=earlier,
            again=(await self._traffic.page(RowFilter(again_of=identifier))).rows,
            dialects=sorted(DIALECTS),
            modes=list(MODES),
            models=sorted({name for each in overview.backends for name in each.models}),
            backends=sorted({each.name for each in overview.backends}),
            can_keep=self._board.parts.keep_test is not None and not view.row.is_open,
        )

    async def ask_again(self, request: Request, form: Form) -> Response:
        """POST: ask the request again, otherwise, and show the new one."""
        order = RepeatOrder(
            **{name: _read_value(form.get(name)).strip() for name in RepeatOrder.__struct_fields__},
        )
        repeated = await self._traffic.repeat(_read_value(request.path_params["identifier"]), order)
        return self._board.redirect(request, f"/requests/{repeated}")

    async def keep(self, request: Request, _: Form) -> Response:
        """POST: keep the reply as a test."""
        keep_test = self._board.parts.keep_test
        if keep_test is None:
            raise HTTPException(404)
        reply = await self._traffic.kept_reply(_read_value(request.path_params["identifier"]))
        kept = await asyncio.to_thread(keep_test, reply)
        return self._board.render(request, "kept_test.html", kept=kept, back=f"/requests/{reply.name}")

    async def _find_earlier(self, view: RequestView) -> RequestView | None:
        """The request that this one asks again, where it is still in the log."""
        try:
            return await self._traffic.view(view.row.again_of) if view.row.again_of else None
        except CallerError:
            return None


def format_seconds(seconds: float | None) -> str:
    """Seconds with three digits that count; a dash where it is not known."""
    if seconds is None:
        return "-"
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}" if seconds < 100 else f"{seconds:.0f}"


def list_remarks(row: RequestRow) -> list[str]:
    """What is worth a look in a row, in words."""
    counts = (("calls from text", row.recovered), ("repaired", row.repaired), ("lost", len(row.dropped)))
    labels = dict.fromkeys([label.name for label in row.labels])
    again = [f"asks {row.again_of} again"] if row.again_of else []
    return [*[f"{count} {name}" for name, count in counts if count], *labels, *again]


def _digest(value: object) -> str:
    """Changes with the value."""
    return sha256(msgspec.msgpack.encode(value)).hexdigest()[:16]


def _to_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _read_value(value: str | None) -> str:
    return (value or "")[:_MAX_VALUE]


_HELPERS: Final[Mapping[str, Any]] = {"seconds": format_seconds, "remarks": list_remarks, "to_time": _to_time}
"""Functions that the templates call."""


def _read_place(text: str, view: RequestView) -> int:
    """Which of a request's answers is read: by default the last."""
    last = len(view.replies) - 1
    return min(int(text), last) if text.isdecimal() and len(text) < 5 else last

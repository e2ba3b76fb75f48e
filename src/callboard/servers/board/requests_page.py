"""The gateway's backends and its latest requests, live.

The page of one request shows the raw request next to its meaning, as other dialects read it, and can ask it again.

The pages of the gateway's requests share their source and the format of their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.dialects import DIALECTS
from callboard.errors import CallerError
from callboard.modes.mode import MODES
from callboard.servers.board.browser import Form, follow_parts, read_number, read_value, require, send_updates
from callboard.servers.board.charts import chart_requests
from callboard.servers.board.comparison import compare_readings
from callboard.servers.board.templating import now, render
from callboard.servers.board.tests_page import keep_routes
from callboard.servers.gateway.traffic_values import (
    PAGE_SIZE,
    PROBLEMS,
    KeptReply,
    RepeatOrder,
    ReplyReading,
    RequestView,
    RowFilter,
    RowPage,
)

if TYPE_CHECKING:
    from callboard.servers.board.app import Board


MODELS: Final = 200
"""Maximum models of a backend to choose from."""
REQUEST_LOOK_SECONDS: Final = 0.3
"""Seconds between polls of a request that is not answered yet."""


def request_routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        """Show a request. With `dialect`, parse the answer number `place` as that dialect."""
        identifier, dialect = _read_identifier(request), read_value(request.query_params.get("dialect"))
        traffic = require(board.parts.traffic)
        view = await traffic.view(identifier)
        place = _read_place(request.query_params.get("place", ""), view)
        markup = await _render_sides(board, board.values(request), view, dialect, place)
        return board.render(
            request,
            "request.html",
            sides=markup,
            view=view,
            row=view.row,
            dialect=dialect,
            place=place,
            again=(await traffic.page(RowFilter(again_of=identifier))).rows,
            dialects=sorted(DIALECTS),
            finding=() if view.row.is_open else await traffic.find_dialects(identifier, place),
            modes=list(MODES),
            models=sorted({name for each in traffic.backends for name in each.model_names()[:MODELS]}),
            backends=sorted({each.name for each in traffic.backends}),
        )

    async def stream(request: Request) -> Response:
        """Follow a request until it is answered. Then reload the page, which enables all actions."""
        values, identifier = board.values(request), _read_identifier(request)

        async def read() -> dict[str, Markup] | None:
            view = await require(board.parts.traffic).view(identifier)
            return {"sides": await _render_sides(board, values, view)} if view.row.is_open else None

        return send_updates(board, request, follow_parts(board, read, REQUEST_LOOK_SECONDS))

    async def ask_again(request: Request, form: Form) -> Response:
        """Ask the request again with changes, and show the new one."""
        order = RepeatOrder(**{name: read_value(form.get(name)).strip() for name in RepeatOrder.__struct_fields__})
        repeated = await require(board.parts.traffic).repeat(_read_identifier(request), order)
        return board.redirect(request, f"/requests/{repeated}")

    async def read_reply(request: Request) -> KeptReply:
        return await require(board.parts.traffic).kept_reply(_read_identifier(request))

    path = "/requests/{identifier}"
    return [
        Route(path, show),
        Route(f"{path}/live", stream),
        Route(f"{path}/again", board.action(ask_again), methods=["POST"]),
        *keep_routes(board, f"{path}/keep", read_reply),
    ]


async def _render_sides(
    board: Board, values: Mapping[str, Any], view: RequestView, dialect: str = "", place: int = 0
) -> Markup:
    """Render everything known about a request."""
    traffic, earlier = require(board.parts.traffic), await _find_earlier(board, view)
    other = await traffic.read_as(view.row.identifier, place, dialect) if dialect and view.replies else None
    fields = {
        "view": view,
        "row": view.row,
        "dialect": dialect,
        "place": place,
        "other": other,
        "readings": other and compare_readings(view.replies[place].reading, other, ("c", "d")),
        "earlier": earlier,
        "again": earlier and compare_readings(_last_reading(earlier), _last_reading(view)),
        "session": traffic.find_session(view.row.session),
    }
    return render("request_sides.html", {**values, **fields})


def _last_reading(view: RequestView) -> ReplyReading:
    return view.replies[-1].reading if view.replies else ReplyReading()


async def _find_earlier(board: Board, view: RequestView) -> RequestView | None:
    """Return the request that this one repeats, if it is still in the log."""
    with suppress(CallerError):
        return await require(board.parts.traffic).view(view.row.again_of)
    return None


def _read_identifier(request: Request) -> str:
    return read_value(request.path_params["identifier"])


def _read_place(text: str, view: RequestView) -> int:
    """Return the index of the answer to show, by default the last."""
    number, last = read_number(text), len(view.replies) - 1
    return last if number is None else min(number, last)


def session_routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        parts = await _render_session(board, board.values(request), _read_identifier(request))
        session = require(board.parts.traffic).find_session(_read_identifier(request))
        return board.render(request, "session.html", parts=parts, session=session)

    async def stream(request: Request) -> Response:
        read = partial(_render_session, board, board.values(request), _read_identifier(request))
        return send_updates(board, request, follow_parts(board, read))

    return [Route("/requests/sessions/{identifier}", show), Route("/requests/sessions/{identifier}/live", stream)]


async def _render_session(board: Board, values: Mapping[str, Any], identifier: str) -> dict[str, Markup]:
    """Render a session, with the turns that are still in the log."""
    session = require(board.parts.traffic).find_session(identifier)
    if session is None:
        hint = "the gateway has only its latest sessions since it started"
        raise CallerError("this session is no longer kept", path=identifier[:100], hint=hint)
    rows = await require(board.parts.traffic).turns(identifier)
    return {"session": render("session_parts.html", {**values, "session": session, "rows": rows})}


CHARTED: Final = 5000
"""Maximum requests in the charts."""
_FILTERS: Final = ("model", "client", "backend", "end", "problem")
_ENDS: Final = ("open", "stop", "invocations", "length", "no_call", "failed", "refused", "left")


def routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        query = _read_query(request)
        every = await _read_page(board, {**query, "before": ""}, CHARTED)
        return board.render(
            request,
            "requests.html",
            parts=await _render_parts(board, board.values(request), query),
            query=query,
            problems=PROBLEMS,
            ends=_ENDS,
            models=every.models,
            clients=every.clients,
            charts=chart_requests(every.rows, now()),
            backends=sorted({each.name for each in require(board.parts.traffic).backends}),
        )

    async def stream(request: Request) -> Response:
        read = partial(_render_parts, board, board.values(request), _read_query(request))
        return send_updates(board, request, follow_parts(board, read))

    return [
        Route("/requests", show),
        Route("/requests/live", stream),
        *session_routes(board),
        *request_routes(board),
    ]


async def _render_parts(board: Board, values: Mapping[str, Any], query: Mapping[str, str]) -> dict[str, Markup]:
    """Render the parts of the page that change, by the ids of their elements."""
    traffic = require(board.parts.traffic)
    values = {
        **values,
        "backends": [(each, each.breaker.state(monotonic())) for each in traffic.backends],
        "page": await _read_page(board, query),
        "query": query,
        "sessions": {each.identifier for each in await traffic.sessions()},
    }
    return {name: render(f"requests_{name}.html", values) for name in ("backends", "rows")}


def _read_query(request: Request) -> dict[str, str]:
    """Return the fields of the form, and the cursor of the page before. Empty fields select all requests."""
    return {name: read_value(request.query_params.get(name)) for name in (*_FILTERS, "before")}


async def _read_page(board: Board, query: Mapping[str, str], limit: int = PAGE_SIZE) -> RowPage:
    chosen = RowFilter(**{name: query[name] for name in _FILTERS})
    return await require(board.parts.traffic).page(chosen, query["before"], limit)

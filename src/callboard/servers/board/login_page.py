"""The pages on which one logs in and out.

A link only shows a page; its form, which our script sends by itself, uses the link up. So what loads a link to look at it,
as messengers and virus scanners do, does not take it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.servers.board.input import Form, read_form, read_value
from callboard.servers.board.login import SESSION_SECONDS

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

REASONS: Final = {
    "used": "This link was used before: each logs in once.",
    "expired": "This link is too old.",
    "wrong": "This is not a link of this board.",
}


def routes(board: Board) -> Sequence[BaseRoute]:
    """The login's routes."""

    async def show(request: Request) -> Response:
        if request.state.session:
            return board.redirect(request, "/")
        token = read_value(request.query_params.get("token"))
        return board.render(request, "login.html", token=token, reason="")

    async def log_in(request: Request) -> Response:
        # There is no session yet whose token the form could have: the link is what another page does not know.
        form = await read_form(request)
        state = board.login.use_link_token(form.get("link", ""))
        if state != "ok":
            return board.render(request, "login.html", status=403, token="", reason=REASONS[state])
        response = board.redirect(request, "/")
        response.set_cookie(
            board.login.cookie,
            board.login.begin_session(),
            max_age=SESSION_SECONDS,
            path=request.scope.get("root_path", "") or "/",
            # Also behind a proxy that speaks TLS for us, of which only the browser tells.
            secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
            httponly=True,
            samesite="strict",
        )
        return response

    async def log_out(request: Request, _: Form) -> Response:
        board.login.end_session(request.state.session)
        response = board.redirect(request, "/login")
        response.delete_cookie(board.login.cookie, path=request.scope.get("root_path", "") or "/")
        return response

    return [
        Route("/login", show),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", board.action(log_out), methods=["POST"]),
    ]

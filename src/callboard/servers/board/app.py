"""The board as routes: for its own server, and for the gateway's.

`Board` is made out of what there is to show; a page whose part is missing is not there. It is entered as an asynchronous
context manager for as long as it serves.

Law: a route that changes something takes POST alone, and only with the token of the session's own forms.

The pages of the board, in the order of its navigation: a row for each.

A new page is a row here, a module with a function `routes`, and a field of `BoardParts` that says whether it has something
to show. A page's module is imported only where its part is there: that of the jobs needs the extra `jobs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.errors import CallboardError, CallerError
from callboard.servers.board.browser import Form, read_form
from callboard.servers.board.login import LOOPBACK_NAMES, Guard, Login, login_routes, name_session
from callboard.servers.board.templating import now, render, send_asset
from callboard.servers.listening import call_at_signals

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from callboard.jobs.client import JobClient
    from callboard.jobs.job import DurableJob
    from callboard.servers.board.tools_page import ToolsPart
    from callboard.servers.gateway.app import Extension
    from callboard.servers.gateway.traffic import Traffic
    from callboard.servers.gateway.traffic_values import KeptReply, KeptTest


class BoardPage(NamedTuple):
    """A page in the navigation: its title, its path below the board's own, its module, and the part that it shows."""

    title: str
    path: str
    module: str
    part: str

    def routes(self, board: Board) -> Sequence[BaseRoute]:
        routes: Sequence[BaseRoute] = import_module(f"callboard.servers.board.{self.module}").routes(board)
        return routes


PAGES: Final[Sequence[BoardPage]] = (
    BoardPage("Jobs", "/jobs", "jobs_page", "jobs"),
    BoardPage("Requests", "/requests", "requests_page", "traffic"),
    BoardPage("Tools", "/tools", "tools_page", "tools"),
)


PREFIX: Final = "/board"
"""Where the board is, on its own server as well as on the gateway's, so that a deep link is the same on both."""

ActionHandler: TypeAlias = Callable[[Request, Form], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class BoardParts:
    """What a board shows. A part that is None has no page."""

    jobs: Callable[[], AbstractAsyncContextManager[JobClient]] | None = None
    """Opens the database of durable jobs."""
    start_worker: Callable[[JobClient, DurableJob], None] = lambda client, job: None
    """Starts a worker for a job that goes on, where none would run it; it is called in a thread."""
    traffic: Traffic | None = None
    """The requests of a gateway."""
    tools: ToolsPart | None = None
    """Ensembles and MCP servers."""
    keep_test: Callable[[KeptReply], KeptTest] | None = None
    """Makes a test of a reply; it is called in a thread."""


class Board:
    """The board of these parts.

    Args:
        parts: What it shows.
        login: Who may look.
        hosts: The names under which it is reached, besides those of this machine.
    """

    def __init__(self, parts: BoardParts, login: Login, hosts: Collection[str] = ()) -> None:
        self.parts = parts
        self.login = login
        self.closing = asyncio.Event()
        """Set when the server is told to stop, so that streams end before it waits for them."""
        self._hosts = LOOPBACK_NAMES.union(hosts)
        self._resources = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._jobs: JobClient | None = None

    async def __aenter__(self) -> Self:
        if self.parts.traffic is not None:
            await self._resources.enter_async_context(self.parts.traffic)
        call_at_signals(self.closing.set)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.closing.set()
        await self._resources.aclose()

    async def open(self) -> None:
        """Open the database of jobs, unless it is open. Until somebody looks, a gateway's board costs nothing."""
        async with self._opening:
            if self._jobs is None and self.parts.jobs is not None:
                self._jobs = await self._resources.enter_async_context(self.parts.jobs())

    @property
    def jobs(self) -> JobClient:
        """The durable jobs. Raises CallerError where the board is not open, or shows none."""
        if self._jobs is None:
            raise CallerError("this board shows no jobs", path="jobs")
        return self._jobs

    @cached_property
    def pages(self) -> list[BoardPage]:
        """Those whose part is there, in the order of the navigation."""
        return [page for page in PAGES if getattr(self.parts, page.part) is not None]

    def routes(self) -> list[BaseRoute]:
        pages = [route for page in self.pages for route in page.routes(self)]
        routes: list[BaseRoute] = [
            Route("/", self._go_to_first),
            Route("/static/{path:path}", send_asset),
            *login_routes(self),
            Mount("", routes=pages, middleware=[Middleware(_Opener, board=self)]),
        ]
        inner = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, login=self.login, hosts=self._hosts)],
            exception_handlers={CallboardError: self._show_error, HTTPException: self._show_missing},
        )
        return [Route(PREFIX, _add_slash), Mount(PREFIX, app=inner)]

    def render(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(render(template, {**self.values(request), **values}), status)

    def values(self, request: Request) -> dict[str, Any]:
        session = request.scope.get("state", {}).get("session", "")
        base = request.scope.get("root_path", "")
        return {
            "base": base,
            "path": request.scope["path"].removeprefix(base),
            "pages": self.pages if session else [],
            "form_token": self.login.form_token(session) if session else "",
            "author": name_session(session) if session else "",
            # Cached, so that the token of a stream says when the question was first shown.
            "sign_look": cache(partial(self.login.make_look_token, session)),
            "can_keep": self.parts.keep_test is not None,
            "now": now(),
        }

    def action(self, handler: ActionHandler) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for POST, which is called with the fields of a form of this session."""

        async def act(request: Request) -> Response:
            form = await read_form(request)
            if not self.login.is_form_token(request.state.session, form.get("token", "")):
                raise HTTPException(403, "the form is not of this session; load the page anew and send it again")
            return await handler(request, form)

        return act

    def redirect(self, request: Request, path: str) -> Response:
        """Lead the browser to another page of the board, which it asks for by GET."""
        return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)

    async def start_worker(self, job: DurableJob) -> None:
        """Let a job that goes on find a worker."""
        if job.state == "pending":
            await asyncio.to_thread(self.parts.start_worker, self.jobs, job)

    async def _go_to_first(self, request: Request) -> Response:
        if not self.pages:
            raise HTTPException(404, "this board has nothing to show")
        return self.redirect(request, self.pages[0].path)

    async def _show_error(self, request: Request, error: Exception) -> Response:
        message, hint, path = str(error), "", ""
        if isinstance(error, CallboardError):
            message, hint, path = error.message, error.hint, error.path
        status = 409 if request.method == "POST" else 404 if isinstance(error, CallerError) else 503
        return self.render(request, "error.html", status=status, message=message, hint=hint, where=path)

    async def _show_missing(self, request: Request, error: Exception) -> Response:
        status, message = 404, "there is no such page"
        if isinstance(error, HTTPException):
            status = error.status_code
            message = message if status == 404 and error.detail == "Not Found" else error.detail
        return self.render(request, "error.html", status=status, message=message, hint="", where="")


class _Opener:
    """Opens the board before a page is made, for whoever is logged in."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app = app
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("state", {}).get("session"):  # whatever else a client sends to the login's address has none
            await self._board.open()
        await self._app(scope, receive, send)


def board_application(
    board: Board, extension: Extension | None = None, more_routes: Collection[BaseRoute] = ()
) -> Starlette:
    """The application of the board's own server, with the routes of an extension and others."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with board, extension or nullcontext():
            yield

    more = extension.routes() if extension else ()
    return Starlette(routes=[Route("/", _lead_to_board), *board.routes(), *more, *more_routes], lifespan=lifespan)


async def _lead_to_board(_: Request) -> Response:
    return RedirectResponse(f"{PREFIX}/", 303)


async def _add_slash(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}/", 303)

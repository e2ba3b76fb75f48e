"""The routes of the board, for its own server and for the gateway's.

A `Board` is built from its parts. A part that is missing has no page. Enter the board as an asynchronous context
manager while it serves.

Law: a route that changes something accepts only POST, and only with the token of the session's own forms.

To add a page, add a row to `PAGES`, a module with a function `routes`, and a field of `BoardParts`. Modules are imported
only if their part is present: the jobs page needs the extra `jobs`.
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
from callboard.servers.board.browser import Form, find_back, read_form
from callboard.servers.board.login import LOOPBACK_NAMES, Guard, Login, login_routes, name_session
from callboard.servers.board.templating import ASSETS, now, render
from callboard.servers.listening import call_at_signals

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from callboard.jobs.client import JobClient
    from callboard.jobs.job import DurableJob
    from callboard.servers.board.tests_page import KeptTests
    from callboard.servers.board.tools_page import ToolsPart
    from callboard.servers.gateway.app import Extension
    from callboard.servers.gateway.traffic import Traffic


class BoardPage(NamedTuple):
    """A page in the navigation: its title, its path below the board's own, its module, and its part."""

    title: str
    path: str
    module: str
    part: str

    def routes(self, board: Board) -> Sequence[BaseRoute]:
        routes: Sequence[BaseRoute] = import_module(f"callboard.servers.board.{self.module}").routes(board)
        return routes


PAGES: Final[Sequence[BoardPage]] = (
    BoardPage("Activity", "/jobs", "jobs_page", "jobs"),
    BoardPage("Requests", "/requests", "requests_page", "traffic"),
    BoardPage("Tools", "/tools", "tools_page", "tools"),
    BoardPage("Kept tests", "/tests", "tests_page", "tests"),
)


PREFIX: Final = "/board"
"""Path of the board on its own server and on the gateway's, so that deep links are the same on both."""

ActionHandler: TypeAlias = Callable[[Request, Form], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class BoardParts:
    """Contents of a board. A part that is None has no page."""

    jobs: Callable[[], AbstractAsyncContextManager[JobClient]] | None = None
    """Opens the database of durable jobs."""
    start_worker: Callable[[JobClient, DurableJob], None] = lambda client, job: None
    """Starts a worker for a job that continues if no other process would run it. Called in a thread."""
    read_budget: Callable[[], float | None] = lambda: None
    """Returns the daily budget of all jobs in US dollars."""
    traffic: Traffic | None = None
    """The requests of a gateway."""
    tools: ToolsPart | None = None
    """Ensembles and MCP servers."""
    tests: KeptTests | None = None
    """Keeps tests and runs them. Called in a thread."""


class Board:
    """A board with the given parts.

    Args:
        parts: Contents of the board.
        login: Decides who may log in.
        hosts: Host names of the board, beyond the names of this machine.
    """

    def __init__(self, parts: BoardParts, login: Login, hosts: Collection[str] = ()) -> None:
        self.parts = parts
        self.login = login
        self.closing = asyncio.Event()
        """Set when the server stops, so that streams end before the server waits for them."""
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
        """Open the database of jobs, unless it is open. A gateway's board costs nothing until its first visitor."""
        async with self._opening:
            if self._jobs is None and self.parts.jobs is not None:
                self._jobs = await self._resources.enter_async_context(self.parts.jobs())

    @property
    def jobs(self) -> JobClient:
        """The durable jobs. Raises CallerError if the board is not open or shows no jobs."""
        if self._jobs is None:
            raise CallerError("this board shows no jobs", path="jobs")
        return self._jobs

    @cached_property
    def pages(self) -> list[BoardPage]:
        """Pages whose part is present, in the order of the navigation."""
        return [page for page in PAGES if getattr(self.parts, page.part) is not None]

    def routes(self) -> list[BaseRoute]:
        pages = [route for page in self.pages for route in page.routes(self)]
        routes: list[BaseRoute] = [
            Route("/", self._go_to_first),
            *ASSETS.values(),
            *login_routes(self),
            Mount("", routes=pages, middleware=[Middleware(_Opener, board=self)]),
        ]
        inner = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, login=self.login, hosts=self._hosts)],
            exception_handlers={CallboardError: self._show_error, HTTPException: self._show_error},
        )
        return [Route(PREFIX, _lead_to_board), Mount(PREFIX, app=inner)]

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
            "can_keep": self.parts.tests is not None,
            "now": now(),
        }

    def action(self, handler: ActionHandler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint for POST that calls the handler with the fields of a form of this session."""

        async def act(request: Request) -> Response:
            form = await read_form(request)
            if not self.login.is_form_token(request.state.session, form.get("token", "")):
                raise HTTPException(403, "the form belongs to another session: reload the page and send it again")
            return await handler(request, form)

        return act

    def redirect(self, request: Request, path: str) -> Response:
        """Redirect the browser to another page of the board, which it requests with GET."""
        return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)

    async def start_worker(self, job: DurableJob) -> None:
        """Find a worker for a job that continues."""
        if job.state == "pending":
            await asyncio.to_thread(self.parts.start_worker, self.jobs, job)

    async def _go_to_first(self, request: Request) -> Response:
        if not self.pages:
            raise HTTPException(404, "this board has nothing to show")
        return self.redirect(request, self.pages[0].path)

    async def _show_error(self, request: Request, error: Exception) -> Response:
        fields = {name: getattr(error, name, "") for name in ("message", "hint", "path", "page")}
        status = 409 if request.method == "POST" else 404 if isinstance(error, CallerError) else 503
        if isinstance(error, HTTPException):
            status, fields["message"] = error.status_code, error.detail
            if fields["message"] == "Not Found":
                fields["message"] = "page not found"
        return self.render(request, "error.html", status=status, error=fields, back=find_back(request))


class _Opener:
    """Opens the board before a page is rendered, for logged-in users."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app = app
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("state", {}).get("session"):  # other requests to the login page have no session
            await self._board.open()
        await self._app(scope, receive, send)


def board_application(
    board: Board, extension: Extension | None = None, more_routes: Collection[BaseRoute] = ()
) -> Starlette:
    """Build the application of the board's own server, with the routes of extensions."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with board, extension or nullcontext():
            yield

    more = extension.routes() if extension else ()
    return Starlette(routes=[Route("/", _lead_to_board), *board.routes(), *more, *more_routes], lifespan=lifespan)


async def _lead_to_board(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}/", 303)

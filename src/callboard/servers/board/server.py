"""The board's own server: uvicorn, on this machine unless a `url` says how others reach it.

`/metrics` of the board's own server reports how many jobs wait and run, and the tools that ran in this process.

Law: `/metrics` is only for this machine. Prometheus has no session, so no login is required. Requests from other
machines or with other host names are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from callboard.errors import CallboardError, CallerError
from callboard.extras import is_extra_installed
from callboard.servers.board.app import PREFIX, Board, BoardParts, board_application
from callboard.servers.board.login import LOOPBACK_NAMES, Login
from callboard.servers.hosts import host_name, is_loopback
from callboard.servers.listening import OrderlyServer, listen, report_failure
from callboard.telemetry.logs import configure_logs
from callboard.telemetry.turn_on import LogFormat

if TYPE_CHECKING:
    from callboard.servers.gateway.app import Extension

PATH: Final = "/metrics"


def make_metrics_routes(board: Board) -> list[BaseRoute]:
    """Return the route of the metrics, or of a hint if the extra is missing."""
    if board.parts.jobs is None:
        return []
    if not is_extra_installed("otel"):
        hint = "metrics for Prometheus need the extra otel: pip install 'callboard[otel]'\n"
        return [Route(PATH, PlainTextResponse(hint, 404))]
    from prometheus_client import CollectorRegistry  # noqa: PLC0415  # from the extra

    from callboard.jobs.metrics import JobStates  # noqa: PLC0415
    from callboard.jobs.queries import count_open_jobs  # noqa: PLC0415  # SQLAlchemy is from an extra
    from callboard.telemetry.prometheus import CONTENT_TYPE, render_metrics, tool_metrics  # noqa: PLC0415

    tools = tool_metrics()

    async def show(request: Request) -> Response:
        client = request.client.host if request.client else ""
        if not is_loopback(client) or host_name(request.headers.get("host", "")) not in LOOPBACK_NAMES:
            return PlainTextResponse("metrics are available only from this machine\n", 403)
        counts: Mapping[str, int] = {}
        with suppress(CallboardError):  # no jobs to show, or the database is unavailable
            await board.open()
            counts = await board.jobs.store.database.read(count_open_jobs)
        registry = CollectorRegistry()
        registry.register(JobStates(lambda: counts))
        return Response(render_metrics([registry, tools.registry]), media_type=CONTENT_TYPE)

    return [Route(PATH, show, methods=["GET"])]


_SHUTDOWN_SECONDS: Final = 3
"""Seconds that open requests get at shutdown. Streams end at once."""


def serve_board(
    parts: BoardParts,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    url: str = "",
    ready: Callable[[str, str], None] = lambda url, link: None,
    login: Login | None = None,
    extension: Extension | None = None,
    log_format: LogFormat = "text",
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        parts: Contents of the board.
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        url: Address at which others reach the board, such as the address of a proxy.
        ready: Called with the board's address and a link that logs in once.
        login: By default the login of the user's state directory.
        extension: More routes.
        log_format: Format of the log on standard error.

    Raises:
        CallerError: The address does not exist, is in use, or is reachable from outside without a `url`.
    """
    hosts = board_hosts(host, url)
    login = login or Login()
    configure_logs(logging.WARNING, log_format)
    hint = "is another board running? --port 0 picks a free port"

    async def run() -> None:
        board = Board(parts, login, hosts)
        # With a proxy, every request comes from this machine.
        more_routes = [] if url or not is_loopback(host) else make_metrics_routes(board)
        with closing(listen(host, port, hint=hint)) as listening:
            address = url.rstrip("/") or local_url(host, listening.getsockname()[1])
            config = uvicorn.Config(
                report_failure(board_application(board, extension, more_routes)),
                lifespan="on",
                access_log=False,
                proxy_headers=False,
                log_config=None,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            )
            await board.open()  # report a problem with the database immediately
            server = OrderlyServer(config, lambda: ready(f"{address}{PREFIX}/", login_link(login, address)))
            await server.serve(sockets=[listening])

    asyncio.run(run())


def board_hosts(host: str, url: str, *, option: str = "--url") -> Collection[str]:
    """Return the host names of a board, beyond the names of this machine.

    `option` is the name of the option for the `url`.

    Raises:
        CallerError: Others can reach the host but `url` is missing or is not a valid address.
    """
    if url:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc:
            raise CallerError("not the address of a web page", path=option, hint="such as https://board.example.org")
        if not (name := host_name(parts.netloc)):
            hint = "write the name in ASCII, as browsers send it, such as xn--bcher-kva.example"
            raise CallerError("not the name of a host", path=option, hint=hint)
        return {name}
    if not is_loopback(host):
        hint = f"give the address of the board, such as {option} https://board.example.org"
        raise CallerError("others on the network could try to log in", path=f"--host {host}", hint=hint)
    return {f"[{host}]" if ":" in host else host.lower()}


def local_url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def login_link(login: Login, address: str) -> str:
    """Return a link that logs in once, for the board at an address."""
    return f"{address}{PREFIX}/login?token={quote(login.make_link_token())}"

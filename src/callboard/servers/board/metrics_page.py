"""`/metrics` of the board's own server: how many jobs wait and run, and the tools that ran in this process.

Law: it is for this machine. Prometheus has no session, so nobody logs in; whoever asks from elsewhere, or by a name that
is not this machine's, gets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callboard.errors import CallboardError
from callboard.jobs.metrics import JobStates
from callboard.jobs.queries import count_open_jobs
from callboard.servers.board.guard import LOOPBACK_NAMES
from callboard.servers.listening import host_name, is_loopback
from callboard.telemetry.prometheus import CONTENT_TYPE, render_metrics, tool_metrics

if TYPE_CHECKING:
    from callboard.servers.board.app import Board

PATH: Final = "/metrics"


def metrics_route(board: Board) -> Route:
    """The route of a board's figures."""
    tools = tool_metrics()

    async def show(request: Request) -> Response:
        client = request.client.host if request.client else ""
        if not is_loopback(client) or host_name(request.headers.get("host", "")) not in LOOPBACK_NAMES:
            return PlainTextResponse("figures are for this machine alone\n", 403)
        counts: Mapping[str, int] = {}
        with suppress(CallboardError):  # it shows no jobs, or the database is away
            await board.open()
            counts = await board.jobs.store.database.read(count_open_jobs)
        registry = CollectorRegistry()
        registry.register(JobStates(lambda: counts))
        return Response(render_metrics([registry, tools.registry]), media_type=CONTENT_TYPE)

    return Route(PATH, show, methods=["GET"])

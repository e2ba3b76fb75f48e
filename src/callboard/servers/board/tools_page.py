"""The available tools: ensembles that run in the gateway, and MCP servers with their states and pins.

Law: viewing the list does not connect to a server. A server is connected only when a person asks for it, and only to
list its tools.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.mcp import Pins, ServerSettings
from callboard.mcp.server_report import ServerReport, report_server
from callboard.servers.board.browser import Form, require
from callboard.servers.board.templating import now

if TYPE_CHECKING:
    from callboard.servers.board.app import Board
    from callboard.servers.gateway.hosted_tools import HostedTools


class ToolsPart(msgspec.Struct, frozen=True):
    """Contents of the page: the MCP servers of the settings, and the gateway's own tools, if there are any."""

    find_servers: Callable[[], Mapping[str, ServerSettings]]
    """Reads the settings. Called in a thread."""
    hosted: HostedTools | None = None


def routes(board: Board) -> Sequence[BaseRoute]:
    reports: dict[str, tuple[ServerReport, datetime]] = {}  # the last of each server, since the board started

    async def show(request: Request) -> Response:
        part = require(board.parts.tools)
        return board.render(
            request,
            "tools.html",
            hosted=part.hosted,
            servers=await asyncio.to_thread(part.find_servers),
            pins={each.server: each.tools for each in await asyncio.to_thread(Pins(read_only=True).list_all)},
            reports=reports,
            uses=await read_use(board) if board.parts.jobs else [],
        )

    async def check(request: Request, _: Form) -> Response:
        """Connect to a server once, and show its tools."""
        servers = await asyncio.to_thread(require(board.parts.tools).find_servers)
        settings = require(servers.get(request.path_params["name"]))
        report = await report_server(settings)
        reports[settings.name] = report, now()
        return board.render(request, "server.html", report=report)

    return [Route("/tools", show), Route("/tools/{name}/check", board.action(check), methods=["POST"])]


RECENT_JOBS: Final = 100
"""Jobs whose calls are counted."""
MAX_ENTRIES: Final = 1000
"""Maximum entries that are read of each of them."""


class ToolUse(msgspec.Struct):
    """The calls of one tool in the recent jobs."""

    name: str
    calls: int = 0
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of failures by category."""
    seconds: list[float] = []
    last_failure: str = ""
    job: str = ""
    """The job of the last failure."""

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None


async def read_use(board: Board) -> list[ToolUse]:
    """Return the tools that the recent jobs called, the most failed and most called first."""
    from callboard.jobs.steps import build_trace  # noqa: PLC0415  # a board without jobs lacks the extra

    store = board.jobs.store
    uses: dict[str, ToolUse] = {}
    for job in reversed(await store.list(limit=RECENT_JOBS)):
        if not job.calls:
            continue
        entries = await store.read_entries(job.id, 0, MAX_ENTRIES)
        for call in [call for each in await asyncio.to_thread(build_trace, entries) for call in each.calls]:
            use = uses.setdefault(call.name, ToolUse(call.name))
            use.calls += 1
            if call.seconds is not None:
                use.seconds.append(call.seconds)
            if call.state == "failed":
                use.failures[call.failure.partition(":")[0]] += 1
                use.last_failure, use.job = call.failure, job.id
    return sorted(uses.values(), key=lambda each: (-each.failures.total(), -each.calls))

"""The tools at hand: ensembles that run in the gateway, and MCP servers with their states and pins.

Law: to look at the list connects nothing; a server is connected when a person asks for it, and then only to list its
tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from callboard.servers.board.browser import Form
from callboard.tools.ensemble import Ensemble

if TYPE_CHECKING:
    from callboard.mcp.settings import ServerSettings
    from callboard.servers.board.app import Board
    from callboard.servers.gateway.hosted_tools import HostedTools


class ToolsPart(msgspec.Struct, frozen=True):
    """What the page shows: the MCP servers of the settings, and the gateway's own tools, if there is one."""

    find_servers: Callable[[], Mapping[str, ServerSettings]]
    """Reads the settings; it is called in a thread."""
    hosted: HostedTools | None = None


class GatewayTool(msgspec.Struct, frozen=True):
    """A tool of the gateway's ensembles: `offered`, or `not permitted`."""

    name: str
    description: str
    state: str


class GatewayEnsemble(msgspec.Struct, frozen=True):
    """An ensemble of the gateway; the state of one without a connection is ""."""

    name: str
    state: str
    tools: tuple[GatewayTool, ...]


class ListedServer(msgspec.Struct, frozen=True):
    """An MCP server of the settings. `pinned` tools are trusted as they were at their first use."""

    name: str
    transport: str
    place: str
    is_enabled: bool
    pinned: tuple[str, ...]


def routes(board: Board) -> Sequence[BaseRoute]:
    async def show(request: Request) -> Response:
        part = _part(board)
        return board.render(
            request,
            "tools.html",
            ensembles=[] if part.hosted is None else describe_hosted(part.hosted),
            servers=await asyncio.to_thread(list_servers, part.find_servers),
        )

    async def check(request: Request, _: Form) -> Response:
        """Connect a server once, and show what it offers."""
        from callboard.mcp.server_report import report_server  # noqa: PLC0415  # 0.8 s, only where it is asked for

        servers = await asyncio.to_thread(_part(board).find_servers)
        settings = servers.get(request.path_params["name"])
        if settings is None:
            raise HTTPException(404)
        report = await report_server(settings)
        return board.render(request, "server.html", report=report)

    return [Route("/tools", show), Route("/tools/{name}/check", board.action(check), methods=["POST"])]


def describe_hosted(hosted: HostedTools) -> list[GatewayEnsemble]:
    """The gateway's ensembles with their tools and the states of their connections."""
    return [
        GatewayEnsemble(
            ensemble.name,
            _state(ensemble),
            tuple(
                [
                    GatewayTool(
                        invoker.name,
                        invoker.description,
                        "offered" if invoker.name in hosted.names else "not permitted",
                    )
                    for invoker in ensemble.invokers.values()
                ]
            ),
        )
        for ensemble in hosted.ensembles
    ]


def list_servers(find_servers: Callable[[], Mapping[str, ServerSettings]]) -> list[ListedServer]:
    """The servers of the settings, with what is pinned of them."""
    from callboard.mcp import Pins  # noqa: PLC0415  # 0.8 s, on a thread
    from callboard.mcp.server_report import describe_place  # noqa: PLC0415

    pins = {each.server: each for each in Pins(read_only=True).list_all()}
    return [
        ListedServer(
            name,
            settings.transport,
            describe_place(settings),
            settings.enabled,
            tuple(pins[name].tools) if name in pins else (),
        )
        for name, settings in sorted(find_servers().items())
    ]


def _part(board: Board) -> ToolsPart:
    if board.parts.tools is None:
        raise HTTPException(404)
    return board.parts.tools


def _state(ensemble: Ensemble) -> str:
    client = getattr(ensemble, "client", None)
    return "" if client is None else str(client.state)

"""The tools of a server and their trust, as `callboard mcp` and the board show them.

Law: all texts of a server are untrusted. Its environment and headers are never shown.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from callboard.mcp.ensemble import McpEnsemble, is_selected
from callboard.mcp.pins import Pins
from callboard.mcp.settings import ServerSettings

if TYPE_CHECKING:
    from mcp_types import Tool


class ToolReport(msgspec.Struct, frozen=True):
    """A tool and its state: `offered`, `not chosen`, `changed`, `new`, or why it is left out."""

    name: str
    description: str
    state: str


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A server's state after connecting to it."""

    name: str
    state: str
    server: str = ""
    """Name and version of the server, and the version of the protocol."""
    why: str = ""
    """Why the connection failed."""
    tools: tuple[ToolReport, ...] = ()
    instructions_changed: bool = False

    @property
    def waiting(self) -> int:
        """Number of tools that are not offered until a person accepts them."""
        return sum([tool.state in ("changed", "new") for tool in self.tools])


async def report_server(settings: ServerSettings) -> ServerReport:
    """Connect a server, list its tools, and disconnect it. Nothing is pinned: viewing is not a first use."""
    ensemble = McpEnsemble(settings, warn=lambda _: None, pins=Pins(read_only=True))
    try:
        await ensemble.connect()
        return await report_ensemble(ensemble)
    except Exception as error:  # noqa: BLE001  # the report shows any failure of the server
        return ServerReport(name=settings.name, state="failed", why=str(error) or type(error).__name__)
    finally:
        await ensemble.disconnect()


async def report_ensemble(ensemble: McpEnsemble) -> ServerReport:
    link, compared = ensemble.client, ensemble.pin_comparison
    about = f"{link.server.name} {link.server.version} " if link.server else ""
    tools = [ToolReport(tool.name, tool.description or "", state) for tool, state in await list_states(ensemble)]
    return ServerReport(
        name=ensemble.settings.name,
        state=str(link.state),
        server=f"{about}({link.protocol_version})" if about else str(link.protocol_version),
        tools=tuple(tools),
        instructions_changed=compared is not None and not compared.instructions,
    )


async def list_states(server: McpEnsemble) -> list[tuple[Tool, str]]:
    """Return all tools with their states: offered, not chosen, changed, new, or left out (such as duplicates)."""
    offered = {tool.name for tool in await server.list_tools()}
    comparison = server.pin_comparison
    waiting: dict[str, str] = {}
    if comparison is not None:
        waiting = dict.fromkeys(comparison.new, "new") | dict.fromkeys(comparison.changed, "changed")
    names: set[str] = set()
    states: list[tuple[Tool, str]] = []
    for tool in await server.client.tools():
        if tool.name in names:
            state = "left out: there is another of its name"
        elif not is_selected(tool.name, server.settings):
            state = "not chosen"
        else:
            state = waiting.get(tool.name) or ("offered" if tool.name in offered else "left out")
        names.add(tool.name)
        states.append((tool, state))
    return states


def describe_place(settings: ServerSettings) -> str:
    """Describe a server's address without secrets: a program's name, or a URL's host and path."""
    if settings.url:
        parts = urlsplit(settings.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return PurePath(settings.command[0]).name if settings.command else ""

"""MCP servers as ensembles. The SDK (extra `mcp`) costs 0.8 s and is imported when a server is first connected."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.mcp.client import McpClient
    from callboard.mcp.ensemble import McpEnsemble, connect, create_invoker_from_mcp_tool
    from callboard.mcp.pins import Pins
    from callboard.mcp.settings import ServerSettings, parse_address

_HOMES = {
    "McpClient": "client",
    "McpEnsemble": "ensemble",
    "Pins": "pins",
    "ServerSettings": "settings",
    "connect": "ensemble",
    "create_invoker_from_mcp_tool": "ensemble",
    "parse_address": "settings",
}

__all__ = [
    "McpClient",
    "McpEnsemble",
    "Pins",
    "ServerSettings",
    "connect",
    "create_invoker_from_mcp_tool",
    "parse_address",
]


def __getattr__(name: str) -> Any:
    """Settings need only the settings of a server: a gateway without MCP servers saves 4 MB."""
    if name not in _HOMES:
        raise AttributeError(f"module 'callboard.mcp' has no attribute {name!r}")
    value = getattr(import_module(f"callboard.mcp.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

"""MCP servers as ensembles. The SDK (extra `mcp`) costs 0.8 s and is imported when a server is first connected."""

from callboard.mcp.client import McpClient
from callboard.mcp.ensemble import McpEnsemble, connect, create_invoker_from_mcp_tool
from callboard.mcp.pins import Pins
from callboard.mcp.settings import ServerSettings, parse_address

__all__ = [
    "McpClient",
    "McpEnsemble",
    "Pins",
    "ServerSettings",
    "connect",
    "create_invoker_from_mcp_tool",
    "parse_address",
]

"""An MCP server with one tool, made with the official SDK (`pip install 'callboard[mcp]'`)."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("weather", version="1")


@server.tool()
def forecast(city: str, days: int = 1) -> str:
    """Forecast the weather."""
    return f"{city}: sun for {days} days"


if __name__ == "__main__":
    server.run()

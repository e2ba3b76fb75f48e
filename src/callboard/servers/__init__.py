"""What others talk to over a socket: the gateway, the board, our own MCP server."""

"""Our ensembles as an MCP server. The SDK (extra `mcp`) is imported with each of its modules."""

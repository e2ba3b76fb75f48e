"""Servers: the gateway, and our ensembles as an MCP server."""

"""The MCP servers that a client names, as our configuration would describe them.

Laws: what callboard.toml says of a server of that name holds in place of the client's words; none of our variables goes
to a server but those that every server gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from callboard.configuration import DescribedServer, Settings, read_servers
from callboard.errors import CallerError

ClientServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

RESERVED: Final = ("coding", "results", "local")
"""Names of ensembles of ours."""
MAX_SERVERS: Final = 64
_REFERENCE: Final = "env:"
"""What would take a variable of ours in a table of callboard.toml."""


def describe_servers(servers: Iterable[ClientServer], settings: Settings) -> list[DescribedServer]:
    """The servers of a session. Raises CallerError for one that cannot be reached in this way."""
    tables: dict[str, Mapping[str, object]] = {}
    for at, server in enumerate(servers):
        path = f"mcpServers[{at}]"
        if server.name in tables or server.name in RESERVED or at >= MAX_SERVERS:
            what = f"more than {MAX_SERVERS} servers" if at >= MAX_SERVERS else f"another one is named {server.name!r}"
            raise CallerError(what, path=path, hint="name fewer, or name it otherwise")
        tables[server.name] = _to_table(server, path)
    described = read_servers(tables, lambda keys: f"the client's MCP server {'.'.join(map(str, keys))}")
    return [settings.mcp.get(each.name, each) for each in described]


def _to_table(server: ClientServer, path: str) -> Mapping[str, object]:
    match server:
        case McpServerStdio(command=command, args=arguments, env=environment):
            return {
                "command": [command, *arguments],
                "environment": _literal({each.name: each.value for each in environment}, path),
                # Not the session's directory: in somebody's repository `python -m` would run what lies there.
                "directory": str(Path.home()),
            }
        case HttpMcpServer(url=url, headers=headers):
            return {"url": url, "headers": _literal({each.name: each.value for each in headers}, path)}
        case _:
            hint = "give it as a program (stdio), or by a URL of streamable HTTP (http)"
            raise CallerError("a server of this transport cannot be reached", path=path, hint=hint)


def _literal(values: Mapping[str, str], path: str) -> Mapping[str, str]:
    if wrong := [name for name, value in values.items() if value.startswith(_REFERENCE)]:
        hint = "describe the server in callboard.toml, where such a value takes a variable"
        raise CallerError(f"the value of {wrong[0]} begins with {_REFERENCE}", path=path, hint=hint)
    return values

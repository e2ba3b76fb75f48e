"""A server by its address.

Owns what `stdio://` and `https://` addresses mean, and `connect`. Knows nothing of the protocol.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import msgspec

from callboard.errors import CallerError
from callboard.mcp.ensemble import McpEnsemble
from callboard.mcp.settings import ServerSettings


class Connecting:
    """A server that is about to be connected: `await` gives its ensemble; `async with` disconnects it, too."""

    def __init__(self, ensemble: McpEnsemble) -> None:
        self._ensemble = ensemble

    def __await__(self) -> Generator[Any, None, McpEnsemble]:
        return self._ensemble.__aenter__().__await__()

    async def __aenter__(self) -> McpEnsemble:
        return await self._ensemble.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._ensemble.disconnect()


def connect(address: str, *, name: str = "", options: dict[str, Any] | None = None, **settings: Any) -> Connecting:
    """The ensemble of the server at `stdio://weather-server --metric`, or `https://host/mcp` (seed 004).

    `name` is the ensemble's, by default the program's or the host's; `settings` are those of ServerSettings,
    `options` those of McpEnsemble. Raises CallerError for what is no address, and when awaited what `McpEnsemble`
    raises.
    """
    return Connecting(McpEnsemble(server_at(address, name=name, **settings), **(options or {})))


def server_at(address: str, *, name: str = "", **settings: Any) -> ServerSettings:
    """The settings of the server at an address. Raises CallerError."""
    scheme, separator, rest = address.partition("://")
    if separator and scheme == "stdio":
        try:
            command = shlex.split(rest)
        except ValueError as error:
            raise CallerError(f"not a command: {error}", path=address) from None
        if not command:
            raise CallerError("no program", path=address, hint="write stdio://program argument")
        found: dict[str, Any] = {"transport": "stdio", "command": command, "name": PurePath(command[0]).stem}
    elif separator and scheme in ("http", "https"):
        host = urlsplit(address).hostname
        if not host:
            raise CallerError("no host", path=address)
        found = {"transport": "http", "url": address, "name": host}
    else:
        raise CallerError("not a server's address", path=address, hint="write stdio://program or https://host/mcp")
    try:
        return msgspec.convert({**found, **settings, **({"name": name} if name else {})}, ServerSettings)
    except msgspec.ValidationError as error:
        raise CallerError(str(error), path=address) from None

"""`connect`, and the meaning of `stdio://` and `https://` addresses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from callboard.errors import CallerError
from callboard.mcp.ensemble import McpEnsemble
from callboard.mcp.settings import ServerSettings


class PendingConnection:
    """What `connect` returns: `await` gives the connected ensemble, `async with` also disconnects it."""

    def __init__(self, ensemble: McpEnsemble) -> None:
        self._ensemble = ensemble

    def __await__(self) -> Generator[Any, None, McpEnsemble]:
        return self._ensemble.__aenter__().__await__()

    async def __aenter__(self) -> McpEnsemble:
        return await self._ensemble.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._ensemble.disconnect()


def connect(
    address: str, *, name: str = "", options: dict[str, Any] | None = None, **settings: Any
) -> PendingConnection:
    """The ensemble of the server at an address.

    Args:
        address: Such as `stdio://weather-server --metric`, or `https://host/mcp`.
        name: The ensemble's name, by default one made of the address.
        options: Arguments of McpEnsemble.
        settings: Fields of ServerSettings.

    Raises:
        CallerError: It is no address. When awaited, whatever `McpEnsemble.connect` raises.
    """
    return PendingConnection(McpEnsemble(parse_address(address, name=name, **settings), **(options or {})))


def parse_address(address: str, *, name: str = "", **settings: Any) -> ServerSettings:
    """The settings of the server at an address. Raises CallerError."""
    scheme, separator, rest = address.partition("://")
    if separator and scheme == "stdio":
        try:
            command = shlex.split(rest)
        except ValueError as error:
            raise CallerError(f"not a command: {error}", path=address) from None
        if not command:
            raise CallerError("no program", path=address, hint="write stdio://program argument")
        facts: dict[str, Any] = {"transport": "stdio", "command": command, "name": name_of_command(command)}
    elif separator and scheme in ("http", "https"):
        if not urlsplit(address).hostname:
            raise CallerError("no host", path=address)
        facts = {"transport": "http", "url": address, "name": _name_of_url(address)}
    else:
        raise CallerError("not a server's address", path=address, hint="write stdio://program or https://host/mcp")
    try:
        return msgspec.convert({**facts, **settings, **({"name": name} if name else {})}, ServerSettings)
    except msgspec.ValidationError as error:
        raise CallerError(str(error), path=address) from None


def name_of_command(command: Sequence[str]) -> str:
    """Name a server after its command: not after the launcher, as `npx` or `python -m`, but after the program."""
    words = [*command]
    while words and (
        _LAUNCHERS.fullmatch(_stem(words[0])) or words[0].startswith("-") or _IS_ASSIGNMENT.match(words[0])
    ):
        words = words[1:]
    if not words or _IS_CODE.search(words[0]):
        return _stem(command[0])
    path = PurePath(words[0])
    meaningful = [part for part in (_stem(path.name), *reversed(path.parts[:-1])) if part.lower() not in _GENERIC_WORDS]
    return _to_name(meaningful[0] if meaningful else _stem(path.name)) or _stem(command[0])


def _name_of_url(url: str) -> str:
    """The host without generic words, and the parts of the path that tell two servers of a host apart."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    labels = [host] if _IS_ADDRESS.fullmatch(host) else [each for each in host.split(".") if each not in _GENERIC_WORDS]
    named = labels[:-1] if len(labels) > 1 else labels
    path = [each for each in parts.path.split("/") if each and each.lower() not in _GENERIC_WORDS]
    port = [str(parts.port)] if parts.port else []
    return _to_name("-".join([*named, *port, *path])) or _to_name(host)


def _stem(word: str) -> str:
    """The last part of a path without its suffix, or of a package without its version."""
    name = PurePath(word).name.rpartition("@")[0] or PurePath(word).name
    return PurePath(name).stem if PurePath(name).suffix in _SUFFIXES else name.partition(":")[0]


def _to_name(name: str) -> str:
    """A name of allowed length, of characters that need no quoting in a file's name or a shell."""
    return _UNFIT.sub("-", name).strip("-.")[:_LONGEST]


_LAUNCHERS: Final = re.compile(
    r"python[\d.]*|pypy[\d.]*|node|npx|npm|bunx?|deno|uvx?|pipx|poetry|docker|podman|env|sh|bash|cmd|run|exec|x|dlx|tool"
)
"""Programs that start others, and their commands that do."""
_IS_CODE: Final = re.compile(r"[\s()]")
_IS_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_IS_ADDRESS: Final = re.compile(r"localhost|[\d.]+|.*:.*")
_SUFFIXES: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".exe", ".sh", ".cmd", ".bat"})
_GENERIC_WORDS: Final = frozenset(
    {"index", "main", "__main__", "app", "cli", "src", "dist", "build", "bin", "lib", "mcp", "sse", "api", "www", "v1"}
    | {"server", "/", ".", ".."}
)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 64

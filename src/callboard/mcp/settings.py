"""The settings of one MCP server: the keys of `[mcp.NAME]` in `callboard.toml`, its environment, and its files of state.

Two projects may each have a server `db`, and a name may be given to another program later. So a file of state is for a
name and a program or URL.
Law: no variable of ours is passed on to a server's program that is not named.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, unquote

import msgspec

from callboard.errors import CallerError
from callboard.programs import absolute_search_path

Exposed = Literal["tools", "resources", "prompts"]
Protocol = Literal["auto", "legacy", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a server is reached, and what of it is used. All times are in seconds."""

    name: str
    transport: Literal["stdio", "http"] = "stdio"
    """`stdio` starts the program `command`, `http` asks the server at `url`."""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    """Variables of the program; `env:NAME` takes the value of one of ours."""
    inherit: tuple[str, ...] = ()
    """Variables of ours that the program gets besides those that every program needs."""
    directory: str = ""
    """The program's working directory."""
    url: str = ""
    headers: Mapping[str, str] = {}
    """Headers of every request; `env:NAME` as in `environment`."""
    client_id: str = ""
    """The OAuth client that was registered at a server which registers none by itself."""
    client_secret: str = ""
    """Its secret; `env:NAME` as in `environment`."""
    scopes: tuple[str, ...] = ()
    """OAuth scopes to ask for in place of those that the server names."""
    enabled: bool = True
    required: bool = False
    """Where several servers are connected together: whether all fail when this one does."""
    pinned: bool = True
    """Whether tools that changed since their first use wait for the user's consent."""
    search: bool | None = None
    """Whether models have to search for its tools; None where there are too many to declare."""
    connect_timeout: float = 30.0
    """Until the handshake is done."""
    idle_timeout: float = 60.0
    """Of a call without a sign of life; progress is one."""
    timeout: float = 600.0
    """Of a whole call."""
    idempotent: tuple[str, ...] = ()
    """Tools (patterns as in file names) whose calls may be repeated after a lost connection."""
    expose: tuple[Exposed, ...] = ("tools",)
    """What of the server becomes a tool."""
    tools: tuple[str, ...] = ("*",)
    """The server's tools that are offered (patterns as in file names)."""
    exclude: tuple[str, ...] = ()
    """Those of them that are not."""
    sampling: bool = False
    """Whether the server may ask the run's model."""
    protocol: Protocol = "auto"
    """`auto` finds out what the server speaks."""
    result_bytes: int = 32 * 1024
    """Some 8,000 tokens of English: a model with a context of 32,000 survives two of them. The rest can be read on."""
    description_bytes: int = 4096
    """Of a description of the server's; the rest is cut off."""


PASSED_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Those that the SDK passes to a server too."""
_PREFIX: Final = "env:"


def build_environment(settings: ServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """All variables of a server's program; of PATH only the absolute directories.

    Raises:
        CallerError: A variable that `env:NAME` refers to is not set.
    """
    passed = {name: environ[name] for name in (*PASSED_VARIABLES, *settings.inherit) if name in environ}
    if "PATH" in passed:
        passed["PATH"] = absolute_search_path(passed["PATH"])
    return passed | resolve_variables(settings.environment, environ, f"mcp.{settings.name}.environment")


def resolve_variables(values: Mapping[str, str], environ: Mapping[str, str], path: str) -> dict[str, str]:
    """Replace each `env:NAME` by the variable's value. Raises CallerError for a variable that is not set."""
    return {name: _resolve_variable(value, environ, f"{path}.{name}") for name, value in values.items()}


def _resolve_variable(value: str, environ: Mapping[str, str], path: str) -> str:
    if not value.startswith(_PREFIX):
        return value
    name = value.removeprefix(_PREFIX)
    if name not in environ:
        raise CallerError(f"{name} is not set in the environment", path=path, hint=f"export {name}=…")
    return environ[name]


_DIGITS: Final = 12
_LONGEST: Final = 200
"""Bytes that a server's name may take in a file's name; file systems allow 255."""


def identity_hash(settings: ServerSettings) -> str:
    """A hash of the server's URL, or of its command and working directory.

    A word of the command that is a file counts with its whole path: `python server.py` is another program in another
    directory, and `npx -y @scope/server` is the same everywhere.
    """
    directory = Path(settings.directory or ".").absolute()
    words = [str(directory / word) if _is_file(directory / word) else word for word in settings.command]
    facts = [settings.url] if settings.transport == "http" else [str(directory) if settings.directory else "", *words]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGITS]


def file_name(name: str) -> str:
    """Encode a server's name for a file's name, without suffix. Raises CallerError if it is too long."""
    quoted = quote(name, safe=" ")
    if not quoted or len(quoted) > _LONGEST:
        raise CallerError("a server's name has 1 to some 60 characters", path=name[:64])
    return quoted


def state_file(directory: Path, settings: ServerSettings) -> Path:
    """The file of this server in a directory. Raises CallerError for a name that is too long for one."""
    return directory / f"{file_name(settings.name)}~{identity_hash(settings)}.json"


def find_state_files(directory: Path, name: str) -> list[Path]:
    """The files of all servers that have or had this name."""
    return [*directory.glob(f"{file_name(name)}~{'?' * _DIGITS}.json")]


def server_name(path: Path) -> str:
    """The name of the server that a state file belongs to."""
    return unquote(path.stem.rpartition("~")[0] or path.stem)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # an argument that is no path, such as Python code
        return False

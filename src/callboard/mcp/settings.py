"""The settings of one MCP server: the keys of `[mcp.NAME]` in `callboard.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

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

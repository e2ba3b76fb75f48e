"""Events of a server's connection."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from callboard.mcp.connection_state import State


class _ServerEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    server: str


class StateChanged(_ServerEvent, frozen=True, tag="state_changed"):
    """`why` is the reason of a failure."""

    state: State
    why: str = ""


class CallProgress(_ServerEvent, frozen=True, tag="progress"):
    """Progress of a call of `tool`; `total` is None where the server does not know it."""

    tool: str
    progress: float
    total: float | None = None
    message: str = ""


class Logged(_ServerEvent, frozen=True, tag="logged"):
    """A log message of the server, or a warning about it; `level` as in syslog (RFC 5424)."""

    level: str
    text: str
    logger: str = ""


class ToolsChanged(_ServerEvent, frozen=True, tag="tools_changed"):
    """The names of the tools that were added, removed and changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


ServerEvent: TypeAlias = StateChanged | CallProgress | Logged | ToolsChanged

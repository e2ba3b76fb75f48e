"""What a server does while it is used.

Owns the events of a connection. Knows nothing of how they come about.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from callboard.mcp.connection_state import State


class _LinkEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    server: str


class StateChanged(_LinkEvent, frozen=True, tag="state_changed"):
    """`why` is what went wrong, where something did."""

    state: State
    why: str = ""


class Progress(_LinkEvent, frozen=True, tag="progress"):
    """How far a call of `tool` is; `total` is None where the server does not know."""

    tool: str
    progress: float
    total: float | None = None
    message: str = ""


class Logged(_LinkEvent, frozen=True, tag="logged"):
    """What the server wrote to its log, or what is to be said about it; `level` as of syslog (RFC 5424)."""

    level: str
    text: str
    logger: str = ""


class ToolsChanged(_LinkEvent, frozen=True, tag="tools_changed"):
    """The server offers other tools than before."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


LinkEvent: TypeAlias = StateChanged | Progress | Logged | ToolsChanged

"""The state of a client between its calls: log level and namespaces.

Law: one client never gets another's state. Over HTTP a session is found by the identifier that the server gave it;
without one, as from 2026-07-28 on, each call has its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final, get_args

import mcp_types as types
from mcp.server.session import ServerSession

if TYPE_CHECKING:
    from callboard.servers.mcp.call import Incoming

MAX_SESSIONS: Final = 1000
_LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
_HEADER: Final = "mcp-session-id"


class Session:
    """One client."""

    def __init__(self) -> None:
        self.level: types.LoggingLevel = _LEVELS[0]
        self.namespaces: dict[str, MutableMapping[str, Any]] = {}
        self.channel: ServerSession | None = None
        """For notifications."""

    def wants(self, level: types.LoggingLevel) -> bool:
        return _LEVELS.index(level) >= _LEVELS.index(self.level)


class Sessions:
    """The clients, the newest last."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def of(self, incoming: Incoming) -> Session:
        """The session of a request; where there is one client, as over stdio, it has one for good."""
        request = incoming.request
        identifier = "" if request is None else request.headers.get(_HEADER)
        if identifier is None:
            return Session()
        session = self._sessions.setdefault(identifier, Session())
        session.channel = incoming.session
        self._sessions.move_to_end(identifier)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def channels(self) -> list[ServerSession]:
        return [each.channel for each in self._sessions.values() if each.channel is not None]

"""The states of a connection and of a request, and the events of a server.

`ConnectionState` is a state machine without I/O: the time is an argument. Law: only a success resets the backoff, and
a connection is a success when it has answered a call, for a server may accept connections and fail every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["idle", "connecting", "ready", "backoff", "failed"]
Transition: TypeAlias = Literal["trying", "opened", "answered", "refused", "lost", "failed", "started", "closed"]

RETRY_SECONDS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the next try, by the number of failures in a row; the last value holds for all further ones."""

_TRANSITIONS: Final[Mapping[tuple[State, Transition], State]] = {
    ("idle", "started"): "idle",
    ("idle", "trying"): "connecting",
    ("connecting", "started"): "connecting",
    ("connecting", "opened"): "ready",
    ("connecting", "refused"): "backoff",
    ("connecting", "failed"): "failed",
    ("ready", "started"): "ready",
    ("ready", "answered"): "ready",
    ("ready", "lost"): "backoff",
    ("backoff", "started"): "backoff",
    ("backoff", "trying"): "connecting",
    ("failed", "started"): "idle",
    ("idle", "closed"): "idle",
    ("connecting", "closed"): "idle",
    ("ready", "closed"): "idle",
    ("backoff", "closed"): "idle",
    ("failed", "closed"): "failed",
}


class ConnectionState:
    """The state of the connection to one server, and when the next try may be made."""

    def __init__(self) -> None:
        self.state: State = "idle"
        self._failures = 0
        self._not_before = 0.0

    def feed(self, transition: Transition, now: float) -> State:
        """Make a transition and return the new state.

        Args:
            transition: What happened.
            now: Seconds of any monotonic clock.

        Raises:
            KeyError: The transition is not possible in this state.
        """
        self.state = _TRANSITIONS[self.state, transition]
        match transition:
            case "refused" | "lost":
                self._not_before = now + RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
                self._failures += 1
            case "answered":
                self._failures = 0
            case "started":
                self._not_before = now
            case _:
                pass
        return self.state

    def seconds_until_retry(self, now: float) -> float:
        return max(0.0, self._not_before - now)


class SendState:
    """Whether a request was sent. A transport sets it through the context variable `SEND_STATE` of the request's task."""

    __slots__ = ("idempotent", "sent", "session_missing")

    def __init__(self, *, idempotent: bool = False) -> None:
        self.idempotent = idempotent
        """The server may get the request twice."""
        self.sent = False
        """The server may have the request."""
        self.session_missing = False
        """The server refused the request unread, because its session is gone."""


SEND_STATE: Final[ContextVar[SendState | None]] = ContextVar("SEND_STATE", default=None)


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

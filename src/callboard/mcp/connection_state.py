"""The states of a connection and of a request, and the events of a server.

Law: only a success resets the backoff. A connection succeeds when it has answered a call, because a server may accept
connections and fail every call.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["idle", "connecting", "ready", "backoff", "failed"]

RETRY_SECONDS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the next attempt, by the number of failures in a row. The last value applies to all further ones."""


class Backoff:
    """Computes when the next attempt is allowed, without a clock: the time is an argument."""

    def __init__(self) -> None:
        self._failures = 0
        self._not_before = 0.0

    def fail(self, now: float) -> None:
        """Record a failed attempt or a lost connection. `now` is in seconds of any monotonic clock."""
        self._not_before = now + RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1

    def reset(self) -> None:
        self._failures = 0

    def skip(self, now: float) -> None:
        self._not_before = now

    def seconds_until_retry(self, now: float) -> float:
        return max(0.0, self._not_before - now)


class SendState:
    """Records if a request was sent. Transports set it through the context variable `SEND_STATE`."""

    __slots__ = ("idempotent", "sent", "session_missing")

    def __init__(self, *, idempotent: bool = False) -> None:
        self.idempotent = idempotent
        """True if the server may receive the request twice."""
        self.sent = False
        """True if the server may have received the request."""
        self.session_missing = False
        """True if the server refused the request without reading it, because its session is gone."""


SEND_STATE: Final[ContextVar[SendState | None]] = ContextVar("SEND_STATE", default=None)


class _ServerEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    server: str


class StateChanged(_ServerEvent, frozen=True, tag="state_changed"):
    """`why` is the reason for a failure."""

    state: State
    why: str = ""


class Logged(_ServerEvent, frozen=True, tag="logged"):
    """A log message of the server, or a warning about it. `level` is as in syslog (RFC 5424)."""

    level: str
    text: str
    logger: str = ""


class ToolsChanged(_ServerEvent, frozen=True, tag="tools_changed"):
    """The names of the tools that were added, removed and changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


ServerEvent: TypeAlias = StateChanged | Logged | ToolsChanged

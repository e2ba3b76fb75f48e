"""Counts of tool calls in this process, with their duration and failures.

Counting needs no extra and is always on: a call costs two additions. Names come from existing tools, never from a model
or a client. At most `MAX_TOOLS` names are counted separately.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from callboard.core import Category

MAX_TOOLS: Final = 1000
OTHERS: Final = "(other)"
"""Common name of the tools beyond `MAX_TOOLS`."""
UNKNOWN: Final = "(unknown)"
"""Replaces a name that no tool has."""
DEFERRED: Final = "(deferred)"
"""Replaces the name of a tool that runs elsewhere, because a client may have chosen the name."""

Outcome: TypeAlias = Category | Literal[""]
OnToolCall: TypeAlias = Callable[[str, float, Outcome], None]
"""Called with the tool's name, the seconds, and the failure's category, "" if the call succeeded."""


class ToolCount(msgspec.Struct, frozen=True):
    """The `calls` of the tool `name` since the process started, and its `failures` by category."""

    name: str
    calls: int
    seconds: float
    """Total seconds of all calls."""
    failures: Mapping[Category, int]

    @property
    def failed(self) -> int:
        """Number of failed calls."""
        return sum(self.failures.values())


class _Tally:
    __slots__ = ("calls", "failures", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.failures: dict[Category, int] = {}


_tallies: dict[str, _Tally] = {}
_listeners: list[OnToolCall] = []
_lock = threading.Lock()  # a tool may start its own run in a thread


def count_tool_call(name: str, seconds: float, outcome: Outcome = "") -> None:
    """Count a finished call."""
    with _lock:
        tally = _tallies.get(name)
        if tally is None:
            name = name if len(_tallies) < MAX_TOOLS else OTHERS
            tally = _tallies.setdefault(name, _Tally())
        tally.calls += 1
        tally.seconds += seconds
        if outcome:
            tally.failures[outcome] = tally.failures.get(outcome, 0) + 1
    for listener in _listeners:
        listener(name, seconds, outcome)


def tool_counts() -> tuple[ToolCount, ...]:
    """Return the calls of each tool in this process, sorted by the tools' names."""
    with _lock:
        return tuple(
            [
                ToolCount(name, tally.calls, tally.seconds, MappingProxyType(dict(tally.failures)))
                for name, tally in sorted(_tallies.items())
            ]
        )


def listen_to_tool_calls(listener: OnToolCall) -> None:
    """Call a function for each call from now on. Adding the same function again has no effect."""
    if listener not in _listeners:
        _listeners.append(listener)

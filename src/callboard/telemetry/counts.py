"""How often each tool was called in this process, for how long, and how it failed.

It needs no extra and is never off: a call costs two additions. Names come from the tools that are there, never from a
model or a client, and no more than `MAX_TOOLS` of them are told apart.
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
"""What the tools are called together that are too many."""
UNKNOWN: Final = "(unknown)"
"""In the place of a name that no tool has."""
DEFERRED: Final = "(deferred)"
"""In the place of the name of a tool that runs elsewhere: a client may have chosen it."""

Outcome: TypeAlias = Category | Literal[""]
OnToolCall: TypeAlias = Callable[[str, float, Outcome], None]
"""Called with the tool's name, the seconds, and the failure's category; "" for none."""


class ToolCount(msgspec.Struct, frozen=True):
    """The calls of one tool since the process began."""

    name: str
    calls: int
    seconds: float
    """Of all of them together."""
    failures: Mapping[Category, int]

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class _Tally:
    __slots__ = ("calls", "failures", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.failures: dict[Category, int] = {}


_tallies: dict[str, _Tally] = {}
_listeners: list[OnToolCall] = []
_lock = threading.Lock()  # a tool may begin a run of its own on a thread


def count_tool_call(name: str, seconds: float, outcome: Outcome = "") -> None:
    """Count a call that is over."""
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
    """The calls of each tool in this process, by the tools' names."""
    with _lock:
        return tuple(
            [
                ToolCount(name, tally.calls, tally.seconds, MappingProxyType(dict(tally.failures)))
                for name, tally in sorted(_tallies.items())
            ]
        )


def listen_to_tool_calls(listener: OnToolCall) -> None:
    """Call a function for each call from now on; once, however often it is given."""
    if listener not in _listeners:
        _listeners.append(listener)

"""The calls of one text: their order, their identifiers, what may be called.

Owns the events a call is told by. Knows nothing of spellings.
Law: arguments are only ever appended to; a call that was opened is closed, whole or incomplete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    ToolDeclaration,
)

_decode = msgspec.json.Decoder().decode


class Calls:
    """Mints calls. `tools` None takes any name for a declared one."""

    __slots__ = ("_declared", "_identify", "count")

    def __init__(self, tools: Iterable[ToolDeclaration] | None, identify: Identify) -> None:
        self._declared = None if tools is None else frozenset(tool.name for tool in tools)
        self._identify = identify
        self.count = 0

    def declared(self, name: str) -> bool:
        return self._declared is None or name in self._declared

    def open(self, name: str, begin: int, end: int) -> tuple[OpenCall, InvocationStarted]:
        index = self.count
        self.count += 1
        identifier = self._identify(index, name)
        call = OpenCall(index, identifier, name, begin)
        return call, InvocationStarted(index, identifier, name, self.declared(name), (begin, end))


class OpenCall:
    """A call whose arguments are arriving."""

    __slots__ = ("begin", "identifier", "index", "name", "pieces")

    def __init__(self, index: int, identifier: str, name: str, begin: int) -> None:
        self.index = index
        self.identifier = identifier
        self.name = name
        self.begin = begin
        self.pieces: list[str] = []

    def append(self, json: str, begin: int, end: int) -> Event:
        self.pieces.append(json)
        return ArgumentsPiece(self.index, json, (begin, end))

    def close(self, end: int) -> Event:
        raw = "".join(self.pieces)
        return InvocationEnded(self.index, self.identifier, self.name, as_object(raw), raw, (self.begin, end))

    def abandon(self, why: str, end: int) -> Event:
        raw = "".join(self.pieces)
        return InvocationIncomplete(self.index, self.identifier, self.name, raw, why, (self.begin, end))


def as_object(raw: str) -> dict[str, Any] | None:
    """The JSON object that `raw` spells, None where it spells none."""
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None

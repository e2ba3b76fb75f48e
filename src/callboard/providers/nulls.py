"""Calls as they were asked for, of a model that may leave nothing out.

Owns where the nulls are taken out that a strict schema asked for in the place of what is optional. Knows no wire.
Law: a call of a tool that is not among the given ones, or without such a null, is told as it was; its arguments are
told once, when they are whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Offsets,
    Why,
)
from callboard.schema.strict import without_nulls


class WithoutNulls:
    """A Stage: events in, events out. `given` are schemas by the names of the tools that were declared otherwise."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        self._given = given
        self._held: dict[int, list[ArgumentsPiece]] = {}

    def feed(self, event: Event, /) -> list[Event]:
        match event:
            case InvocationStarted(index=index, name=name) if name in self._given:
                self._held[index] = []
            case ArgumentsPiece(index=index) if index in self._held:
                self._held[index].append(event)
                return []
            case InvocationIncomplete(index=index) if index in self._held:
                return [*_piece(self._held.pop(index)), event]
            case InvocationEnded(index=index) if index in self._held:
                return self._ended(event, self._held.pop(index))
            case _:
                pass
        return [event]

    def finish(self, why: Why = "stop", /) -> list[Event]:
        return []

    def _ended(self, call: InvocationEnded, held: list[ArgumentsPiece]) -> list[Event]:
        if call.arguments is None:
            return [*_piece(held), call]
        arguments = without_nulls(call.arguments, self._given[call.name])
        if arguments == call.arguments:
            return [*_piece(held), call]
        raw = msgspec.json.encode(arguments).decode()
        return [*_piece(held, raw), msgspec.structs.replace(call, arguments=arguments, raw=raw)]


def _piece(held: list[ArgumentsPiece], json: str = "") -> list[Event]:
    """All pieces as one, of what they say or of other JSON; none where there was none."""
    if not held:
        return []
    first, last = held[0].offsets, held[-1].offsets
    offsets: Offsets | None = None if first is None or last is None else (first[0], last[1])
    return [ArgumentsPiece(held[0].index, json or "".join([piece.json for piece in held]), offsets)]

"""The calls of one reply, while their blocks arrive.

Owns when a call is whole. Knows nothing of frames, text or how a reply ends.
Law: a call is announced before its arguments and closed once; constant work a piece, arguments are joined once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.core import (
    ArgumentsPiece,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
)
from callboard.text.string_builder import Pieces
from callboard.wires.chat.calls import CUT_SHORT, Trust, is_whole, parse_arguments, spell_arguments
from callboard.wires.common.tool_names import Callees
from callboard.wires.messages.schema import Block


class _Call:
    __slots__ = ("identifier", "index", "input", "name", "pieces", "wire_name")

    def __init__(self, index: int, block: Block, callees: Callees) -> None:
        self.index = index
        self.identifier = block.id if isinstance(block.id, str) else ""
        self.wire_name = block.name if isinstance(block.name, str) else ""
        self.name = callees.named(self.wire_name)
        self.input: Any = block.input
        self.pieces = Pieces()


class Calls:
    """Blocks of calls in, events out. `count` is how many calls there were."""

    def __init__(self, names: Mapping[str, str], identify: Identify, declared: frozenset[str] | None) -> None:
        self._callees = Callees(names, declared)
        self._identify = identify
        self._used: set[str] = set()
        self._open: dict[int, _Call] = {}
        self._doubtful: list[_Call] = []
        """Calls whose block is closed around what is no object: how the reply ends says why."""
        self.count = 0

    def begin(self, place: int, block: Block) -> list[Event]:
        """A call's block opens at that place. One that is open there is whole: no pieces lead to it any more."""
        ended = self.end(place)
        call = _Call(self.count, block, self._callees)
        self.count += 1
        if not call.identifier or call.identifier in self._used:
            call.identifier = self._identify(call.index, call.name)
        while call.identifier in self._used:  # the backend uses what we would mint
            call.identifier += "_"
        self._used.add(call.identifier)
        self._open[place] = call
        if not call.name:
            return ended
        return [*ended, *self._callees.begin(call.index, call.identifier, call.wire_name)]

    def feed(self, place: int, json: Any) -> list[Event]:
        """The next piece of the input of the call at that place; none where there is no call."""
        call = self._open.get(place)
        json = spell_arguments(json)
        if call is None or not json:
            return []
        call.pieces.append(json)
        return [ArgumentsPiece(call.index, json)] if call.name else []

    def end(self, place: int) -> list[Event]:
        """The block at that place closes. An input that came with its opening counts where no pieces came."""
        call = self._open.get(place)
        if call is None:
            return []
        events: list[Event] = []
        if not call.pieces and call.input:
            events = self.feed(place, call.input)
        del self._open[place]
        raw = call.pieces.joined()
        arguments = parse_arguments(raw)
        if call.name and arguments is not None and raw and not raw.isspace():
            events.append(InvocationEnded(call.index, call.identifier, call.name, arguments, raw))
        else:
            self._doubtful.append(call)
        return events

    def close(self, trust: Trust, why: str) -> list[Event]:
        """Every call that has not ended, in the order of their indices; `why` is for the incomplete."""
        left = sorted([*self._doubtful, *self._open.values()], key=lambda call: call.index)
        self._doubtful = []
        self._open = {}
        return [_closed(call, trust, why) for call in left]


def _closed(call: _Call, trust: Trust, why: str) -> Event:
    raw = call.pieces.joined()
    if not call.name:
        return InvocationIncomplete(call.index, call.identifier, "", raw, "no name")
    arguments = parse_arguments(raw)
    if is_whole(raw, arguments, trust):
        return InvocationEnded(call.index, call.identifier, call.name, arguments, raw)
    return InvocationIncomplete(call.index, call.identifier, call.name, raw, CUT_SHORT.get(why, why))

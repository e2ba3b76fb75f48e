"""The calls of one reply, while their frames arrive.

Owns which call a frame belongs to, and what a call's events are. Knows nothing of text or of how a reply ends.
Law: a call is announced before its arguments and closed once; what comes twice, in pieces and whole, is given once.
Constant work a piece; arguments are joined where a frame tells them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.core import (
    CUSTOM_KEY,
    ArgumentsPiece,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
)
from callboard.text.string_builder import Pieces
from callboard.wires.chat.calls import CUT_SHORT, Trust, is_open, is_whole, parse_arguments
from callboard.wires.common.tool_names import Callees
from callboard.wires.responses.schema import SEARCH, Frame, Item

Kind: TypeAlias = Literal["function_call", "custom_tool_call", "tool_search_call"]
KINDS: Mapping[Any, Kind] = {
    "function_call": "function_call",
    "custom_tool_call": "custom_tool_call",
    "tool_search_call": "tool_search_call",
}
_encode = msgspec.json.Encoder().encode
_OPENS, _CLOSES = f'{{"{CUSTOM_KEY}":"', '"}'


class _Call:
    __slots__ = ("broken", "call_id", "closed", "custom", "identifier", "index", "name", "pieces", "place", "told_late")

    def __init__(self, place: Any, *, custom: bool) -> None:
        self.place = place
        self.custom = custom
        self.call_id = ""
        self.name = ""
        self.identifier = ""
        self.index: int | None = None
        self.pieces = Pieces()
        """Of the arguments, or of a custom tool's text."""
        self.broken = False
        self.closed = False
        self.told_late = False
        """Whether the terminal event has told it."""


class Calls:
    """Frames about calls in, events out. `count` is how many calls there were."""

    def __init__(self, names: Mapping[str, str], identify: Identify, declared: frozenset[str] | None) -> None:
        self._callees = Callees(names, declared)
        self._identify = identify
        self._used: set[str] = set()
        self._by_id: dict[str, _Call] = {}
        self._by_call_id: dict[str, _Call] = {}
        self._by_place: dict[int, _Call] = {}
        self._open: dict[int, _Call] = {}
        self._next_index = 0
        self.count = 0

    def added(self, item: Item, place: Any) -> list[Event]:
        """A call begins."""
        return self._name(self._find(item, place), item)

    def piece(self, frame: Frame, *, custom: bool) -> list[Event]:
        """The next piece of a call's value."""
        piece = _value(frame.delta)
        if not piece:
            return []
        call = self._of(frame, custom=custom)
        return [] if call.closed else self._grow(call, piece)

    def whole(self, frame: Frame, *, custom: bool) -> list[Event]:
        """A call's value is whole; the call itself may not be."""
        call = self._of(frame, custom=custom)
        if call.closed:
            return []
        events = self._start(call, frame.name) if isinstance(frame.name, str) else []
        return events + self._fill(call, _value(frame.input if custom else frame.arguments))

    def done(self, item: Item, place: Any, *, late: bool = False) -> list[Event]:
        """A call is whole, or as whole as it will be; `late` is one that the terminal event tells."""
        call = self._find(item, place, late=late)
        events = self._name(call, item)
        if call.closed:
            return events
        value = _value(item.input if call.custom else item.arguments)
        events += self._fill(call, value)
        if item.status == "incomplete" or self._is_cut(call, value):
            call.broken = True
            return events
        return events if call.index is None else events + self._end(call, call.index, value)

    def close(self, trust: Trust, why: str) -> list[Event]:
        """Every open call ended or incomplete, in the order of their indices; `why` is for the incomplete."""
        events: list[Event] = []
        for call in sorted(self._open.values(), key=lambda call: (call.index is None, call.index or 0)):
            raw, arguments = _spelled(call)
            whole = trust == "all" if call.custom else is_whole(raw, arguments, trust)
            if call.index is None:
                index = self._number(call)
                events.append(InvocationIncomplete(index, call.identifier, "", raw, "no name"))
            elif whole and not call.broken:
                events += self._end(call, call.index, "")
            else:
                name = self._callees.named(call.name)
                events.append(InvocationIncomplete(call.index, call.identifier, name, raw, CUT_SHORT.get(why, why)))
            call.closed = True
        self._open = {}
        return events

    def _find(self, item: Item, place: Any, *, late: bool = False) -> _Call:
        call = self._known(item, place, late=late)
        if call is None:
            call = self._new(item.id, place, custom=item.type == "custom_tool_call")
        if late:
            call.told_late = True
        return call

    def _known(self, item: Item, place: Any, *, late: bool) -> _Call | None:
        if isinstance(item.id, str) and item.id in self._by_id:
            return self._by_id[item.id]
        call_id = item.call_id if isinstance(item.call_id, str) else ""
        at = self._by_place.get(place) if type(place) is int else None
        if at is not None and (not at.call_id or at.call_id == call_id or not (call_id or at.closed)):
            return at
        known = self._by_call_id.get(call_id)
        if known is None:
            return None
        # Backends give two calls one identifier; places tell them apart, but those of the terminal event may differ.
        same = not known.told_late if late else place is None or known.place is None
        return known if same else None

    def _of(self, frame: Frame, *, custom: bool) -> _Call:
        call = self._by_id.get(frame.item_id) if isinstance(frame.item_id, str) else None
        if call is None and type(frame.output_index) is int:
            call = self._by_place.get(frame.output_index)
        if call is None and self._open and frame.item_id is None and frame.output_index is None:
            call = next(reversed(self._open.values()))
        return call or self._new(frame.item_id, frame.output_index, custom=custom)

    def _new(self, item_id: Any, place: Any, *, custom: bool) -> _Call:
        call = _Call(place, custom=custom)
        self._open[id(call)] = call
        self.count += 1
        if isinstance(item_id, str) and item_id:
            self._by_id[item_id] = call
        if type(place) is int:
            self._by_place[place] = call
        return call

    def _name(self, call: _Call, item: Item) -> list[Event]:
        if isinstance(item.call_id, str) and item.call_id and not call.call_id:
            call.call_id = item.call_id
            self._by_call_id.setdefault(item.call_id, call)
        if isinstance(item.id, str) and item.id:
            self._by_id.setdefault(item.id, call)
        name = SEARCH if item.type == "tool_search_call" else item.name if isinstance(item.name, str) else ""
        if name and isinstance(item.namespace, str) and item.namespace:
            name = f"{item.namespace}__{name}"
        return self._start(call, name)

    def _start(self, call: _Call, name: str) -> list[Event]:
        """Announces a call whose name is known, with the pieces that waited for it."""
        if call.index is not None or not name:
            return []
        call.name = name
        index = self._number(call)
        events = self._callees.begin(index, call.identifier, name)
        if call.pieces:
            waited, call.pieces = call.pieces.joined(), Pieces()
            events += self._grow(call, waited)
        return events

    def _grow(self, call: _Call, value: str) -> list[Event]:
        first = not call.pieces
        call.pieces.append(value)
        if call.index is None:
            return []
        if not call.custom:
            return [ArgumentsPiece(call.index, value)]
        return [ArgumentsPiece(call.index, (_OPENS if first else "") + _escaped(value))]

    def _fill(self, call: _Call, value: str) -> list[Event]:
        """What the pieces have not told of a value that is whole."""
        if not value:
            return []
        told = call.pieces.joined()
        rest = value[len(told) :] if value.startswith(told) else ""
        return self._grow(call, rest) if rest else []

    def _end(self, call: _Call, index: int, value: str) -> list[Event]:
        """A call that was announced ends; `value` is what the backend says it is, where it says so."""
        events: list[Event] = []
        raw, arguments = _spelled(call)
        if call.custom:
            if not raw:
                raw = _OPENS
                events.append(ArgumentsPiece(index, _OPENS))
            raw += _CLOSES
            events.append(ArgumentsPiece(index, _CLOSES))
        elif value and value != raw:
            raw, arguments = value, parse_arguments(value)
        call.closed = True
        call.pieces = Pieces()
        self._open.pop(id(call), None)
        return [*events, InvocationEnded(index, call.identifier, self._callees.named(call.name), arguments, raw)]

    @staticmethod
    def _is_cut(call: _Call, value: str) -> bool:
        """Whether a call's arguments never ended, although its item is told as whole."""
        if call.custom:
            return False
        raw = value or call.pieces.joined()
        return is_open(raw) and parse_arguments(raw) is None

    def _number(self, call: _Call) -> int:
        call.index = index = self._next_index
        self._next_index += 1
        call.identifier = call.call_id
        if not call.call_id or call.call_id in self._used:
            call.identifier = self._identify(index, self._callees.named(call.name))
        while call.identifier in self._used:  # the backend uses what we would mint
            call.identifier += "_"
        self._used.add(call.identifier)
        return index


def _spelled(call: _Call) -> tuple[str, dict[str, Any] | None]:
    """The arguments as far as they came."""
    raw = call.pieces.joined()
    if call.custom:
        return (_OPENS + _escaped(raw) if raw else ""), {CUSTOM_KEY: raw}
    return raw, parse_arguments(raw)


def _escaped(text: str) -> str:
    return _encode(text)[1:-1].decode()


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return _encode(value).decode()
    except RecursionError:
        return "null"  # no object, as any other nonsense

"""Assemble the calls of one reply from its frames.

Which call a frame belongs to follows from its item's identifier, its place in the output or its call_id: backends
send all of these or a part of them, and give two calls one identifier.

Law: arguments that come twice, in pieces and whole, are emitted once; they are joined where a frame has them whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from callboard.core import CUSTOM_KEY, ArgumentsPiece, Event, InvocationEnded
from callboard.wires.common.reply_stream import DecodeContext, string
from callboard.wires.common.tool_calls import (
    CallTable,
    Completeness,
    OpenCall,
    arguments_text,
    is_complete,
    is_cut_off,
    parse_arguments,
)
from callboard.wires.responses.schema import SEARCH, Frame, Item

KINDS = frozenset({"function_call", "custom_tool_call", "tool_search_call"})
_encode = msgspec.json.Encoder().encode
_OPENS, _CLOSES = f'{{"{CUSTOM_KEY}":"', '"}'


class _Call(OpenCall):
    __slots__ = ("broken", "custom", "position", "seen_in_terminal")

    def __init__(self, position: Any, *, custom: bool) -> None:
        super().__init__()
        self.position = position
        """In the output, where the backend says it."""
        self.custom = custom
        """Whether its pieces are a custom tool's text."""
        self.broken = False
        self.seen_in_terminal = False
        """Whether the terminal event had it."""

    def spell(self, text: str, *, is_first: bool) -> str:
        if not self.custom:
            return text
        return (_OPENS if is_first else "") + _encode(text)[1:-1].decode()


class Calls(CallTable[_Call]):
    """Frames about calls in, events out."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._by_id: dict[str, _Call] = {}
        self._by_call_id: dict[str, _Call] = {}
        self._by_position: dict[int, _Call] = {}

    def start(self, item: Item, position: Any) -> list[Event]:
        return self._name(self._find(item, position), item)

    def feed(self, frame: Frame, *, custom: bool) -> list[Event]:
        """The next piece of a call's arguments, or of a custom tool's text."""
        piece = arguments_text(frame.delta)
        if not piece:
            return []
        call = self._call_of(frame, custom=custom)
        return [] if call.closed else self.grow(call, piece)

    def feed_whole(self, frame: Frame, *, custom: bool) -> list[Event]:
        """A call's arguments are whole; its name may still come."""
        call = self._call_of(frame, custom=custom)
        if call.closed:
            return []
        events = self._start(call, frame.name) if isinstance(frame.name, str) else []
        return events + self._complete(call, arguments_text(frame.input if custom else frame.arguments))

    def end(self, item: Item, position: Any, *, late: bool = False) -> list[Event]:
        """A call is whole, or as whole as it will be; `late` is one of the terminal event's."""
        call = self._find(item, position, late=late)
        events = self._name(call, item)
        if call.closed:
            return events
        value = arguments_text(item.input if call.custom else item.arguments)
        events += self._complete(call, value)
        if item.status == "incomplete" or self._is_cut(call, value):
            call.broken = True
            return events
        return events if call.index is None else events + self._end(call, call.index, value)

    def close_call(self, call: _Call, index: int, completeness: Completeness, why: str) -> list[Event]:
        raw, arguments = _arguments_so_far(call)
        whole = completeness == "all" if call.custom else is_complete(raw, arguments, completeness)
        if call.name and whole and not call.broken:
            return self._end(call, index, "")
        return super().close_call(call, index, "none", why)

    def _find(self, item: Item, position: Any, *, late: bool = False) -> _Call:
        call = self._known(item, position, late=late)
        if call is None:
            call = self._new(item.id, position, custom=item.type == "custom_tool_call")
        if late:
            call.seen_in_terminal = True
        return call

    def _known(self, item: Item, position: Any, *, late: bool) -> _Call | None:
        if isinstance(item.id, str) and item.id in self._by_id:
            return self._by_id[item.id]
        call_id = string(item.call_id)
        at = self._by_position.get(position) if type(position) is int else None
        if at is not None and (not at.id or at.id == call_id or not (call_id or at.closed)):
            return at
        known = self._by_call_id.get(call_id)
        if known is None:
            return None
        # Backends give two calls one identifier. Positions distinguish them, but may differ in the terminal event.
        same = not known.seen_in_terminal if late else position is None or known.position is None
        return known if same else None

    def _call_of(self, frame: Frame, *, custom: bool) -> _Call:
        call = self._by_id.get(frame.item_id) if isinstance(frame.item_id, str) else None
        if call is None and type(frame.output_index) is int:
            call = self._by_position.get(frame.output_index)
        if call is None and self._open and frame.item_id is None and frame.output_index is None:
            call = next(reversed(self._open.values()))
        return call or self._new(frame.item_id, frame.output_index, custom=custom)

    def _new(self, item_id: Any, position: Any, *, custom: bool) -> _Call:
        call = self.add(_Call(position, custom=custom))
        if isinstance(item_id, str) and item_id:
            self._by_id[item_id] = call
        if type(position) is int:
            self._by_position[position] = call
        return call

    def _name(self, call: _Call, item: Item) -> list[Event]:
        if isinstance(item.call_id, str) and item.call_id and not call.id:
            call.id = item.call_id
            self._by_call_id.setdefault(item.call_id, call)
        if isinstance(item.id, str) and item.id:
            self._by_id.setdefault(item.id, call)
        name = SEARCH if item.type == "tool_search_call" else string(item.name)
        if name and isinstance(item.namespace, str) and item.namespace:
            name = f"{item.namespace}__{name}"
        return self._start(call, name)

    def _start(self, call: _Call, name: str) -> list[Event]:
        """Announces a call whose name is known, with the pieces that waited for it."""
        if call.index is not None or not name:
            return []
        call.name = name
        return self.announce(call)

    def _complete(self, call: _Call, value: str) -> list[Event]:
        """The rest of a whole value after the pieces that came."""
        if not value:
            return []
        sent = call.pieces.build()
        rest = value[len(sent) :] if value.startswith(sent) else ""
        return self.grow(call, rest) if rest else []

    def _end(self, call: _Call, index: int, value: str) -> list[Event]:
        """The end of a call that was announced; `value` is the whole value where the backend sent it."""
        events: list[Event] = []
        raw, arguments = _arguments_so_far(call)
        if call.custom:
            if not raw:
                raw = _OPENS
                events.append(ArgumentsPiece(index, _OPENS))
            raw += _CLOSES
            events.append(ArgumentsPiece(index, _CLOSES))
        elif value and value != raw:
            raw, arguments = value, parse_arguments(value)
        self.remove(call)
        return [*events, InvocationEnded(index, call.identifier, self._tools.declared_name(call.name), arguments, raw)]

    @staticmethod
    def _is_cut(call: _Call, value: str) -> bool:
        """Whether a call's arguments never ended, although its item came as whole."""
        if call.custom:
            return False
        raw = value or call.pieces.build()
        return is_cut_off(raw) and parse_arguments(raw) is None


def _arguments_so_far(call: _Call) -> tuple[str, dict[str, Any] | None]:
    return call.raw, {CUSTOM_KEY: call.pieces.build()} if call.custom else parse_arguments(call.raw)

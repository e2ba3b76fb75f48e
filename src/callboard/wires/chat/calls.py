"""The calls of one reply, while their pieces arrive.

Owns which call a piece belongs to, when a call begins and when it is whole. Knows nothing of chunks, text or
how a reply ends.
Law: a call is announced before its arguments and closed once; constant work a piece, arguments are joined once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
)
from callboard.text.json_value import Brackets
from callboard.text.string_builder import Pieces
from callboard.wires.chat.schema import CallDelta, FunctionDelta
from callboard.wires.common.tool_names import Callees

Trust: TypeAlias = Literal["all", "whole", "none"]
"""Which calls a reply's end makes whole: all but those that were cut, those whose arguments are a JSON object, or none."""
CUT_SHORT: Mapping[str, str] = {"stop": "length", "invocations": "length"}
"""What cut a call of a reply that pretends to be whole: backends also say so where a limit did."""

_objects = msgspec.json.Decoder(dict[str, Any])
_NOTHING = FunctionDelta()
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+("?)|[{}\[\]]', re.DOTALL)


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """The arguments that a model wrote: nothing is the empty object, what is no object is None."""
    if not raw or raw.isspace():
        return {}
    try:
        return _objects.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def is_open(raw: str) -> bool:
    """Whether arguments are the beginning of an object that was cut, and not what a model wrote wrong."""
    if not raw.lstrip().startswith("{"):
        return False
    depth = 0
    for token in _TOKEN.finditer(raw):
        opener = token[0][0]
        if opener == '"':
            if not token[1]:
                return depth > 0
        elif opener in "{[":
            depth += 1
        elif (depth := depth - 1) <= 0:
            return False
    return depth > 0


def is_whole(raw: str, arguments: object, trust: Trust) -> bool:
    """Whether the end of a reply makes these arguments a call; `arguments` is what was read of them, None for no object."""
    if trust == "all":
        return arguments is not None or not is_open(raw)
    return trust == "whole" and arguments is not None and bool(raw) and not raw.isspace()


class _Call:
    __slots__ = (
        "_brackets", "_is_broken", "_is_whole", "_read", "closed", "id", "identifier", "index", "is_named_again", "name",
        "pieces",
    )  # fmt: skip

    def __init__(self) -> None:
        self.id = ""  # on the wire
        self.identifier = ""  # ours, from the start on
        self.name = ""
        self.pieces = Pieces()
        self.index: int | None = None
        self.closed = False
        self.is_named_again = False
        """Whether its name came once more behind arguments that were whole."""
        self._brackets = Brackets()
        self._read = 0
        self._is_whole = False
        self._is_broken = False

    def is_told_anew(self, name: str, json: str) -> bool:
        """Whether a piece that leads here begins another call of this tool: the name again, behind a whole object.

        Servers that count no calls send each of them at index 0. Others repeat the name in every piece, so the name
        alone says nothing.
        """
        if self.closed or not (name or self.is_named_again) or not self._whole():
            return False
        if json:
            return json.lstrip().startswith("{")
        self.is_named_again = True
        return False

    def _whole(self) -> bool:
        """Whether the arguments are an object that is closed. Each character is read once."""
        text = self.pieces.joined(self._read)
        begins, self._read = self._read == 0, len(self.pieces)
        if begins:
            self._is_broken = not text.lstrip().startswith("{")
        at = 0
        if not self._is_whole and not self._is_broken:
            self._is_whole, at = self._brackets.step(text, 0)
        self._is_broken = self._is_broken or self._brackets.broken or bool(self._is_whole and text[at:].strip())
        return self._is_whole and not self._is_broken


class Calls:
    """Call deltas in, events out. `count` is how many calls there were."""

    def __init__(self, names: Mapping[str, str], identify: Identify, declared: frozenset[str] | None) -> None:
        self._callees = Callees(names, declared)
        self._identify = identify
        self._used: set[str] = set()
        self._by_key: dict[int | str, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._open: list[_Call] = []
        self._last: _Call | None = None
        self._next_index = 0
        self.count = 0

    def feed(self, delta: CallDelta) -> list[Event]:
        function = delta.function or _NOTHING
        name = function.name if isinstance(function.name, str) else ""
        json = spell_arguments(function.arguments)
        identifier = delta.id if isinstance(delta.id, str) else ""
        if not (name or json or identifier):
            return []
        key = delta.index if isinstance(delta.index, int | str) else None
        events: list[Event] = []
        call = self._find(key, identifier, name)
        if call is not None and call.is_told_anew(name, json):
            if identifier and identifier == call.id and json == call.pieces.joined():
                return []  # the same call, told once more as a whole
            name, call = name or call.name, None
        if call is None:
            events += self.release()
            call = self._new()
        if key is not None:
            self._by_key[key] = call
        if identifier:
            call.id = call.id or identifier
            self._by_id[identifier] = call
        self._last = call
        if call.closed:
            return events
        if name and call.index is None and not (call.name and call.pieces):
            # A name is repeated whole, or grows, or comes in fragments.
            call.name = name if name.startswith(call.name) else call.name + name
        if json:
            call.pieces.append(json)
        if call.index is not None:
            if json:
                events.append(ArgumentsPiece(call.index, json))
        elif call.name and call.pieces:
            events += self._start(call)
            events.append(ArgumentsPiece(self._next_index - 1, call.pieces.joined()))
        return events

    def release(self) -> list[Event]:
        """Announces the last call if it has a name: something else follows, so the name is whole."""
        if self._last is None or not self._last.name or self._last.index is not None:
            return []
        return self._start(self._last)

    def close(self, trust: Trust, why: str) -> list[Event]:
        """Every open call ended or incomplete, in the order of their indices; `why` is for the incomplete."""
        unbegun = [call for call in self._open if call.name and call.index is None]
        events: list[Event] = [event for call in unbegun for event in self._start(call)]
        named = sorted((call for call in self._open if call.index is not None), key=lambda call: call.index or 0)
        for call in named:
            index, identifier, name = call.index or 0, call.identifier, self._callees.named(call.name)
            raw = call.pieces.joined()
            arguments = parse_arguments(raw)
            if is_whole(raw, arguments, trust):
                events.append(InvocationEnded(index, identifier, name, arguments, raw))
            else:
                events.append(InvocationIncomplete(index, identifier, name, raw, CUT_SHORT.get(why, why)))
        for call in self._open:
            if not call.name:
                index = self._number(call)
                events.append(InvocationIncomplete(index, call.identifier, "", call.pieces.joined(), "no name"))
            call.closed = True
            call.pieces = Pieces()
        self._open = []
        return events

    def _find(self, key: int | str | None, identifier: str, name: str) -> _Call | None:
        if key is not None:
            call = self._by_key.get(key)
        elif identifier in self._by_id:
            call = self._by_id[identifier]
        elif not (identifier or name):
            call = self._last
        else:
            last = self._last
            completes = last is not None and not last.name and not (identifier and last.id)
            call = last if completes else None
        return None if call is not None and _differs(call, key, identifier, name) else call

    def _new(self) -> _Call:
        call = _Call()
        self._open.append(call)
        self.count += 1
        return call

    def _start(self, call: _Call) -> list[Event]:
        index = self._number(call)
        return self._callees.begin(index, call.identifier, call.name)

    def _number(self, call: _Call) -> int:
        call.index = index = self._next_index
        self._next_index += 1
        call.identifier = call.id
        if not call.id or call.id in self._used:
            call.identifier = self._identify(index, self._callees.named(call.name))
        while call.identifier in self._used:  # the backend uses what we would mint
            call.identifier += "_"
        self._used.add(call.identifier)
        return index


def _differs(call: _Call, key: int | str | None, identifier: str, name: str) -> bool:
    """Whether a piece that leads to this call begins another: backends reuse indices and identifiers."""
    if not name or not call.name:
        return False
    if identifier and call.id and identifier != call.id:
        return True
    begun = bool(call.pieces) or call.closed
    return begun and name != call.name and not (key is not None and identifier)


def spell_arguments(arguments: Any) -> str:
    """The arguments as their JSON, which backends send as a text or as the value itself."""
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return ""
    try:
        return msgspec.json.encode(arguments).decode()
    except RecursionError:
        return "null"  # no object, as any other nonsense

"""Assemble the calls of one reply from their deltas.

Which call a delta belongs to follows from its index, its identifier or the call before it: LM Studio and vLLM
interleave parallel calls, some servers send every call at index 0, others reuse identifiers or repeat the name in
every delta. So a delta is matched by rules (`_find`, `_differs`, `_Call.is_repeated`) and not by the index alone.
"""

from __future__ import annotations

from callboard.core import Event
from callboard.text.json_value import Brackets
from callboard.wires.chat.schema import CallDelta, FunctionDelta
from callboard.wires.common.reply_stream import DecodeContext, string
from callboard.wires.common.tool_calls import CallTable, OpenCall, arguments_text

_NOTHING = FunctionDelta()


class _Call(OpenCall):
    __slots__ = ("_brackets", "_is_broken", "_is_whole", "_read", "is_named_again")

    def __init__(self) -> None:
        super().__init__()
        self.is_named_again = False
        """Whether its name came once more after arguments that were whole."""
        self._brackets = Brackets()
        self._read = 0
        self._is_whole = False
        self._is_broken = False

    def is_repeated(self, name: str, json: str) -> bool:
        """Whether a delta that leads here begins another call of this tool: the name again, after a whole object.

        Servers that count no calls send each of them at index 0. Others repeat the name in every delta, so the name
        alone says nothing.
        """
        if self.closed or not (name or self.is_named_again) or not self._has_whole_object():
            return False
        if json:
            return json.lstrip().startswith("{")
        self.is_named_again = True
        return False

    def _has_whole_object(self) -> bool:
        """Whether the arguments are an object that is closed. Each character is read once."""
        text = self.pieces.build(self._read)
        begins, self._read = self._read == 0, len(self.pieces)
        if begins:
            self._is_broken = not text.lstrip().startswith("{")
        at = 0
        if not self._is_whole and not self._is_broken:
            self._is_whole, at = self._brackets.step(text, 0)
        self._is_broken = self._is_broken or self._brackets.broken or bool(self._is_whole and text[at:].strip())
        return self._is_whole and not self._is_broken


class Calls(CallTable[_Call]):
    """Call deltas in, events out."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._by_key: dict[int | str, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None

    def feed(self, delta: CallDelta) -> list[Event]:
        function = delta.function or _NOTHING
        name = string(function.name)
        json = arguments_text(function.arguments)
        identifier = string(delta.id)
        if not (name or json or identifier):
            return []
        key = delta.index if isinstance(delta.index, int | str) else None
        events: list[Event] = []
        call = self._find(key, identifier, name)
        if call is not None and call.is_repeated(name, json):
            if identifier and identifier == call.id and json == call.pieces.build():
                return []  # the same call, sent once more as a whole
            name, call = name or call.name, None
        if call is None:
            events += self.release()
            call = self.add(_Call())
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
            events += self.grow(call, json)
        if call.index is None and call.name and call.pieces:
            events += self.announce(call)
        return events

    def release(self) -> list[Event]:
        """Announces the last call if it has a name: something else follows, so the name is whole."""
        if self._last is None or not self._last.name or self._last.index is not None:
            return []
        return self.announce(self._last)

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


def _differs(call: _Call, key: int | str | None, identifier: str, name: str) -> bool:
    """Whether a delta that leads to this call begins another: backends reuse indices and identifiers."""
    if not name or not call.name:
        return False
    if identifier and call.id and identifier != call.id:
        return True
    begun = bool(call.pieces) or call.closed
    return begun and name != call.name and not (key is not None and identifier)

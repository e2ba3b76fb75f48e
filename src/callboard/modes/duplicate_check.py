"""One call that a reply tells at several places.

A server that reads calls out of a model's text may leave the text in its reply, and a model may write a call while it
thinks and again behind the thought. `DuplicateCheck` gives such a call once. What was given out cannot be taken back,
so the first that arrives is given, and a later one from another place is dropped with a Note.

Two calls are the same if they name the same declared tool with arguments that are equal as JSON once they are coerced
and their defaults are filled. Equal calls at one place are a real repetition: a call is given as often as the place
says it that says it most often.

A call is held only while that is open: another place has given a call of the same tool that this place has not yet
repeated. What arrives meanwhile waits behind it. Arguments are compared only then.

Laws: what passes, passes in order, and its indices have no gap; no two places of a reply add up; constant work an event, arguments are read twice at
the most.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReplyEnded,
    ReplyFailed,
    ToolDeclaration,
    Why,
)
from callboard.text.display import replace_invisible

_PLACES: Final = {"wire": "the wire's field", "text": "the text", "reasoning": "the reasoning"}
_MAX_NAME: Final = 80
_INDEXED: Final = (InvocationStarted, ArgumentsPiece, InvocationEnded, InvocationIncomplete)


class DuplicateCheck:
    """A Stage behind the watchers: the events of a reply in, the same without calls that a reply repeats at another place."""

    def __init__(self, tools: Iterable[ToolDeclaration]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._begin()

    def feed(self, event: Event, /) -> list[Event]:
        match event:
            case ReplyEnded() | ReplyFailed():
                events = [*self._advance(over=True), event]
                self._begin()
                return events
            case InvocationEnded() | InvocationIncomplete():
                self._ends[event.index] = event
                if (callee := self._open_calls.get(event.index)) is not None:
                    callee.end(event)
            case InvocationStarted():
                pass
            case _ if not self._queue:
                return self._pass(event)
            case _:
                pass
        self._queue.append(event)
        return self._advance()

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """What is still held."""
        return self._advance(over=True)

    def _begin(self) -> None:
        """Another reply may follow in this one's place."""
        self._queue: deque[Event] = deque()
        self._ends: dict[int, InvocationEnded | InvocationIncomplete] = {}
        self._callees: dict[str, _Callee] = {}
        self._open_calls: dict[int, _Callee] = {}
        self._dropped: set[int] = set()
        self._indices: dict[int, int] = {}

    def _advance(self, *, over: bool = False) -> list[Event]:
        """Gives what is decided; with `over` nothing more arrives that could decide."""
        events: list[Event] = []
        while self._queue:
            event = self._queue[0]
            if isinstance(event, InvocationStarted):
                duplicate = self._is_duplicate(event)
                if duplicate is None and not over:
                    break
                if duplicate:
                    self._dropped.add(event.index)
                    events.append(_drop_note(event))
                else:
                    self._give(event)
            self._queue.popleft()
            events += self._pass(event)
        return events

    def _pass(self, event: Event) -> list[Event]:
        """The event, without the gap that dropped calls leave in the indices."""
        if not isinstance(event, _INDEXED):
            return [event]
        if event.index in self._dropped:
            return []
        index = self._indices.setdefault(event.index, len(self._indices))
        return [event if index == event.index else replace(event, index=index)]

    def _is_duplicate(self, call: InvocationStarted) -> bool | None:
        """None where it is not known yet."""
        callee = self._callees.get(call.name)
        if callee is None or not callee.may_repeat(call.found_in):
            return False
        end = self._ends.get(call.index)
        if end is None or callee.is_open_beside(call.found_in):
            return None
        return isinstance(end, InvocationEnded) and callee.repeats(call.found_in, end)

    def _give(self, call: InvocationStarted) -> None:
        callee = self._callees.get(call.name)
        if callee is None:
            callee = self._callees[call.name] = _Callee(self._tools.get(call.name))
        self._open_calls[call.index] = callee
        callee.begin(call)
        if (end := self._ends.get(call.index)) is not None:
            callee.end(end)


class _Callee:
    """The calls of one tool in a reply, by the places that they were found at."""

    def __init__(self, tool: ToolDeclaration | None) -> None:
        self._tool = tool
        self._coerce: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
        self._counts: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()
        self._open: dict[int, str] = {}
        self._unread: list[tuple[str, InvocationEnded]] = []
        """Calls that were given and whose arguments were not compared yet."""
        self._passed: Counter[tuple[str, bytes]] = Counter()
        """How often each place said a call."""
        self._calls: Counter[bytes] = Counter()
        """How often a call was given."""

    def begin(self, call: InvocationStarted) -> None:
        self._counts[call.found_in] += 1
        self._open[call.index] = call.found_in

    def end(self, call: InvocationEnded | InvocationIncomplete) -> None:
        place = self._open.pop(call.index)
        if isinstance(call, InvocationEnded):
            self._unread.append((place, call))

    def may_repeat(self, place: str) -> bool:
        return self._counts.total() - self._counts[place] > self._repeated[place]

    def is_open_beside(self, place: str) -> bool:
        return any(other != place for other in self._open.values())

    def repeats(self, place: str, call: InvocationEnded) -> bool:
        """Whether another place has said this call, and more often than this one did."""
        for given_at, events in self._unread:
            key = self._key(events)
            self._calls[key] += 1
            self._passed[given_at, key] += 1
        self._unread = []
        key = self._key(call)
        if self._passed[place, key] >= self._calls[key]:
            return False
        self._passed[place, key] += 1
        self._repeated[place] += 1
        return True

    def _key(self, call: InvocationEnded) -> bytes:
        """The same bytes for the same arguments."""
        try:
            if call.arguments is not None:
                return msgspec.json.encode(_plain(self._coerce_arguments(call.arguments)), order="sorted")
        except (RecursionError, TypeError, ValueError):
            pass
        return call.raw.strip().encode("utf-8", "replace")

    def _coerce_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from callboard.errors import SchemaError  # noqa: PLC0415  # for replies that may tell a call twice only
        from callboard.schema import ArgumentsInvalid, compile_schema  # noqa: PLC0415  # as above

        try:
            if self._coerce is None:
                self._coerce = compile_schema(self._tool.schema if self._tool else {}).validate
            return self._coerce(arguments)
        except SchemaError:
            self._coerce = dict
        except ArgumentsInvalid:
            pass
        return arguments


def _drop_note(call: InvocationStarted) -> Note:
    name = replace_invisible(call.name[:_MAX_NAME])
    text = f"a call of {name} in {_PLACES[call.found_in]} was told before at another place: it is one call"
    return Note("dropped", text, call.offsets, "duplicate")


def _plain(value: Any) -> Any:
    """The value with each number spelled in one way."""
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value

"""Remove a call that a reply contains in several places.

A server that reads calls out of a model's text may leave the text in its reply, and a model may write a call while it
thinks and again after the thought. The first of them passes. A later one from another place is dropped with a Note.

Two calls are the same if they name the same declared tool with arguments that are equal as JSON, after coercion and
with their defaults. Equal calls in one place are a real repetition: a call passes as often as it occurs in the place
where it occurs most often.

A call is held only while it may be a duplicate: calls of the same tool have passed in other places, more than this
place has repeated. Later events wait until it is decided. Arguments are compared only then.

Laws: events stay in order, and indices have no gap. Two places of a reply never add up. The work per event is constant.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from callboard import core
from callboard.errors import SchemaError
from callboard.modes.filters.call_indices import CallIndices
from callboard.text.display import replace_invisible

_PLACES: Final = {"wire": "the wire's field", "text": "the text", "reasoning": "the reasoning"}
_MAX_NAME: Final = 80


class DuplicateFilter:
    """A Stage that removes the calls that a reply repeats in another place."""

    def __init__(self, tools: Iterable[core.ToolDeclaration]) -> None:
        self._schemas = {tool.name: tool.schema for tool in tools}
        self._coercions: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {}
        self._begin()

    def _begin(self) -> None:
        """Start a reply. A retry may replace an earlier one."""
        self._queue: deque[core.Event] = deque()
        self._ends: dict[int, core.InvocationEnded | core.InvocationIncomplete] = {}
        self._calls: defaultdict[str, _Calls] = defaultdict(_Calls)
        self._indices = CallIndices()

    def feed(self, event: core.Event, /) -> list[core.Event]:
        if type(event) is core.TextPiece and not self._queue:
            return [event]
        match event:
            case core.ReplyEnded() | core.ReplyFailed():
                events = [*self.finish(), event]
                self._begin()
                return events
            case core.InvocationEnded() | core.InvocationIncomplete():
                self._ends[event.index] = event
                self._calls[event.name].open.pop(event.index, None)
            case core.InvocationStarted():
                pass
            case _ if not self._queue:
                return self._indices.renumber(event)
        self._queue.append(event)
        return self._advance()

    def finish(self, why: core.Why = "stop", /) -> list[core.Event]:
        """Release the held events."""
        return self._advance(over=True)

    def _advance(self, *, over: bool = False) -> list[core.Event]:
        """Release the decided events. If `over`, decide all: nothing more arrives."""
        events: list[core.Event] = []
        while self._queue:
            event = self._queue[0]
            if isinstance(event, core.InvocationStarted):
                duplicate = self._is_duplicate(event)
                if duplicate is None and not over:
                    break
                if duplicate:
                    self._indices.drop(event.index)
                    where = f"a call of {replace_invisible(event.name[:_MAX_NAME])} in {_PLACES[event.found_in]}"
                    text = f"{where} repeats a call from another place and was dropped"
                    events.append(core.Note("dropped", text, event.offsets, "duplicate"))
                else:
                    self._calls[event.name].add(event, is_open=event.index not in self._ends)
            self._queue.popleft()
            events += self._indices.renumber(event)
        return events

    def _is_duplicate(self, call: core.InvocationStarted) -> bool | None:
        """Whether the call is a duplicate; None if more has to arrive first."""
        calls, place = self._calls[call.name], call.found_in
        if calls.passed.total() - calls.passed[place] <= calls.repeated[place]:
            return False
        end = self._ends.get(call.index)
        if end is None or any(other != place for other in calls.open.values()):
            return None
        for passed_at, index in calls.unread:
            if isinstance(passed := self._ends.get(index), core.InvocationEnded):
                key = self._key(passed)
                calls.keys[key] += 1
                calls.counts[passed_at, key] += 1
        calls.unread = [each for each in calls.unread if each[1] not in self._ends]
        if not isinstance(end, core.InvocationEnded):
            return False
        key = self._key(end)
        if calls.counts[place, key] >= calls.keys[key]:
            return False
        calls.counts[place, key] += 1
        calls.repeated[place] += 1
        return True

    def _key(self, call: core.InvocationEnded) -> bytes:
        try:
            if call.arguments is not None:
                return msgspec.json.encode(_plain(self._coerce(call.name, call.arguments)), order="sorted")
        except (RecursionError, TypeError, ValueError):
            pass
        return call.raw.strip().encode("utf-8", "replace")

    def _coerce(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from callboard.schema import ArgumentsInvalid, compile_schema  # noqa: PLC0415  # it imports jsonschema_rs, 28 ms

        try:
            if name not in self._coercions:
                self._coercions[name] = compile_schema(self._schemas.get(name, {})).validate
            return self._coercions[name](arguments)
        except SchemaError:
            self._coercions[name] = dict
        except ArgumentsInvalid:
            pass
        return arguments


class _Calls:
    """The calls of one tool in a reply, by the places where they occur."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.open: dict[int, str] = {}
        self.unread: list[tuple[str, int]] = []
        """Places and indices of calls that passed and were not compared yet."""
        self.counts: Counter[tuple[str, bytes]] = Counter()
        """Number of equal calls by place and key."""
        self.keys: Counter[bytes] = Counter()
        """Number of calls that passed, by key."""

    def add(self, call: core.InvocationStarted, *, is_open: bool) -> None:
        """Add a call that passes."""
        self.passed[call.found_in] += 1
        self.unread.append((call.found_in, call.index))
        if is_open:
            self.open[call.index] = call.found_in


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value

"""Renumber the calls of a reply, so that a removed call leaves no gap."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from callboard.core import ArgumentsPiece, Event, InvocationEnded, InvocationIncomplete, InvocationStarted

CALL_EVENTS: Final = (InvocationStarted, ArgumentsPiece, InvocationEnded, InvocationIncomplete)


class CallIndices:
    """The indices of one reply's calls, as they arrive and as they are passed on."""

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        self._dropped: set[int] = set()

    def drop(self, index: int) -> None:
        """Remove the events of this call from now on."""
        self._dropped.add(index)

    def renumber(self, event: Event) -> list[Event]:
        """Return the event with its new index, or nothing if its call is dropped."""
        if not isinstance(event, CALL_EVENTS):
            return [event]
        if event.index in self._dropped:
            return []
        index = self._indices.setdefault(event.index, len(self._indices))
        return [event if index == event.index else replace(event, index=index)]

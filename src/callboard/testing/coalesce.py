"""Make streams of events comparable: where text and arguments are cut is chance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from callboard.core import ArgumentsPiece, Event, Offsets, ReasoningPiece, RefusalPiece, TextPiece

_Piece: TypeAlias = TextPiece | RefusalPiece | ReasoningPiece | ArgumentsPiece


def coalesce(events: Iterable[Event]) -> list[Event]:
    """The events with neighbouring pieces of the same kind joined, and empty pieces left out."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, (TextPiece, RefusalPiece)) and not event.text:
            continue
        if isinstance(event, TextPiece) and isinstance(last, TextPiece):
            joined[-1] = TextPiece(last.text + event.text, _both(last, event))
        elif isinstance(event, RefusalPiece) and isinstance(last, RefusalPiece):
            joined[-1] = RefusalPiece(last.text + event.text, _both(last, event))
        elif isinstance(event, ReasoningPiece) and isinstance(last, ReasoningPiece) and last.origin == event.origin:
            joined[-1] = ReasoningPiece(
                last.text + event.text, last.opaque + event.opaque, event.origin, _both(last, event)
            )
        elif isinstance(event, ArgumentsPiece) and isinstance(last, ArgumentsPiece) and last.index == event.index:
            joined[-1] = ArgumentsPiece(event.index, last.json + event.json, _both(last, event))
        else:
            joined.append(event)
    return joined


def _both(first: _Piece, second: _Piece) -> Offsets | None:
    return (first.offsets[0], second.offsets[1]) if first.offsets and second.offsets else None

"""Notice a reply of structured mode that has none of the formats that were asked for.

An endpoint may take the schema and not hold its model to it, so a reply such as `{"foo": 1}` is possible. It is no
answer. `FormatCheck` stands around the watcher of the reply's text and ends such a reply with an alert; the loop tells
the model and asks again. Words that are no JSON are taken for the answer: many models that ignore the schema answer in
prose. Law: no event is changed or held.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from callboard.core import (
    Event,
    Note,
    ReplyEnded,
    Stage,
    TextPiece,
    Why,
)
from callboard.dialects.table import ACTION_FORMATS
from callboard.modes.filters.call_indices import CALL_EVENTS

_COMPLAINT = f"the reply has none of the formats that were asked for. {ACTION_FORMATS}"


class FormatCheck:
    """A Stage around another one, which finds the calls and answers in a reply's text."""

    def __init__(self, finder: Stage[Event, Event]) -> None:
        self._finder = finder
        self._begin()

    def _begin(self) -> None:
        self._written: list[str] = []
        """What the model wrote."""
        self._texts: list[str] = []
        """What of it is text of the reply: an answer, or all that was written where nothing was found."""
        self._called = False

    def feed(self, event: Event, /) -> list[Event]:
        if isinstance(event, TextPiece):
            self._written.append(event.text)
        events = self._check(self._finder.feed(event))
        if not isinstance(event, ReplyEnded):
            return events
        note = [Note("alert", _COMPLAINT, code="format")] if self._is_other(event) else []
        self._begin()
        return [*events[:-1], *note, *events[-1:]]

    def finish(self, why: Why = "stop", /) -> list[Event]:
        return self._check(self._finder.finish(why))

    def _check(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, TextPiece):
                self._texts.append(event.text)
            elif isinstance(event, CALL_EVENTS):
                self._called = True
        return events

    def _is_other(self, ended: ReplyEnded) -> bool:
        text = "".join(self._texts).strip()
        # An answer stands inside an object, so that what was written does not end with it.
        return (
            ended.reason == "stop"
            and not self._called
            and "".join(self._written).rstrip().endswith(text)
            and _is_json(_lines_in_fence(text))
        )


def _is_json(text: str) -> bool:
    """Whether it is an object, if only the beginning of one, or a list or null."""
    if text.startswith("{"):
        return True
    if not text.startswith("[") and text != "null":
        return False
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _lines_in_fence(text: str) -> str:
    lines: Sequence[str] = text.splitlines()
    fenced = len(lines) > 1 and lines[0].startswith("```") and lines[-1].strip() == "```"
    return "\n".join(lines[1:-1]).strip() if fenced else text

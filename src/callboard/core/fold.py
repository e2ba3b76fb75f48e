"""Fold the events of a reply into the canisters for the conversation.

`coalesce` joins the pieces of a stream instead, so that streams can be compared and read.

Law: the work per event is constant. Text is joined once, when it is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from callboard.core.canisters import (
    AssistantCanister,
    Canister,
    Content,
    InvocationCanister,
    ReasoningContent,
    RefusalContent,
    TextualContent,
)
from callboard.core.events import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    TextPiece,
)
from callboard.core.stage import Why

_CONTENT_OF = {TextPiece: TextualContent, RefusalPiece: RefusalContent}


class Fold:
    """A Stage from events to finished canisters.

    Text between two invocations becomes one assistant canister. An incomplete invocation becomes a canister without
    arguments, so that it is not lost and gets its result.
    """

    def __init__(self) -> None:
        self._content: list[Content] = []
        self._pieces: list[TextPiece | ReasoningPiece | RefusalPiece] = []

    def feed(self, event: Event, /) -> list[Canister]:
        """Return the canisters that are whole with this `event`."""
        if type(event) is ArgumentsPiece:  # spares nearly all events of a call the checks below
            return []
        match event:
            case TextPiece() | RefusalPiece():
                if self._pieces and type(self._pieces[-1]) is not type(event):
                    self._close()
                self._pieces.append(event)
            case ReasoningPiece(origin=origin):
                last = self._pieces[-1] if self._pieces else None
                joins = isinstance(last, ReasoningPiece) and last.origin == origin and not last.opaque
                if last is not None and not joins:
                    self._close()
                self._pieces.append(event)
            case InvocationEnded(identifier=identifier, name=name, arguments=arguments, raw=raw):
                return [*self.finish(), InvocationCanister(identifier, name, arguments, raw, event.quoted_from)]
            case InvocationIncomplete(identifier=identifier, name=name, raw=raw):
                return [*self.finish(), InvocationCanister(identifier, name, None, raw)]
            case ReplyEnded() | ReplyFailed():
                return self.finish()
        return []

    def finish(self, why: Why = "stop", /) -> list[Canister]:
        """Return the canister of the text since the last whole canister. `why` says how the reply ended."""
        self._close()
        if not self._content:
            return []
        canister = AssistantCanister(tuple(self._content))
        self._content = []
        return [canister]

    def _close(self) -> None:
        pieces, self._pieces = self._pieces, []
        text = "".join([piece.text for piece in pieces])
        match pieces:
            case []:
                pass
            case [ReasoningPiece(origin=origin), *_]:
                opaque = "".join([piece.opaque for piece in pieces if isinstance(piece, ReasoningPiece)])
                if text or opaque:
                    self._content.append(ReasoningContent(text, opaque, origin))
            case [first, *_] if text:
                self._content.append(_CONTENT_OF[type(first)](text))
            case _:
                pass


_TEXT_FIELDS = {TextPiece: "text", RefusalPiece: "text", ReasoningPiece: "text", ArgumentsPiece: "json"}


def coalesce(events: Iterable[Event]) -> list[Event]:
    """Return the `events` with neighbouring pieces of the same kind joined, and without empty pieces."""
    runs: list[list[Event]] = []
    for event in events:
        if isinstance(event, TextPiece | RefusalPiece) and not event.text:
            continue
        if runs and _continues(runs[-1][0], event):
            runs[-1].append(event)
        else:
            runs.append([event])
    return [_join(run) for run in runs]


def _continues(first: Event, event: Event) -> bool:
    if type(first) is not type(event) or type(event) not in _TEXT_FIELDS:
        return False
    same = "index" if isinstance(event, ArgumentsPiece) else "origin"
    return bool(getattr(first, same, None) == getattr(event, same, None))


def _join(run: Sequence[Event]) -> Event:
    if len(run) == 1:
        return run[0]
    begin, end = getattr(run[0], "offsets", None), getattr(run[-1], "offsets", None)
    fields = [_TEXT_FIELDS[type(run[0])], *(["opaque"] if isinstance(run[0], ReasoningPiece) else [])]
    joined = {field: "".join([getattr(each, field) for each in run]) for field in fields}
    return replace(run[0], **joined, offsets=(begin[0], end[1]) if begin and end else None)

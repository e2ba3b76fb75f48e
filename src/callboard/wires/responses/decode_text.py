"""Decode what a reply holds besides its calls: messages and reasoning.

Backends send a text as deltas, as a whole part, in the finished item and in the terminal event, or in some of these.
So the number of characters that were emitted is counted for each part, and a whole text adds only the rest.

Laws: a text that comes in pieces and whole is emitted once; constant work a piece.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from callboard.core import Event, Logprobs, ReasoningPiece, RefusalPiece, TextPiece
from callboard.wires.common.sealed_reasoning import unseal
from callboard.wires.responses.schema import Frame, Item

Kind: TypeAlias = type[TextPiece | RefusalPiece]


class _Item:
    """A message or reasoning: how many characters of each of its parts were emitted."""

    __slots__ = ("channel", "has_logprobs", "over", "parts")

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int | None], int] = {}
        self.channel = ""
        """Where the reasoning's text is taken from: its summary or its content, whichever comes first."""
        self.has_logprobs: set[int | None] = set()
        """The parts whose logprobs were emitted."""
        self.over = False


class TextDecoder:
    """Frames about messages and reasoning in, events out. Reasoning is marked with `origin`."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.refused = False
        self._streamed = False
        """Whether a message came before the terminal event."""
        self._by_id: dict[tuple[str, str], _Item] = {}
        self._by_position: dict[tuple[str, int | None], _Item] = {}

    def start(self, item: Item, position: Any) -> None:
        """A message or reasoning begins."""
        self._new(item.type, item.id, position)

    def feed(self, frame: Frame, kind: Kind) -> list[Event]:
        """The next piece of a message's part."""
        text = frame.delta
        if not (isinstance(text, str) and (text or frame.logprobs)):
            return []
        entry = self._find("message", frame.item_id, frame.output_index)
        key = (kind.__name__, _index(frame.content_index))
        entry.parts[key] = entry.parts.get(key, 0) + len(text)
        self._streamed = True
        return [*([self._piece(kind, text)] if text else []), *self._logprobs(entry, key[1], frame.logprobs)]

    def feed_whole(self, frame: Frame, kind: Kind, text: Any) -> list[Event]:
        """A message's part is whole."""
        entry = self._find("message", frame.item_id, frame.output_index)
        self._streamed = True
        position = _index(frame.content_index)
        return self._rest(entry, kind, position, text) + self._logprobs(entry, position, frame.logprobs, whole=True)

    def feed_reasoning(self, frame: Frame, text: Any, *, whole: bool) -> list[Event]:
        """The next piece of reasoning, or a part of it that is whole."""
        entry = self._find("reasoning", frame.item_id, frame.output_index)
        summary = "summary" in frame.type
        position = _index(frame.summary_index if summary else frame.content_index)
        return self._reason(entry, "summary" if summary else "content", position, text, whole=whole)

    def end_message(self, item: Item, position: Any, *, late: bool) -> list[Event]:
        """A message is whole; `late` is one of the terminal event's."""
        entry = self._known("message", item.id, position)
        if entry is None and late and self._streamed:  # it came under another identifier
            return []
        nameless = not (late or item.id) and _index(position) is None
        if entry is None or (entry.over and nameless):
            entry = self._new("message", item.id, position)
        self._streamed = self._streamed or not late
        content = [{"type": "output_text", "text": item.content}] if isinstance(item.content, str) else item.content
        events: list[Event] = []
        for index, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                kind: Kind = RefusalPiece if part.get("type") == "refusal" else TextPiece
                text = part.get("refusal" if kind is RefusalPiece else "text")
                at = None if (kind.__name__, None) in entry.parts else index
                events += self._rest(entry, kind, at, text)
                events += self._logprobs(entry, at, part.get("logprobs"), whole=True)
        entry.over = True
        return events

    def end_reasoning(self, item: Item, position: Any) -> list[Event]:
        """Reasoning is whole, and sealed if the provider seals it."""
        entry = self._find("reasoning", item.id, position)
        if entry.over:
            return []
        events: list[Event] = []
        for channel, parts in (("content", item.content), ("summary", item.summary)):
            for index, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict):
                    at = None if (channel, None) in entry.parts else index
                    events += self._reason(entry, channel, at, part.get("text"), whole=True)
        entry.over = True
        if isinstance(item.encrypted_content, str) and item.encrypted_content:
            opaque, origin = unseal(item.encrypted_content, self.origin)
            if origin != self.origin:  # a gateway's; only it can open what it sealed
                opaque = item.encrypted_content
            if opaque:
                events.append(ReasoningPiece("", opaque, self.origin))
        return events

    def _piece(self, kind: Kind, text: str) -> Event:
        self.refused = self.refused or kind is RefusalPiece
        return kind(text)

    def _logprobs(self, entry: _Item, position: int | None, tokens: Any, *, whole: bool = False) -> list[Event]:
        """The logprobs; those of a whole part only where its pieces had none."""
        if not (isinstance(tokens, list) and tokens) or (whole and (entry.over or position in entry.has_logprobs)):
            return []
        entry.has_logprobs.add(position)
        return [Logprobs(tuple([each for each in tokens if isinstance(each, dict)]))]

    def _rest(self, entry: _Item, kind: Kind, position: int | None, text: Any) -> list[Event]:
        """What was not emitted yet of a whole part."""
        key = (kind.__name__, position)
        sent = entry.parts.get(key, 0)
        if entry.over or not isinstance(text, str) or len(text) <= sent:
            return []
        entry.parts[key] = len(text)
        return [self._piece(kind, text[sent:])]

    def _reason(self, entry: _Item, channel: str, position: int | None, text: Any, *, whole: bool) -> list[Event]:
        if not isinstance(text, str):
            return []
        sent = entry.parts.get((channel, position))
        text = text[sent or 0 :] if whole else text
        if entry.over or not text or channel != (entry.channel or channel):
            return []
        separator = "\n\n" if sent is None and entry.parts else ""
        entry.channel = channel
        entry.parts[channel, position] = (sent or 0) + len(text)
        return [ReasoningPiece(separator + text, origin=self.origin)]

    def _known(self, kind: str, item_id: Any, position: Any) -> _Item | None:
        if isinstance(item_id, str) and (kind, item_id) in self._by_id:
            return self._by_id[kind, item_id]
        return self._by_position.get((kind, _index(position)))

    def _find(self, kind: str, item_id: Any, position: Any) -> _Item:
        return self._known(kind, item_id, position) or self._new(kind, item_id, position)

    def _new(self, kind: str, item_id: Any, position: Any) -> _Item:
        entry = self._by_position[kind, _index(position)] = _Item()
        if isinstance(item_id, str) and item_id:
            self._by_id[kind, item_id] = entry
        return entry


def _index(position: Any) -> int | None:
    return position if type(position) is int else None

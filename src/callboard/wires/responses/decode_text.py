"""What a reply says besides its calls, while its frames arrive.

Owns how much of each part of a message or of reasoning was told. Knows nothing of calls or of how a reply ends.
Law: what comes twice, in pieces and whole, is told once; constant work a piece.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from callboard.core import Event, Logprobs, ReasoningPiece, RefusalPiece, TextPiece
from callboard.wires.common.sealed_reasoning import unseal
from callboard.wires.responses.schema import Frame, Item

Kind: TypeAlias = type[TextPiece | RefusalPiece]


class _Spoken:
    """A message or reasoning: how many characters of each of its parts were told."""

    __slots__ = ("channel", "over", "parts", "weighed")

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int | None], int] = {}
        self.channel = ""
        """Where the reasoning's text is taken from: its summary or its content, whichever comes first."""
        self.weighed: set[int | None] = set()
        """The parts whose tokens' probabilities were told."""
        self.over = False


class Speech:
    """Frames about messages and reasoning in, events out. Reasoning is marked with `origin`."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.said = False
        self.refused = False
        self._streamed = False
        """Whether a message was told before the terminal event."""
        self._by_id: dict[tuple[str, str], _Spoken] = {}
        self._by_place: dict[tuple[str, int | None], _Spoken] = {}

    def added(self, item: Item, place: Any) -> None:
        """A message or reasoning begins."""
        self._new(item.type, item.id, place)

    def piece(self, frame: Frame, kind: Kind) -> list[Event]:
        """The next piece of a message's part."""
        text = frame.delta
        if not (isinstance(text, str) and (text or frame.logprobs)):
            return []
        spoken = self._spoken("message", frame.item_id, frame.output_index)
        key = (kind.__name__, _place(frame.content_index))
        spoken.parts[key] = spoken.parts.get(key, 0) + len(text)
        self._streamed = True
        return [*([self._say(kind, text)] if text else []), *self._weigh(spoken, key[1], frame.logprobs)]

    def whole(self, frame: Frame, kind: Kind, text: Any) -> list[Event]:
        """A message's part is whole."""
        spoken = self._spoken("message", frame.item_id, frame.output_index)
        self._streamed = True
        place = _place(frame.content_index)
        return self._rest(spoken, kind, place, text) + self._weigh(spoken, place, frame.logprobs, whole=True)

    def thought(self, frame: Frame, text: Any, *, whole: bool) -> list[Event]:
        """The next piece of reasoning, or a part of it that is whole."""
        spoken = self._spoken("reasoning", frame.item_id, frame.output_index)
        summary = "summary" in frame.type
        place = _place(frame.summary_index if summary else frame.content_index)
        return self._reason(spoken, "summary" if summary else "content", place, text, whole=whole)

    def message(self, item: Item, place: Any, *, late: bool) -> list[Event]:
        """A message is whole; `late` is one that the terminal event tells."""
        spoken = self._known("message", item.id, place)
        if spoken is None and late and self._streamed:  # told under another name
            return []
        nameless = not (late or item.id) and _place(place) is None
        if spoken is None or (spoken.over and nameless):
            spoken = self._new("message", item.id, place)
        self._streamed = self._streamed or not late
        content = [{"type": "output_text", "text": item.content}] if isinstance(item.content, str) else item.content
        events: list[Event] = []
        for index, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                kind: Kind = RefusalPiece if part.get("type") == "refusal" else TextPiece
                text = part.get("refusal" if kind is RefusalPiece else "text")
                at = None if (kind.__name__, None) in spoken.parts else index
                events += self._rest(spoken, kind, at, text)
                events += self._weigh(spoken, at, part.get("logprobs"), whole=True)
        spoken.over = True
        return events

    def reasoning(self, item: Item, place: Any) -> list[Event]:
        """Reasoning is whole, and sealed if the provider seals it."""
        spoken = self._spoken("reasoning", item.id, place)
        if spoken.over:
            return []
        events: list[Event] = []
        for channel, parts in (("content", item.content), ("summary", item.summary)):
            for index, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict):
                    at = None if (channel, None) in spoken.parts else index
                    events += self._reason(spoken, channel, at, part.get("text"), whole=True)
        spoken.over = True
        if isinstance(item.encrypted_content, str) and item.encrypted_content:
            opaque, origin = unseal(item.encrypted_content, self.origin)
            if origin != self.origin:  # a gateway's; only it can open what it sealed
                opaque = item.encrypted_content
            if opaque:
                self.said = True
                events.append(ReasoningPiece("", opaque, self.origin))
        return events

    def _say(self, kind: Kind, text: str) -> Event:
        self.said = True
        self.refused = self.refused or kind is RefusalPiece
        return kind(text)

    def _weigh(self, spoken: _Spoken, place: int | None, tokens: Any, *, whole: bool = False) -> list[Event]:
        """The probabilities of tokens; those of a part that is whole where its pieces told none."""
        if not (isinstance(tokens, list) and tokens) or (whole and (spoken.over or place in spoken.weighed)):
            return []
        spoken.weighed.add(place)
        return [Logprobs(tuple([each for each in tokens if isinstance(each, dict)]))]

    def _rest(self, spoken: _Spoken, kind: Kind, place: int | None, text: Any) -> list[Event]:
        """What was not told of a part that is whole."""
        key = (kind.__name__, place)
        told = spoken.parts.get(key, 0)
        if spoken.over or not isinstance(text, str) or len(text) <= told:
            return []
        spoken.parts[key] = len(text)
        return [self._say(kind, text[told:])]

    def _reason(self, spoken: _Spoken, channel: str, place: int | None, text: Any, *, whole: bool) -> list[Event]:
        if not isinstance(text, str):
            return []
        told = spoken.parts.get((channel, place))
        text = text[told or 0 :] if whole else text
        if spoken.over or not text or channel != (spoken.channel or channel):
            return []
        apart = "\n\n" if told is None and spoken.parts else ""
        spoken.channel = channel
        spoken.parts[channel, place] = (told or 0) + len(text)
        self.said = True
        return [ReasoningPiece(apart + text, origin=self.origin)]

    def _known(self, kind: str, item_id: Any, place: Any) -> _Spoken | None:
        if isinstance(item_id, str) and (kind, item_id) in self._by_id:
            return self._by_id[kind, item_id]
        return self._by_place.get((kind, _place(place)))

    def _spoken(self, kind: str, item_id: Any, place: Any) -> _Spoken:
        return self._known(kind, item_id, place) or self._new(kind, item_id, place)

    def _new(self, kind: str, item_id: Any, place: Any) -> _Spoken:
        spoken = self._by_place[kind, _place(place)] = _Spoken()
        if isinstance(item_id, str) and item_id:
            self._by_id[kind, item_id] = spoken
        return spoken


def _place(place: Any) -> int | None:
    return place if type(place) is int else None

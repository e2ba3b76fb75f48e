"""A compaction: a reply whose one item is the summary of a conversation, which replaces it from then on.

Law: whatever a model does, a compaction's reply has one item.
Source: the `openai` package 3.54; what Codex 0.169 sends and expects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callboard.core import Event, ReplyEnded, ReplyFailed, ReplyStarted, TextPiece, Usage
from callboard.text.sse import Payload
from callboard.wires.responses.content import seal_summary
from callboard.wires.responses.encode_reply import StreamEncoder

TRIGGER = "compaction_trigger"
"""The type of the item that asks for a compaction, last in the input."""


class CompactionEncoder(StreamEncoder):
    """Convert events to payloads of a compaction. Only the model's text is sent, as the summary."""

    def __init__(self, *, compat_events: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._pieces: list[str] = []

    def feed(self, event: Event, /) -> list[Payload]:
        match event:
            case TextPiece(text=text):
                self._pieces.append(text)
                self._ensure_started()
            case ReplyEnded(reason="retry"):
                self._pieces.clear()
            case ReplyEnded() if self.response is None:
                self._ensure_started()
                self._add_summary()
                self.add(event)
            case ReplyStarted() | Usage() | ReplyFailed():
                self.add(event)
            case _:
                pass
        return self._take()

    def _add_summary(self) -> None:
        index = self._next_index()
        item = {
            "type": "compaction",
            "id": f"cmp_{self._base}_{index}",
            "encrypted_content": seal_summary("".join(self._pieces), self._model),
        }
        self._output[index] = item
        for kind in ("response.output_item.added", "response.output_item.done"):
            self._emit((kind, {"output_index": index, "item": item}))


def encode_compaction(events: Iterable[Event], **options: Any) -> dict[str, Any]:
    """The response of a compaction; parameters as of ResponseBuilder."""
    encoder = CompactionEncoder(**options)
    for event in events:
        encoder.feed(event)
    encoder.finish()
    return encoder.response or {}

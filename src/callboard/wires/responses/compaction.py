"""A conversation summed up.

Owns how a model's summary becomes the one item that stands for what was said before; `sealed` reads it again.
Knows nothing of who asks for it.
Law: whatever a model does, a compaction's reply has one item.
Source: the `openai` package 3.54; what Codex 0.169 sends and wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callboard.core import Event, ReplyEnded, ReplyFailed, ReplyStarted, TextPiece, Usage
from callboard.wires.responses.compaction_summary import sealed_summary
from callboard.wires.responses.encode_stream import StreamEncoder

TRIGGER = "compaction_trigger"
"""The type of the item that asks for a compaction, last in the input."""


class CompactionEncoder(StreamEncoder):
    """Events become the frames of a compaction; parameters as of StreamEncoder.

    What the model says is the summary; what else it does is left out.
    """

    def __init__(self, *, seed_events: bool = False, **said: Any) -> None:
        super().__init__(**said)
        self._pieces: list[str] = []

    def feed(self, event: Event, /) -> list[bytes]:
        match event:
            case TextPiece(text=text):
                self._pieces.append(text)
                return self._begin()
            case ReplyEnded(reason="retry"):
                self._pieces.clear()
                return []
            case ReplyEnded() if self._response is None:
                return [*self._begin(), *self._sum_up(), *super().feed(event)]
            case ReplyStarted() | Usage() | ReplyFailed():
                return super().feed(event)
            case _:
                return []

    def _sum_up(self) -> list[bytes]:
        index = self._next()
        item = {
            "type": "compaction",
            "id": f"cmp_{self._base}_{index}",
            "encrypted_content": sealed_summary("".join(self._pieces), self._model),
        }
        self._output[index] = item
        fields = {"output_index": index, "item": item}
        return self._frames([("response.output_item.added", fields), ("response.output_item.done", fields)])


def encode_compaction(events: Iterable[Event], **said: Any) -> dict[str, Any]:
    """The response of a compaction; parameters as of StreamEncoder."""
    encoder = CompactionEncoder(**said)
    for event in events:
        encoder.feed(event)
    encoder.finish()
    return encoder.response or {}

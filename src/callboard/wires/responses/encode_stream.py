"""Encode events as the frames that a client of the Responses wire reads.

Laws: `response.created` first; one terminal event, then `[DONE]`. What was sent is never taken back. `ResponseBuilder`
says in which order items are opened and closed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from callboard.core import Event, TextPiece, Why
from callboard.text.sse import Payload
from callboard.wires.common.reply_stream import DONE
from callboard.wires.responses.reply_items import Call, Message, Reasoning, Step
from callboard.wires.responses.response_builder import ResponseBuilder

_encode = msgspec.json.Encoder().encode


class StreamEncoder(ResponseBuilder):
    """A Stage: events in, payloads out, at last `[DONE]`; parameters as of ResponseBuilder.

    With `compat_events` the events of `compat_events` are sent besides. Of Notes only the reason of an incomplete reply is
    sent, in the metadata. A retry cannot be sent: where one may come, hold the events until the reply has ended.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._payloads: list[Payload] = []
        self._started_body = b""
        self._sequence = 0
        self._delta_item: Message | Reasoning | Call | None = None
        """The item whose delta was sent last: only its head is kept, since pieces of two items seldom alternate."""
        self._delta_event = self._delta_head = b""

    def feed(self, event: Event, /) -> list[Payload]:
        # Nearly all events of a reply are texts of the open part.
        message = self._message
        if type(event) is TextPiece and message is not None and message is self._delta_item:
            text = event.text
            if text and message.kind == "output_text":
                message.pieces.append(text)
                return [self._delta(text)]
        self.add(event)
        return self._take()

    def finish(self, why: Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; a failure where the events broke off."""
        self.end_cut(why)
        return self._take()

    def heartbeat(self) -> list[Payload]:
        """What shows a client that the reply goes on while nothing is said; Codex ignores SSE's comments."""
        if self._response is not None:
            return []
        self._ensure_started()
        if not self._payloads:
            self._emit(("response.in_progress", {"response": msgspec.Raw(self._started_body)}))
        return self._take()

    def _take(self) -> list[Payload]:
        payloads, self._payloads = self._payloads, []
        if self._response is not None and payloads:
            payloads.append((b"", DONE.encode()))
        return payloads

    def _emit_started(self) -> None:
        self._started_body = _encode(self._object.body("in_progress", []))
        for kind in ("response.created", "response.in_progress"):
            self._emit((kind, {"response": msgspec.Raw(self._started_body)}))

    def _emit(self, step: Step) -> None:
        kind, fields = step
        if kind == "response.content_part.added":
            self._delta_item = None
        if self._compat_events and "item" in fields:
            fields = {"item_id": fields["item"]["id"], **fields}
        data = _encode({"type": kind, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        self._payloads.append((kind.encode(), data))

    def _emit_delta(self, item: Message | Reasoning | Call, text: str) -> None:
        if item is not self._delta_item:
            kind, fields = item.delta()
            self._delta_item = item
            self._delta_event = kind.encode()
            self._delta_head = _encode({"type": kind, **fields})[:-1] + b',"delta":'
        self._payloads.append(self._delta(text))

    def _delta(self, text: str) -> Payload:
        sequence = self._sequence
        self._sequence = sequence + 1
        return self._delta_event, b'%b%b,"sequence_number":%d}' % (self._delta_head, _encode(text), sequence)

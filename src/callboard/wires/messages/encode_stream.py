"""Events become the frames that a client reads.

Owns the server half of the stream. Knows nothing of HTTP.
Laws: one block is open at a time, in the order in which they begin; a call that others overtake before it is
whole is waited for. `message_stop` or `error` last and once; what was sent is never taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import Ending, Event, Note, ReplyEnded, ReplyFailed, ReplyStarted, Request, TextPiece, Usage, Why
from callboard.text.sse import encode_frame
from callboard.wires.common.reply_stream import BROKEN_OFF, ending, vendor_field
from callboard.wires.messages.errors import error_body
from callboard.wires.messages.reply_blocks import Layout, Part

_encode = msgspec.json.Encoder().encode

_REASONS: Mapping[Ending, str] = {
    "stop": "end_turn",
    "invocations": "tool_use",
    "length": "max_tokens",
    "filter": "refusal",
    "refusal": "refusal",
    "no_call": "max_tokens",
    "retry": "end_turn",
}
_DELTAS: Mapping[str, bytes] = {
    "text": b'{"type":"text_delta","text":',
    "thinking": b'{"type":"thinking_delta","thinking":',
    "tool_use": b'{"type":"input_json_delta","partial_json":',
}
_SIGNATURE = b'{"type":"signature_delta","signature":'
_TAIL = b"}}\n\n"


class StreamEncoder:
    """A Stage: events in, whole SSE frames out.

    Of Notes those are told that say why a reply is incomplete; `created` is not on this wire, a refusal is text. A
    retry cannot be told: where one may come, hold the events until the reply has ended.
    """

    def __init__(self, *, identifier: str, model: str, created: int, request: Request | None = None) -> None:
        self._identifier = identifier
        self._model = model
        self._layout = Layout(model)
        self._place = 0
        self._text = b""
        """The head of a text's deltas while the open block is a text and nothing waits behind it."""
        self._usage = Usage()
        self._warnings: list[str] = []
        self._started = False
        self._over = False

    def feed(self, event: Event, /) -> list[bytes]:
        if type(event) is TextPiece and self._text:
            text = event.text
            return [self._text + _encode(text) + _TAIL] if text else []
        if self._over:
            return []
        match event:
            case ReplyStarted():
                return self._start()
            case Usage():
                self._usage = event
            case Note(code="incomplete", text=text):
                self._warnings.append(text)
            case ReplyEnded(reason=reason) if reason != "retry":
                return self._end(reason)
            case ReplyFailed():
                return self._fail(event)
            case _ if self._layout.put(event):
                return self._start() + self._tell()
            case _:
                pass
        return []

    def finish(self, why: Why = "stop", /) -> list[bytes]:
        """Nothing after a whole reply; an error where the events broke off."""
        return [] if self._over else self._fail(BROKEN_OFF)

    def _start(self) -> list[bytes]:
        if self._started:
            return []
        self._started = True
        message = message_body(self._identifier, self._model, [], None, Usage())
        return [_frame("message_start", {"message": message})]

    def _tell(self) -> list[bytes]:
        """The frames of all that can be said now."""
        frames: list[bytes] = []
        blocks = self._layout.blocks
        self._text = b""
        while blocks:
            block = blocks[0]
            head = _head(self._place, _DELTAS.get(block.kind, b""))
            if not block.begun:
                block.begun = True
                opening = {"index": self._place, "content_block": block.opening()}
                frames.append(_frame("content_block_start", opening))
            if said := block.take():
                frames.append(head + _encode(said) + _TAIL)
            if not (block.ended or (len(blocks) > 1 and block.whole())):
                if block.kind == "text":
                    self._text = head
                break
            frames += self._stop(block)
            blocks.popleft()
        return frames

    def _stop(self, block: Part) -> list[bytes]:
        block.ended = True
        frames = [_frame("content_block_stop", {"index": self._place})]
        if block.kind == "thinking" and block.opaque:
            frames.insert(0, _head(self._place, _SIGNATURE) + _encode(block.opaque) + _TAIL)
        self._place += 1
        return frames

    def _end(self, reason: Ending) -> list[bytes]:
        frames = self._start()
        for block in self._layout.blocks:
            block.ended = True
        frames += self._tell()
        reason = ending(reason, is_cut=self._layout.is_cut)
        delta = {"stop_reason": _REASONS[reason], "stop_sequence": None}
        told = {"delta": delta, "usage": usage_body(self._usage), **vendor_field(self._warnings)}
        frames.append(_frame("message_delta", told))
        return self._done(frames, _frame("message_stop", {}))

    def _fail(self, failure: ReplyFailed) -> list[bytes]:
        return self._done([], encode_frame(_encode(error_body(failure)), "error"))

    def _done(self, frames: list[bytes], last: bytes) -> list[bytes]:
        self._over = True
        self._text = b""
        return [*frames, last]


def message_body(
    identifier: str, model: str, content: list[dict[str, Any]], reason: Ending | None, usage: Usage
) -> dict[str, Any]:
    """A reply as Anthropic writes it; one that goes on has no reason yet."""
    return {
        "id": identifier,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None if reason is None else _REASONS[reason],
        "stop_sequence": None,
        "usage": usage_body(usage),
    }


def usage_body(usage: Usage) -> dict[str, Any]:
    """The usage as Anthropic writes it: what was read from the cache is not among the input."""
    return {
        "input_tokens": max(usage.input - usage.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _frame(kind: str, fields: dict[str, Any]) -> bytes:
    return encode_frame(_encode({"type": kind, **fields}), kind)


def _head(place: int, delta: bytes) -> bytes:
    """A delta's frame up to its value; JSON has no line break, so that the frame needs no look at it."""
    return b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":' % place + delta

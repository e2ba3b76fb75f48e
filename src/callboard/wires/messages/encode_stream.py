"""Encode events as the frames that a client of Anthropic Messages reads.

Laws: one block is open at a time, in the order in which they begin; a call that another block overtakes before it is
whole delays that block. `message_stop` or `error` last and once; what was sent is never taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import Ending, Event, Note, ReplyEnded, ReplyFailed, ReplyStarted, Request, TextPiece, Usage, Why
from callboard.text.sse import Payload
from callboard.wires.common.reply_stream import BROKEN_OFF, ending, vendor_field
from callboard.wires.messages.errors import error_body
from callboard.wires.messages.reply_blocks import ReplyBlock, ReplyBlocks

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
_TAIL = b"}}"
_DELTA_EVENT = b"content_block_delta"


class StreamEncoder:
    """A Stage: events in, payloads out.

    Of Notes only the reason of an incomplete reply is sent; a refusal is text. A retry cannot be sent: where one may
    come, hold the events until the reply has ended. `created` has no place on this wire.
    """

    def __init__(self, *, identifier: str, model: str, created: int, request: Request | None = None) -> None:
        self._identifier = identifier
        self._model = model
        self._blocks = ReplyBlocks(model)
        self._index = 0
        self._text_head = b""
        """The head of a text's deltas while the open block is a text and no other waits."""
        self._usage = Usage()
        self._warnings: list[str] = []
        self._started = False
        self._over = False

    def feed(self, event: Event, /) -> list[Payload]:
        if type(event) is TextPiece and self._text_head:
            text = event.text
            return [(_DELTA_EVENT, self._text_head + _encode(text) + _TAIL)] if text else []
        if self._over:
            return []
        match event:
            case ReplyStarted():
                return self._ensure_started()
            case Usage():
                self._usage = event
            case Note(code="incomplete", text=text):
                self._warnings.append(text)
            case ReplyEnded(reason=reason) if reason != "retry":
                return self._end(reason)
            case ReplyFailed():
                return self._fail(event)
            case _ if self._blocks.add(event):
                return self._ensure_started() + self._flush()
            case _:
                pass
        return []

    def finish(self, why: Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; an error where the events broke off."""
        return [] if self._over else self._fail(BROKEN_OFF)

    def _ensure_started(self) -> list[Payload]:
        if self._started:
            return []
        self._started = True
        message = message_body(self._identifier, self._model, [], None, Usage())
        return [_payload("message_start", {"message": message})]

    def _flush(self) -> list[Payload]:
        """The payloads of all that can be sent now."""
        payloads: list[Payload] = []
        blocks = self._blocks.blocks
        self._text_head = b""
        while blocks:
            block = blocks[0]
            head = _delta_head(self._index, _DELTAS.get(block.kind, b""))
            if not block.started:
                block.started = True
                opening = {"index": self._index, "content_block": block.opening()}
                payloads.append(_payload("content_block_start", opening))
            if piece := block.take_unsent():
                payloads.append((_DELTA_EVENT, head + _encode(piece) + _TAIL))
            if not (block.ended or (len(blocks) > 1 and block.is_whole())):
                if block.kind == "text":
                    self._text_head = head
                break
            payloads += self._stop(block)
            blocks.popleft()
        return payloads

    def _stop(self, block: ReplyBlock) -> list[Payload]:
        block.ended = True
        payloads = [_payload("content_block_stop", {"index": self._index})]
        if block.kind == "thinking" and block.opaque:
            signature = _delta_head(self._index, _SIGNATURE) + _encode(block.opaque) + _TAIL
            payloads.insert(0, (_DELTA_EVENT, signature))
        self._index += 1
        return payloads

    def _end(self, reason: Ending) -> list[Payload]:
        payloads = self._ensure_started()
        for block in self._blocks.blocks:
            block.ended = True
        payloads += self._flush()
        reason = ending(reason, is_cut=self._blocks.is_cut)
        delta = {"stop_reason": _REASONS[reason], "stop_sequence": None}
        fields = {"delta": delta, "usage": usage_body(self._usage), **vendor_field(self._warnings)}
        self._over, self._text_head = True, b""
        return [*payloads, _payload("message_delta", fields), _payload("message_stop", {})]

    def _fail(self, failure: ReplyFailed) -> list[Payload]:
        self._over, self._text_head = True, b""
        return [(b"error", _encode(error_body(failure)))]


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
    """The usage as Anthropic writes it: what was read from the cache, or written to it, is not among the input."""
    return {
        "input_tokens": max(usage.input - usage.cached - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _payload(kind: str, fields: dict[str, Any]) -> Payload:
    return kind.encode(), _encode({"type": kind, **fields})


def _delta_head(index: int, delta: bytes) -> bytes:
    """The data of a delta up to its value."""
    return b'{"type":"content_block_delta","index":%d,"delta":' % index + delta

"""Encode events as the frames that a client of Anthropic Messages reads.

`ReplyBlocks` assembles the blocks of both a stream and a whole reply: a piece is kept once, with constant work an event.

Laws: one block is open at a time, in the order in which they begin; a call that another block overtakes before it is
whole delays that block. `message_stop` or `error` last and once; what was sent is never taken back; a whole
reply says what the stream of the same reply says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.core import TextPiece
from callboard.text.sse import Payload
from callboard.text.string_builder import StringBuilder
from callboard.wires.common.contents import seal_for_client
from callboard.wires.common.reply_stream import BROKEN_OFF, ending, last_attempt, vendor_field
from callboard.wires.common.tool_calls import arguments_object, parse_arguments
from callboard.wires.messages.errors import error_body
from callboard.wires.messages.schema import REDACTED

_encode = msgspec.json.Encoder().encode

_REASONS: Mapping[core.Ending, str] = {
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
    """A Stage: events in, payloads out. A refusal is text, and `created` has no place on this wire."""

    def __init__(self, *, identifier: str, model: str, created: int, request: core.Request | None = None) -> None:
        self._identifier = identifier
        self._model = model
        self._blocks = ReplyBlocks(model)
        self._index = 0
        self._text_head = b""
        """The head of a text's deltas while the open block is a text and no other waits."""
        self._usage = core.Usage()
        self._warnings: list[str] = []
        self._started = False
        self._over = False

    def feed(self, event: core.Event, /) -> list[Payload]:
        if type(event) is TextPiece and self._text_head:
            text = event.text
            return [(_DELTA_EVENT, self._text_head + _encode(text) + _TAIL)] if text else []
        if self._over:
            return []
        match event:
            case core.ReplyStarted():
                return self._ensure_started()
            case core.Usage():
                self._usage = event
            case core.Note(code="incomplete", text=text):
                self._warnings.append(text)
            case core.ReplyEnded(reason=reason) if reason != "retry":
                return self._end(reason)
            case core.ReplyFailed():
                return self._fail(event)
            case _ if self._blocks.add(event):
                return self._ensure_started() + self._flush()
            case _:
                pass
        return []

    def finish(self, why: core.Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; an error where the events broke off."""
        return [] if self._over else self._fail(BROKEN_OFF)

    def _ensure_started(self) -> list[Payload]:
        if self._started:
            return []
        self._started = True
        message = message_body(self._identifier, self._model, [], None, core.Usage())
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

    def _end(self, reason: core.Ending) -> list[Payload]:
        payloads = self._ensure_started()
        for block in self._blocks.blocks:
            block.ended = True
        payloads += self._flush()
        reason = ending(reason, is_cut=self._blocks.is_cut)
        delta = {"stop_reason": _REASONS[reason], "stop_sequence": None}
        fields = {"delta": delta, "usage": usage_body(self._usage), **vendor_field(self._warnings)}
        self._over, self._text_head = True, b""
        return [*payloads, _payload("message_delta", fields), _payload("message_stop", {})]

    def _fail(self, failure: core.ReplyFailed) -> list[Payload]:
        self._over, self._text_head = True, b""
        return [(b"error", _encode(error_body(failure)))]


def message_body(
    identifier: str, model: str, content: list[dict[str, Any]], reason: core.Ending | None, usage: core.Usage
) -> dict[str, Any]:
    """A reply as Anthropic writes it; an unfinished reply has no reason yet."""
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


def usage_body(usage: core.Usage) -> dict[str, Any]:
    """The usage as Anthropic writes it: what was read from the cache, or written to it, is not among the input."""
    hour = min(usage.cache_write_1h, usage.cache_write)
    lifetimes = {"ephemeral_5m_input_tokens": usage.cache_write - hour, "ephemeral_1h_input_tokens": hour}
    return {
        "input_tokens": max(usage.input - usage.cached - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        **({"cache_creation": lifetimes} if usage.cache_write else {}),
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _payload(kind: str, fields: dict[str, Any]) -> Payload:
    return kind.encode(), _encode({"type": kind, **fields})


def _delta_head(index: int, delta: bytes) -> bytes:
    """The data of a delta up to its value."""
    return b'{"type":"content_block_delta","index":%d,"delta":' % index + delta


def encode_response(
    events: Iterable[core.Event],
    *,
    identifier: str,
    model: str,
    created: int,  # noqa: ARG001 - this wire has no place for it
    request: core.Request | None = None,  # noqa: ARG001 - nothing of it is repeated
) -> dict[str, Any]:
    """Return the body of a reply. A failed reply becomes an error."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, core.ReplyFailed):
        return error_body(terminal)
    blocks, usage = ReplyBlocks(model), core.Usage()
    warnings: list[str] = []
    for event in attempt:
        match event:
            case core.Usage():
                usage = event
            case core.Note(code="incomplete", text=text):
                warnings.append(text)
            case _:
                blocks.add(event)
    content = [block.body() for block in blocks.blocks]
    reason = ending(terminal.reason, is_cut=blocks.is_cut)
    return message_body(identifier, model, content, reason, usage) | vendor_field(warnings)


class ReplyBlock:
    """A block of a reply; `kind` is its type on the wire, `opaque` a signature or what was redacted."""

    __slots__ = ("ended", "identifier", "kind", "name", "opaque", "parsed", "pieces", "sent", "started")

    def __init__(self, kind: str, identifier: str = "", name: str = "") -> None:
        self.kind = kind
        self.identifier = identifier
        self.name = name
        self.opaque = ""
        self.pieces = StringBuilder()
        self.sent = 0
        self.started = False
        self.ended = False
        self.parsed = False

    def take_unsent(self) -> str:
        """Return the new pieces. The pieces of a call stay, because its whole input is parsed."""
        if self.kind != "tool_use":
            pieces, self.pieces = self.pieces, StringBuilder()
            return pieces.build()
        piece = self.pieces.build(self.sent)
        self.sent = len(self.pieces)
        return piece

    def is_whole(self) -> bool:
        """Return True if the block ends when another block starts. A call's input is parsed only once."""
        if self.ended or self.kind != "tool_use":
            return True
        if self.parsed:
            return False
        self.parsed = True
        raw = self.pieces.build()
        return bool(raw) and not raw.isspace() and parse_arguments(raw) is not None

    def opening(self) -> dict[str, Any]:
        """The block as it begins."""
        match self.kind:
            case "tool_use":
                return {"type": "tool_use", "id": self.identifier, "name": self.name, "input": {}}
            case "thinking":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case "redacted_thinking":
                return {"type": "redacted_thinking", "data": self.opaque}
            case _:
                return {"type": "text", "text": ""}

    def body(self) -> dict[str, Any]:
        """The block as it is in the end."""
        text = self.pieces.build()
        match self.kind:
            case "tool_use":
                return self.opening() | {"input": arguments_object(parse_arguments(text), text)}
            case "thinking":
                return {"type": "thinking", "thinking": text, "signature": self.opaque}
            case "redacted_thinking":
                return self.opening()
            case _:
                return {"type": "text", "text": text}


class ReplyBlocks:
    """The blocks of a reply so far; a stream takes those that it has sent from the left.

    The client takes the reply to be of `model`: reasoning of another one is sealed.
    """

    def __init__(self, model: str) -> None:
        self.blocks: deque[ReplyBlock] = deque()
        self._model = model
        self._origin = ""
        """Origin of the last reasoning."""
        self._calls: dict[int, ReplyBlock] = {}
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        """Whether a call never became whole."""
        return self._is_cut or bool(self._calls)

    def add(self, event: core.Event) -> bool:
        """Whether the event added to a block, or ended one. A refusal is a text here."""
        match event:
            case core.TextPiece(text=text) | core.RefusalPiece(text=text):
                if not text:
                    return False
                self._open_block("text").pieces.append(text)
            case core.ReasoningPiece(text="", opaque=opaque, origin=origin) if opaque.startswith(REDACTED):
                block = self._new(ReplyBlock("redacted_thinking"))
                block.opaque = seal_for_client(opaque[len(REDACTED) :], origin, self._model)
                block.ended = True
            case core.ReasoningPiece(text=text, opaque=opaque, origin=origin):
                if not text and not opaque:
                    return False
                block = self._thinking(origin)
                if text:
                    block.pieces.append(text)
                if opaque:
                    block.opaque = seal_for_client(opaque, origin, self._model)
                    block.ended = True
            case core.InvocationStarted(index=index, identifier=identifier, name=name):
                self._is_cut = self._is_cut or index in self._calls
                self._calls[index] = self._new(ReplyBlock("tool_use", identifier, name))
            case core.ArgumentsPiece(index=index, json=json):
                call = self._calls.get(index)
                if call is None or call.ended or not json:
                    return False
                call.pieces.append(json)
            case core.InvocationEnded(index=index) | core.InvocationIncomplete(index=index):
                self._is_cut = self._is_cut or isinstance(event, core.InvocationIncomplete)
                call = self._calls.pop(index, None)
                if call is None or call.ended:
                    return False
                if not call.pieces and (json := _late_input(event)):
                    call.pieces.append(json)
                call.ended = True
            case _:
                return False
        return True

    def _open_block(self, kind: str) -> ReplyBlock:
        if self.blocks and self.blocks[-1].kind == kind and not self.blocks[-1].ended:
            return self.blocks[-1]
        return self._new(ReplyBlock(kind))

    def _thinking(self, origin: str) -> ReplyBlock:
        """The open block of that model's reasoning."""
        origin = origin or self._model
        if origin != self._origin and self.blocks and self.blocks[-1].kind == "thinking":
            self.blocks[-1].ended = True
        block = self._open_block("thinking")
        if origin != self._origin or not block.pieces:
            self._origin = origin
            block.opaque = seal_for_client("", origin, self._model)
        return block

    def _new(self, block: ReplyBlock) -> ReplyBlock:
        self.blocks.append(block)
        return block


def _late_input(call: core.InvocationEnded | core.InvocationIncomplete) -> str:
    """The input of a call that came without pieces; an empty object has none on this wire."""
    if isinstance(call, core.InvocationIncomplete) or call.arguments is None:
        return call.raw
    return msgspec.json.encode(call.arguments).decode() if call.arguments else ""

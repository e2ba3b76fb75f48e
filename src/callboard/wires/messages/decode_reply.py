"""Decode a backend's frames into events (Anthropic Messages).

One `StreamDecoder` per reply; what all wires share is in `common.reply_stream`. A call is whole when its block
closes around a JSON object; how the reply ends decides about the others.

Law: the signature of thinking is a piece of its own, the last of its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.wires.common.errors import EXCERPT, excerpt_of, malformed_reply
from callboard.wires.common.reply_stream import BaseStreamDecoder, DecodeContext, count, string
from callboard.wires.common.tool_calls import CallTable, Completeness, OpenCall, arguments_text, parse_arguments
from callboard.wires.messages.errors import read_error
from callboard.wires.messages.schema import REDACTED, Block, Delta, Frame, Message, Typed, UsageShape

_decode = msgspec.json.Decoder(Message).decode
_decode_type = msgspec.json.Decoder(Typed).decode

_ENDINGS: Mapping[str, core.Ending] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "invocations",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_COMPLETENESS: Mapping[core.Ending, Completeness] = {"length": "objects", "refusal": "objects"}
_KNOWN = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)
_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class Calls(CallTable[OpenCall]):
    """Blocks of calls in, events out; a block is named by its index among the blocks."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._blocks: dict[int, tuple[OpenCall, Any]] = {}
        """The calls whose blocks are open, with the input that came with the opening."""

    def start(self, block_index: int, block: Block) -> list[core.Event]:
        """A call's block opens. One that is open at this index is whole: no more pieces lead to it."""
        ended = self.end(block_index)
        call = self.add(OpenCall(string(block.id), string(block.name)))
        self._blocks[block_index] = call, block.input
        return [*ended, *self.announce(call)] if call.name else ended

    def feed(self, block_index: int, arguments: Any) -> list[core.Event]:
        """The next piece of the call's input."""
        json = arguments_text(arguments)
        if block_index not in self._blocks or not json:
            return []
        return self.grow(self._blocks[block_index][0], json)

    def end(self, block_index: int) -> list[core.Event]:
        """The block closes. An input that came with its opening counts if no pieces came.

        The call stays open if the input is not an object. The end of the reply gives the reason.
        """
        if block_index not in self._blocks:
            return []
        call, value = self._blocks[block_index]
        events = [] if call.pieces or not value else self.feed(block_index, value)
        del self._blocks[block_index]
        raw = call.raw
        arguments = parse_arguments(raw)
        if call.index is not None and arguments is not None and raw and not raw.isspace():
            name = self._tools.declared_name(call.name)
            events.append(core.InvocationEnded(call.index, call.identifier, name, arguments, raw))
            self.remove(call)
        return events


class StreamDecoder(BaseStreamDecoder[Frame]):
    """A Stage: the data of one frame in, events out."""

    decode_payload = staticmethod(msgspec.json.Decoder(Frame).decode)

    def __init__(self, context: DecodeContext) -> None:
        super().__init__(context)
        self._calls = Calls(context)
        self._signatures: dict[int, str] = {}
        self._reason: core.Ending | None = None
        self._signed_off = False
        """Whether the usage of the whole reply came, although no reason did."""
        self._explanation = ""
        self._counts: dict[str, int] = {}

    def decode(self, decoded: Frame, payload: str = "") -> list[core.Event]:
        frame = decoded
        index = frame.index if type(frame.index) is int else -1
        # Nearly all frames of a reply are deltas, so these are looked at first.
        if frame.type == "content_block_delta" and self._started and frame.delta is not None and not self._over:
            return self._decode_delta(index, frame.delta)
        if self._over:
            return []
        if frame.type == "error" or (frame.error and string(frame.type) not in _KNOWN):
            return self._fail(read_error(frame.error, payload[:EXCERPT]))
        if frame.usage is not None:
            self._count(frame.usage)
        match frame.type:
            case "message_start":
                return self._start(frame.message or Message())
            case "content_block_start":
                return self._ensure_started(self._open_block(index, frame.content_block or Block()))
            case "content_block_delta":
                return self._ensure_started(self._decode_delta(index, frame.delta or Delta()))
            case "content_block_stop":
                return self._ensure_started(self._close_block(index))
            case "message_delta":
                self._signed_off = frame.usage is not None
                self._decode_ending(frame.delta or Delta())
                return []
            case "message_stop":
                return self._end(self._reason or "stop")
            case _:
                return []

    def _finish(self, why: core.Why) -> list[core.Event]:
        """A reply that did not say how it ends has failed."""
        if self._reason is not None:
            return self._end(self._reason)
        if self._started and (why == "length" or (why == "stop" and self._signed_off)):
            return self._end("length" if why == "length" else "stop")
        return self._fail(self._cut_failure(why))

    def _done(self) -> list[core.Event]:  # not of this wire, but some servers send it
        return self._end(self._reason or "stop") if self._started else self.finish()

    def _start(self, message: Message) -> list[core.Event]:
        if message.usage is not None:
            self._count(message.usage)
        if self._started:
            return []
        self._started = True
        model = string(message.model)
        self._origin = self._origin or model
        return [core.ReplyStarted(string(message.id), model)]

    def _ensure_started(self, events: list[core.Event]) -> list[core.Event]:
        """The events, after the start of the reply if they are its first."""
        return events if self._started or not events else [*self._start(Message()), *events]

    def _open_block(self, index: int, block: Block) -> list[core.Event]:
        events = self._close_block(index)
        self._signed_off = False
        match block.type:
            case "tool_use":
                events += self._calls.start(index, block)
            case "text":
                if text := string(block.text):
                    events.append(core.TextPiece(text))
            case "thinking":
                if thought := string(block.thinking):
                    events.append(core.ReasoningPiece(thought, origin=self._origin))
                if signature := string(block.signature):
                    self._signatures[index] = signature
            case "redacted_thinking":
                events.append(core.ReasoningPiece("", REDACTED + string(block.data), self._origin))
            case _:  # what the provider's own tools say
                pass
        return events

    def _decode_delta(self, index: int, delta: Delta) -> list[core.Event]:
        match delta.type:
            case "text_delta":
                text = string(delta.text)
                return [core.TextPiece(text)] if text else []
            case "thinking_delta":
                thought = string(delta.thinking)
                return [core.ReasoningPiece(thought, origin=self._origin)] if thought else []
            case "signature_delta":
                if signature := string(delta.signature):
                    self._signatures[index] = signature
                return []
            case "input_json_delta":
                return self._calls.feed(index, delta.partial_json)
            case _:
                return []

    def _close_block(self, index: int) -> list[core.Event]:
        signature = self._signatures.pop(index, "")
        events: list[core.Event] = [core.ReasoningPiece("", signature, self._origin)] if signature else []
        return events + self._calls.end(index)

    def _decode_ending(self, delta: Delta) -> None:
        if delta.stop_reason and isinstance(delta.stop_reason, str):
            self._reason = _ENDINGS.get(delta.stop_reason, "stop")
        if isinstance(delta.stop_details, dict):
            self._explanation = string(delta.stop_details.get("explanation"))

    def _end(self, reason: core.Ending) -> list[core.Event]:
        events = self._note_incomplete(self._close_open_blocks(_COMPLETENESS.get(reason, "all"), reason))
        if reason == "refusal" and self._explanation:
            events.append(core.RefusalPiece(self._explanation))
        if reason in {"stop", "invocations"}:
            reason = "invocations" if self._calls.count else "stop"
        return self._end_with(events if self._started else [*self._start(Message()), *events], core.ReplyEnded(reason))

    def _fail(self, failure: core.ReplyFailed) -> list[core.Event]:
        return self._end_with(self._ensure_started(self._close_open_blocks("none", failure.code)), failure)

    def _close_open_blocks(self, completeness: Completeness, why: str) -> list[core.Event]:
        signatures: list[core.Event] = [
            core.ReasoningPiece("", opaque, self._origin) for opaque in self._signatures.values()
        ]
        self._signatures = {}
        return signatures + self._calls.close(completeness, why)

    def _count(self, usage: UsageShape) -> None:
        """Counts are totals: a later one replaces an earlier one."""
        counts = self._counts
        for name in _COUNTS:
            value = getattr(usage, name)
            if type(value) is int and value >= 0:
                counts[name] = count(value)
        if isinstance(usage.output_tokens_details, dict):
            thinking = usage.output_tokens_details.get("thinking_tokens")
            if type(thinking) is int and thinking >= 0:
                counts["thinking_tokens"] = count(thinking)
        if written := count(usage.cache_creation, "ephemeral_1h_input_tokens"):
            counts["written_for_an_hour"] = written
        self._usage = _usage(counts)

    def _unreadable(self, payload: str, error: Exception) -> list[core.Event]:
        """A frame of another shape; one of a type that is not read here is ignored."""
        try:
            kind = _decode_type(payload).type
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            kind = None
        if isinstance(kind, str) and kind not in _KNOWN:
            return []
        return super()._unreadable(payload, error)


def _usage(counts: Mapping[str, int]) -> core.Usage:
    cached = counts.get("cache_read_input_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    return core.Usage(
        counts.get("input_tokens", 0) + written + cached,
        counts.get("output_tokens", 0),
        cached,
        counts.get("thinking_tokens", 0),
        written,
        counts.get("written_for_an_hour", 0),
    )


def decode_response(body: bytes | str | Mapping[str, Any], context: DecodeContext) -> list[core.Event]:
    """The events of a reply that came whole, as JSON or decoded."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    try:
        message = msgspec.convert(body, Message) if isinstance(body, Mapping) else _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return [malformed_reply(f"the reply is not of this wire: {error}", excerpt_of(body))]
    decoder, excerpt = StreamDecoder(context), excerpt_of(body)
    return [event for frame in _frames(message) for event in decoder.decode(frame, excerpt)] + decoder.finish()


def _frames(message: Message) -> Iterable[Frame]:
    """The reply as the frames of its stream."""
    if message.type == "error" or message.error:
        yield Frame("error", error=message.error)
    if message.content is None and message.stop_reason is None:
        return
    yield Frame("message_start", message=message)
    for index, block in enumerate(message.content or ()):
        yield Frame("content_block_start", index, content_block=block)
        yield Frame("content_block_stop", index)
    yield Frame("message_delta", delta=Delta(stop_reason=message.stop_reason, stop_details=message.stop_details))
    yield Frame("message_stop")

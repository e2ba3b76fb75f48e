"""A backend's frames become events.

Owns what a frame says and the one end that a reply has. Knows nothing of HTTP or tools; calls are put together
in `calls`.
Laws: ReplyStarted first and once, one terminal event last, nothing after it; never an exception for what was
sent. The signature of thinking is a piece of its own, the last of its block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.core import (
    Ending,
    Event,
    Identify,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
    Usage,
    Why,
)
from callboard.wires.chat.calls import Trust
from callboard.wires.chat.errors import EXCERPT
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.stream_end import EndsOnce, unreadable
from callboard.wires.messages.decode_calls import Calls
from callboard.wires.messages.errors import read_error
from callboard.wires.messages.schema import REDACTED, Block, Delta, Frame, Message, Typed, UsageShape

_decode = msgspec.json.Decoder(Frame).decode
_decode_type = msgspec.json.Decoder(Typed).decode

_ENDINGS: Mapping[str, Ending] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "invocations",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_TRUST: Mapping[Ending, Trust] = {"length": "whole", "refusal": "whole"}
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


class StreamDecoder(EndsOnce):
    """A Stage: the data of one frame in, events out.

    `names` maps a tool's name on the wire to the declared one; `declared` are the names that count as known,
    all where it is None. `identify` gives an identifier to a call that has none, or another call's. Reasoning
    is marked with `origin`, by default the model's name in the reply.
    """

    def __init__(
        self,
        *,
        names: Mapping[str, str] = NO_NAMES,
        identify: Identify,
        declared: frozenset[str] | None = None,
        origin: str = "",
    ) -> None:
        self._calls = Calls(names, identify, declared)
        self._origin = origin
        self._signatures: dict[int, str] = {}
        self._reason: Ending | None = None
        self._signed_off = False
        """Whether the usage of the whole reply came, although no reason did."""
        self._explanation = ""
        self._counts: dict[str, int] = {}

    def feed(self, payload: str, /) -> list[Event]:
        if self._over or not payload:
            return []
        try:
            frame = self._read(_decode, payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return self._unreadable(payload, error)
        if frame.type == "content_block_delta" and self._started and (delta := frame.delta) is not None:
            return self._grow(frame.index if type(frame.index) is int else -1, delta)
        return self.take(frame, payload)

    def take(self, frame: Frame, payload: str = "") -> list[Event]:
        """The events of a frame that is decoded already; `payload` is for the excerpt."""
        if self._over:
            return []
        if frame.type == "error" or (frame.error and frame.type not in _KNOWN):
            return self._fail(read_error(frame.error, payload[:EXCERPT]))
        if frame.usage is not None:
            self._count(frame.usage)
        place = frame.index if type(frame.index) is int else -1
        match frame.type:
            case "message_start":
                return self._start(frame.message or Message())
            case "content_block_start":
                return self._begun(self._open(place, frame.content_block or Block()))
            case "content_block_delta":
                return self._begun(self._grow(place, frame.delta or Delta()))
            case "content_block_stop":
                return self._begun(self._close(place))
            case "message_delta":
                self._signed_off = frame.usage is not None
                self._ending(frame.delta or Delta())
                return []
            case "message_stop":
                return self._end(self._reason or "stop")
            case _:
                return []

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """The end of the reply as far as it is known; one that did not say how it ends has failed."""
        if self._over:
            return []
        if self._reason is not None:
            return self._end(self._reason)
        if self._started and (why == "length" or (why == "stop" and self._signed_off)):
            return self._end("length" if why == "length" else "stop")
        return self._fail(self._broken_off(why))

    def _start(self, message: Message) -> list[Event]:
        if message.usage is not None:
            self._count(message.usage)
        if self._started:
            return []
        self._started = True
        model = _string(message.model)
        self._origin = self._origin or model
        return [ReplyStarted(_string(message.id), model)]

    def _begun(self, events: list[Event]) -> list[Event]:
        """The events, the first of a reply behind its start."""
        return events if self._started or not events else [*self._start(Message()), *events]

    def _open(self, place: int, block: Block) -> list[Event]:
        events = self._close(place)
        self._signed_off = False
        match block.type:
            case "tool_use":
                events += self._calls.begin(place, block)
            case "text":
                if text := _string(block.text):
                    events.append(TextPiece(text))
            case "thinking":
                if thought := _string(block.thinking):
                    events.append(ReasoningPiece(thought, origin=self._origin))
                if signature := _string(block.signature):
                    self._signatures[place] = signature
            case "redacted_thinking":
                events.append(ReasoningPiece("", REDACTED + _string(block.data), self._origin))
            case _:  # what the provider's own tools say
                pass
        return events

    def _grow(self, place: int, delta: Delta) -> list[Event]:
        match delta.type:
            case "text_delta":
                text = _string(delta.text)
                return [TextPiece(text)] if text else []
            case "thinking_delta":
                thought = _string(delta.thinking)
                return [ReasoningPiece(thought, origin=self._origin)] if thought else []
            case "signature_delta":
                if signature := _string(delta.signature):
                    self._signatures[place] = signature
                return []
            case "input_json_delta":
                return self._calls.feed(place, delta.partial_json)
            case _:
                return []

    def _close(self, place: int) -> list[Event]:
        signature = self._signatures.pop(place, "")
        events: list[Event] = [ReasoningPiece("", signature, self._origin)] if signature else []
        return events + self._calls.end(place)

    def _ending(self, delta: Delta) -> None:
        if delta.stop_reason and isinstance(delta.stop_reason, str):
            self._reason = _ENDINGS.get(delta.stop_reason, "stop")
        if isinstance(delta.stop_details, dict):
            self._explanation = _string(delta.stop_details.get("explanation"))

    def _end(self, reason: Ending) -> list[Event]:
        events = self._closed(self._left(_TRUST.get(reason, "all"), reason))
        if reason == "refusal" and self._explanation:
            events.append(RefusalPiece(self._explanation))
        if reason in {"stop", "invocations"}:
            reason = "invocations" if self._calls.count else "stop"
        return self._last(events if self._started else [*self._start(Message()), *events], ReplyEnded(reason))

    def _fail(self, failure: ReplyFailed) -> list[Event]:
        return self._last(self._begun(self._left("none", failure.code)), failure)

    def _left(self, trust: Trust, why: str) -> list[Event]:
        """What is still held: signatures of blocks that were not closed, calls that are not whole."""
        signed: list[Event] = [ReasoningPiece("", opaque, self._origin) for opaque in self._signatures.values()]
        self._signatures = {}
        return signed + self._calls.close(trust, why)

    def _count(self, usage: UsageShape) -> None:
        """Counts are totals: a later one stands in place of an earlier one."""
        counts = self._counts
        for name in _COUNTS:
            value = getattr(usage, name)
            if type(value) is int and value >= 0:
                counts[name] = value
        if isinstance(usage.output_tokens_details, dict):
            thinking = usage.output_tokens_details.get("thinking_tokens")
            if type(thinking) is int and thinking >= 0:
                counts["thinking_tokens"] = thinking
        self._usage = _usage(counts)

    def _unreadable(self, payload: str, error: Exception) -> list[Event]:
        """A frame of another shape: one of a type that has no name here is passed over."""
        if payload.startswith("[DONE]"):  # not of this wire, but sent by some
            return self._end(self._reason or "stop") if self._started else self.finish()
        try:
            kind = _decode_type(payload).type
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            kind = None
        if isinstance(kind, str) and kind not in _KNOWN:
            return []
        return self._fail(unreadable(payload, error))


def _usage(counts: Mapping[str, int]) -> Usage:
    cached = counts.get("cache_read_input_tokens", 0)
    given = counts.get("input_tokens", 0) + counts.get("cache_creation_input_tokens", 0) + cached
    return Usage(given, counts.get("output_tokens", 0), cached, counts.get("thinking_tokens", 0))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""

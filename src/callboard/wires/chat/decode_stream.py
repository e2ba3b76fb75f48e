"""A backend's chunks become events.

Owns what a chunk says, whatever the backend's habits, and the one end that a reply has. Knows nothing of
frames, HTTP or tools; calls are put together in `calls`.
Law: ReplyStarted first and once, one terminal event last, nothing after it; never an exception for what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from callboard.core import (
    Ending,
    Event,
    Identify,
    Logprobs,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyExtra,
    ReplyFailed,
    ReplyStarted,
    TextPiece,
    Usage,
    Why,
)
from callboard.wires.chat.calls import Calls, Trust
from callboard.wires.chat.errors import EXCERPT, read_error
from callboard.wires.chat.schema import DONE, READ, CallDelta, Chunk, Delta, KnownChunk, UsageShape
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.stream_end import CUT, EndsOnce, unreadable

_decode_known = msgspec.json.Decoder(KnownChunk).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_METADATA = ("system_fingerprint", "service_tier")

_ENDINGS: Mapping[str, Ending] = {
    "stop": "stop",
    "tool_calls": "invocations",
    "function_call": "invocations",
    "length": "length",
    "content_filter": "filter",
}
_TRUST: Mapping[Ending, Trust] = {"length": "whole", "filter": "whole"}


class StreamDecoder(EndsOnce):
    """A Stage: the payload of one frame in, events out.

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
        self._said = False
        self._refused = False
        self._reason: Ending | None = None
        self._signed_off = False
        """Whether nothing was said since the usage was, which others send last."""
        self._is_known = True
        """Whether no chunk had a field of its server's own: reading those takes longer."""
        self._besides: dict[str, Any] = {}
        """What was told of fields that have no name here."""
        self._early: dict[str, Any] = {}
        """Of these, what came before the reply began."""

    def feed(self, payload: str, /) -> list[Event]:
        if self._over or not payload:
            return []
        if payload.startswith(DONE):
            return self._end(self._reason or "stop") if self._started else self.finish()
        try:
            chunk, raw = self._read(self._decode, payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return self._fail(unreadable(payload, error))
        return self.take(chunk, payload, raw)

    def _decode(self, payload: str) -> tuple[Chunk, Mapping[str, Any] | None]:
        if self._is_known:
            try:
                return _decode_known(payload), None
            except msgspec.ValidationError:
                self._is_known = False
        raw = _decode_any(payload)
        return msgspec.convert(raw, Chunk), raw

    def take(self, chunk: Chunk, payload: str = "", raw: Mapping[str, Any] | None = None) -> list[Event]:
        """The events of a chunk that is decoded already; `payload` is for the excerpt, `raw` all its fields."""
        if self._over:
            return []
        if chunk.error:
            return self._fail(read_error(chunk.error, 0, payload[:EXCERPT]))
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
            self._signed_off = True
        events: list[Event] = []
        for choice in chunk.choices or ():
            if _is_another(choice.index):
                continue  # the reply is the first choice
            if not self._started:
                self._started = True
                self._origin = self._origin or _string(chunk.model)
                events.append(ReplyStarted(_string(chunk.id), _string(chunk.model)))
            if choice.delta is not None:
                self._say(choice.delta, events)
            elif choice.message is not None and not self._said:
                self._say(_numbered(choice.message), events)
                self._signed_off = True
            if choice.logprobs:
                events += _logprobs(choice.logprobs)
            if choice.finish_reason and isinstance(choice.finish_reason, str):
                self._reason = reason = _ENDINGS.get(choice.finish_reason, "stop")
                events += self._closed(self._calls.close(_TRUST.get(reason, "all"), reason))
        if raw is not None or chunk.system_fingerprint or chunk.service_tier:
            events += self._rest(chunk, raw)
        return events

    def _rest(self, chunk: Chunk, raw: Mapping[str, Any] | None) -> list[Event]:
        """What has no name here; of what stands in each chunk what is new."""
        first: Mapping[str, Any] = {}
        if raw is None:
            fields = {name: value for name in _METADATA if (value := getattr(chunk, name))}
        else:
            fields = _unread(raw, "chunk")
            first = next((each for each in raw.get("choices") or () if not _is_another(each.get("index"))), first)
        fields = self._early | {name: value for name, value in fields.items() if self._besides.get(name) != value}
        self._besides |= fields
        self._early = {} if self._started else fields
        if not self._started:
            return []
        choice = _unread(first, "choice")
        message = _unread(first.get("delta") or first.get("message") or {}, "message")
        return [ReplyExtra("chat", fields, choice, message)] if fields or choice or message else []

    def finish(self, why: Why = "stop", /) -> list[Event]:
        """The end of the reply as far as it is known.

        A reply without a finish_reason ends with what it said where its usage or `[DONE]` came behind; else it was cut.
        """
        if self._over:
            return []
        if self._reason is not None:
            return self._closed(self._calls.close("none" if why in CUT else "whole", why)) + self._end(self._reason)
        if why in CUT or not self._said or not (self._signed_off or why == "length"):
            return self._fail(self._broken_off(why))
        return self._end("length" if why == "length" else "stop")

    def _say(self, delta: Delta, events: list[Event]) -> None:
        pieces: list[Event] = []
        if reasoning := _string(delta.reasoning_content) or _string(delta.reasoning):
            pieces.append(ReasoningPiece(reasoning, origin=self._origin))
        if delta.content:
            pieces += _spoken(delta.content)
        if refusal := _string(delta.refusal):
            pieces.append(RefusalPiece(refusal))
        if pieces:
            self._said = True
            self._refused = self._refused or any(isinstance(piece, RefusalPiece) for piece in pieces)
            events += self._calls.release()
            events += pieces
        self._signed_off = self._signed_off and not (pieces or delta.tool_calls or delta.function_call)
        for call in delta.tool_calls or ():
            events += self._calls.feed(call)
        if delta.function_call is not None:
            events += self._calls.feed(CallDelta("function_call", function=delta.function_call))
        self._said = self._said or self._calls.count > 0

    def _end(self, reason: Ending) -> list[Event]:
        events: list[Event] = [] if self._started else [ReplyStarted()]
        events += self._closed(self._calls.close(_TRUST.get(reason, "all"), reason))
        if reason in {"stop", "invocations"}:
            reason = "invocations" if self._calls.count else "refusal" if self._refused else "stop"
        return self._last(events, ReplyEnded(reason))

    def _fail(self, failure: ReplyFailed) -> list[Event]:
        return self._last(self._calls.close("none", failure.code), failure)


def _is_another(index: Any) -> bool:
    """Whether a choice is not the first."""
    return type(index) is int and index > 0


def _numbered(message: Delta) -> Delta:
    """The message with its calls numbered: in a whole message, each entry is a call of its own."""
    for index, call in enumerate(message.tool_calls or ()):
        call.index = index
    return message


def _unread(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields that nobody reads here and that say something."""
    read = READ[kind]
    return {name: value for name, value in fields.items() if name not in read and value not in (None, "", [], {})}


def _logprobs(said: Any) -> Iterator[Event]:
    for field, is_refusal in (("content", False), ("refusal", True)):
        tokens = said.get(field) if isinstance(said, dict) else None
        if isinstance(tokens, list) and (found := tuple([each for each in tokens if isinstance(each, dict)])):
            yield Logprobs(found, is_refusal)


def _spoken(content: Any) -> Iterator[Event]:
    if isinstance(content, str):
        yield TextPiece(content)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict):
                if text := _string(part.get("text")):
                    yield TextPiece(text)
                if refusal := _string(part.get("refusal")):
                    yield RefusalPiece(refusal)


def _usage(usage: UsageShape) -> Usage:
    return Usage(
        _count(usage.prompt_tokens),
        _count(usage.completion_tokens),
        _count(usage.prompt_tokens_details, "cached_tokens"),
        _count(usage.completion_tokens_details, "reasoning_tokens"),
    )


def _count(value: Any, key: str = "") -> int:
    if key:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value > 0 else 0


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""

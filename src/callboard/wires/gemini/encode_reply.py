"""Encode events as parts, and parts as the chunks that a client of Gemini reads.

Laws: one chunk with a finishReason, or an error, last and once; what was sent is never taken back; a whole
reply says what the stream of the same reply says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.core import TextPiece
from callboard.text.sse import Payload
from callboard.wires.common.contents import seal_for_client
from callboard.wires.common.reply_stream import BROKEN_OFF, CUT, last_attempt
from callboard.wires.gemini.content import signature_to_client, split_signature
from callboard.wires.gemini.errors import encode_error

MALFORMED_CALL = "MALFORMED_FUNCTION_CALL"
"""Finish reason if a call's arguments are incomplete or not an object. This wire cannot send such a call."""
_REASONS: Mapping[core.Ending, str] = {
    "stop": "STOP",
    "invocations": "STOP",
    "length": "MAX_TOKENS",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "no_call": "OTHER",
    "retry": "STOP",
}
_encode = msgspec.json.Encoder().encode


class ReplyParts:
    """Events in, parts out.

    A signature waits for the part that it signs. A signature of another model is sealed. A call is
    sent whole. An incomplete call, or one whose arguments are not an object, is omitted and described by `malformed`.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._malformed = ""
        self._warnings: list[str] = []
        self._open: dict[int, str] = {}
        """The names of calls that have not ended."""
        self.usage: core.Usage | None = None
        self.signature = ""
        """The signature of the next part."""

    @property
    def malformed(self) -> str:
        """The first call that could not be sent; "" where all were."""
        return self._malformed or next(map(_describe_call, self._open.values()), "")

    @property
    def message(self) -> str:
        """The finishMessage."""
        return "; ".join(filter(None, (self.malformed, *self._warnings)))

    def feed(self, event: core.Event) -> list[dict[str, Any]]:
        match event:
            case core.InvocationStarted(index=index, name=name):
                self._malformed = self.malformed if index in self._open else self._malformed
                self._open[index] = name
            case core.InvocationEnded(index=index) | core.InvocationIncomplete(index=index):
                self._open.pop(index, None)
                return self._call(event)
            case core.TextPiece(text=text) | core.RefusalPiece(text=text):
                return [self._sign({"text": text})] if text else []
            case core.ReasoningPiece():
                return self._reasoning(event)
            case core.Usage():
                self.usage = event
            case core.Note(code="incomplete", text=text):
                self._warnings.append(text)
            case _:
                pass
        return []

    def _call(self, call: core.InvocationEnded | core.InvocationIncomplete) -> list[dict[str, Any]]:
        if isinstance(call, core.InvocationIncomplete) or call.arguments is None:
            self._malformed = self._malformed or _describe_call(call.name, call.raw)
            return []
        function = {"id": call.identifier, "name": call.name, "args": dict(call.arguments)}
        return [self._sign({"functionCall": function})]

    def finish(self) -> list[dict[str, Any]]:
        """The part for a signature that no part came for."""
        return [self._sign({"text": ""})] if self.signature else []

    def _reasoning(self, piece: core.ReasoningPiece) -> list[dict[str, Any]]:
        own, following = split_signature(piece.opaque)
        parts: list[dict[str, Any]] = []
        if piece.text or own:
            thought: dict[str, Any] = {"text": piece.text, "thought": True}
            parts.append(thought | {"thoughtSignature": self._seal(own, piece)} if own else thought)
        if following:
            parts += self.finish()
            self.signature = self._seal(following, piece)
        return parts

    def _seal(self, signature: str, piece: core.ReasoningPiece) -> str:
        return signature_to_client(seal_for_client(signature, piece.origin, self._model))

    def _sign(self, part: dict[str, Any]) -> dict[str, Any]:
        if self.signature:
            part["thoughtSignature"], self.signature = self.signature, ""
        return part


def _describe_call(name: str, raw: str = "") -> str:
    return f"Malformed function call: {name}({raw})"


def _last_chunk(content: list[dict[str, Any]], terminal: core.ReplyEnded, parts: ReplyParts) -> dict[str, Any]:
    """Return the chunk that ends a reply. The official client refuses a chunk without parts, so there is always a part."""
    is_malformed = parts.malformed and terminal.reason in {"stop", "invocations"}
    reason = MALFORMED_CALL if is_malformed else _REASONS[terminal.reason]
    message = {"finishMessage": parts.message} if parts.message else {}
    whole = {"parts": content or [{"text": ""}], "role": "model"}
    chunk: dict[str, Any] = {"candidates": [{"content": whole, "finishReason": reason, **message, "index": 0}]}
    return chunk if parts.usage is None else chunk | {"usageMetadata": _usage_body(parts.usage)}


class StreamEncoder:
    """A Stage: events in, payloads out. `created` has no place on this wire."""

    def __init__(self, *, identifier: str, model: str, created: int, request: core.Request | None = None) -> None:
        self._tail = {"modelVersion": model, "responseId": identifier}
        self._head = b'{"candidates":[{"content":{"parts":['
        self._end = b'],"role":"model"},"index":0}],' + _encode(self._tail)[1:]
        self._text_head = self._head + b'{"text":'
        self._text_end = b"}" + self._end
        self._parts = ReplyParts(model)
        self._over = False

    def feed(self, event: core.Event, /) -> list[Payload]:
        if self._over:
            return []
        if type(event) is TextPiece and not self._parts.signature:  # nearly all events are this one
            return [(b"", self._text_head + _encode(event.text) + self._text_end)] if event.text else []
        if isinstance(event, core.ReplyEnded):
            return [] if event.reason == "retry" else self._close(event)
        if isinstance(event, core.ReplyFailed):
            return self._fail(event)
        return [(b"", self._head + _encode(part) + self._end) for part in self._parts.feed(event)]

    def finish(self, why: core.Why = "stop", /) -> list[Payload]:
        """Nothing after a whole reply; an error where the events broke off."""
        return [] if self._over else self._fail(CUT["cancelled"] if why == "cancelled" else BROKEN_OFF)

    def _close(self, terminal: core.ReplyEnded) -> list[Payload]:
        self._over = True
        return [(b"", _encode(_last_chunk(self._parts.finish(), terminal, self._parts) | self._tail))]

    def _fail(self, failure: core.ReplyFailed) -> list[Payload]:
        self._over = True
        return [(b"", _encode(encode_error(failure)[1]))]


class ArrayEncoder:
    """A Framer: one JSON array of all payloads, which answers a request without `alt=sse`."""

    def __init__(self) -> None:
        self._is_open = False
        self._is_closed = False

    def encode(self, payloads: Iterable[Payload], /) -> bytes:
        chunks = b",\n".join([data for _, data in payloads])
        if not chunks:
            return b""
        before, self._is_open = b",\n" if self._is_open else b"[", True
        return before + chunks

    def finish(self, why: core.Why = "stop", /) -> list[bytes]:
        if self._is_closed:
            return []
        self._is_closed = True
        return [b"]" if self._is_open else b"[]"]


def encode_response(
    events: Iterable[core.Event],
    *,
    identifier: str,
    model: str,
    created: int,  # noqa: ARG001 - this wire has no place for it
    request: core.Request | None = None,  # noqa: ARG001 - nothing of it is repeated
) -> dict[str, Any]:
    """Return the body of a reply. A failed reply becomes `{"error": …}`."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, core.ReplyFailed):
        return encode_error(terminal)[1]
    parts, joined = ReplyParts(model), _JoinedParts()
    for event in attempt:
        joined.add(parts.feed(event))
    joined.add(parts.finish())
    return _last_chunk(joined.parts(), terminal, parts) | {"modelVersion": model, "responseId": identifier}


class _JoinedParts:
    """Parts, with adjacent texts and thoughts joined up to a signed part."""

    def __init__(self) -> None:
        self._parts: list[tuple[dict[str, Any], list[str]]] = []

    def add(self, parts: Iterable[dict[str, Any]]) -> None:
        for part in parts:
            last = self._parts[-1][0] if self._parts else {}
            thought = part.get("thought")
            joins = (
                "text" in part and "text" in last and thought == last.get("thought") and "thoughtSignature" not in last
            )
            if joins and (thought or "thoughtSignature" not in part):
                last |= part
                self._parts[-1][1].append(part["text"])
            else:
                self._parts.append((part, [part.get("text", "")]))

    def parts(self) -> list[dict[str, Any]]:
        return [part | {"text": "".join(texts)} if "text" in part else part for part, texts in self._parts]


def _usage_body(usage: core.Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "totalTokenCount": usage.input + usage.output,
        "cachedContentTokenCount": usage.cached,
        "thoughtsTokenCount": usage.reasoning,
    }

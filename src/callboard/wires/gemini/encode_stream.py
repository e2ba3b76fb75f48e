"""Events become the parts, and the parts the chunks, that a client reads.

Owns the server half of the stream, and which parts a reply has. Knows nothing of HTTP.
Law: one chunk with a finishReason, or an error, last and once; what was sent is never taken back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from callboard.core import (
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    Request,
    TextPiece,
    Usage,
    Why,
)
from callboard.text.sse import encode_frame
from callboard.wires.common.reply_stream import BROKEN_OFF
from callboard.wires.common.sealed_reasoning import sealed
from callboard.wires.gemini.errors import encode_error
from callboard.wires.gemini.finish_reasons import finish_reason, usage_body
from callboard.wires.gemini.thought_signatures import split, to_client

_encode = msgspec.json.Encoder().encode
_CUT = {"cancelled": ReplyFailed("caller", "cancelled", "the reply was cancelled")}


class Parts:
    """What was said, event by event as parts.

    A signature waits for the part that it stands on; one of another model than the client was told is sealed. A call comes whole; one that this wire cannot say, or that began and did not end, is left out and told by
    `malformed`.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._malformed = ""
        self._warnings: list[str] = []
        self._open: dict[int, str] = {}
        """The names of calls that have not ended."""
        self.usage: Usage | None = None
        self._signature = ""

    @property
    def waits(self) -> bool:
        """Whether a signature waits."""
        return bool(self._signature)

    @property
    def malformed(self) -> str:
        """What became of the first call that is not told; empty where all of them are."""
        return self._malformed or next(map(_spell, self._open.values()), "")

    @property
    def message(self) -> str:
        """What is to be said of the end."""
        return "; ".join(filter(None, (self.malformed, *self._warnings)))

    def of(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case InvocationStarted(index=index, name=name):
                self._malformed = self.malformed if index in self._open else self._malformed
                self._open[index] = name
            case InvocationEnded(index=index) | InvocationIncomplete(index=index):
                self._open.pop(index, None)
                return self._call(event)
            case TextPiece(text=text) | RefusalPiece(text=text):
                return [self._signed({"text": text})] if text else []
            case ReasoningPiece():
                return self._thought(event)
            case Usage():
                self.usage = event
            case Note(code="incomplete", text=text):
                self._warnings.append(text)
            case _:
                pass
        return []

    def _call(self, call: InvocationEnded | InvocationIncomplete) -> list[dict[str, Any]]:
        if isinstance(call, InvocationIncomplete) or call.arguments is None:
            self._malformed = self._malformed or _spell(call.name, call.raw)
            return []
        told = {"id": call.identifier, "name": call.name, "args": dict(call.arguments)}
        return [self._signed({"functionCall": told})]

    def rest(self) -> list[dict[str, Any]]:
        """A signature that no part came for."""
        return [self._signed({"text": ""})] if self._signature else []

    def _thought(self, piece: ReasoningPiece) -> list[dict[str, Any]]:
        own, following = split(piece.opaque)
        parts: list[dict[str, Any]] = []
        if piece.text or own:
            thought: dict[str, Any] = {"text": piece.text, "thought": True}
            parts.append(thought | {"thoughtSignature": self._sealed(own, piece)} if own else thought)
        if following:
            parts += self.rest()
            self._signature = self._sealed(following, piece)
        return parts

    def _sealed(self, signature: str, piece: ReasoningPiece) -> str:
        return to_client(sealed(signature, piece.origin, self._model))

    def _signed(self, part: dict[str, Any]) -> dict[str, Any]:
        if self._signature:
            part["thoughtSignature"] = self._signature
            self._signature = ""
        return part


def _spell(name: str, raw: str = "") -> str:
    return f"Malformed function call: {name}({raw})"


def ending(terminal: ReplyEnded, parts: Parts) -> dict[str, Any]:
    """What a candidate has at its end."""
    reason = finish_reason(terminal.reason, malformed=bool(parts.malformed))
    message = {"finishMessage": parts.message} if parts.message else {}
    return {"finishReason": reason, **message, "index": 0}


class StreamEncoder:
    """A Stage: events in, frames out.

    Of Notes those are told that say why a reply is incomplete; a retry cannot be told: where one may come, hold the events until the reply
    has ended. This wire has no place for `created`, and nothing of `request` has to be echoed.
    """

    def __init__(self, *, identifier: str, model: str, created: int, request: Request | None = None) -> None:
        self._tail = {"modelVersion": model, "responseId": identifier}
        named = _encode(self._tail)[1:]
        self._begin = b'data: {"candidates":[{"content":{"parts":['
        self._end = b'],"role":"model"},"index":0}],' + named + b"\n\n"
        self._text = self._begin + b'{"text":'
        self._text_end = b"}" + self._end
        self._parts = Parts(model)
        self._waits = False
        self._over = False

    def feed(self, event: Event, /) -> list[bytes]:
        if self._over:
            return []
        if type(event) is TextPiece and not self._waits:  # the usual piece, quickly
            return [self._text + _encode(event.text) + self._text_end] if event.text else []
        if isinstance(event, ReplyEnded):
            return [] if event.reason == "retry" else self._close(event)
        if isinstance(event, ReplyFailed):
            return self._fail(event)
        frames = [self._begin + _encode(part) + self._end for part in self._parts.of(event)]
        self._waits = self._parts.waits
        return frames

    def finish(self, why: Why = "stop", /) -> list[bytes]:
        """Nothing after a whole reply; an error where the events broke off."""
        return [] if self._over else self._fail(_CUT.get(why, BROKEN_OFF))

    def _close(self, terminal: ReplyEnded) -> list[bytes]:
        self._over = True
        # An empty text and not no part: the official client takes a chunk without parts for an invalid reply.
        content = {"parts": self._parts.rest() or [{"text": ""}], "role": "model"}
        chunk: dict[str, Any] = {"candidates": [{"content": content, **ending(terminal, self._parts)}]}
        if self._parts.usage is not None:
            chunk["usageMetadata"] = usage_body(self._parts.usage)
        return [encode_frame(_encode(chunk | self._tail))]

    def _fail(self, failure: ReplyFailed) -> list[bytes]:
        self._over = True
        return [encode_frame(_encode(encode_error(failure)[1]))]


class ArrayEncoder(StreamEncoder):
    """The same stream as one JSON array of chunks, which is what a request without `alt=sse` gets."""

    _is_open = False
    _is_closed = False

    def feed(self, event: Event, /) -> list[bytes]:
        return self._listed(super().feed(event))

    def finish(self, why: Why = "stop", /) -> list[bytes]:
        if self._is_closed:
            return []
        self._is_closed = True
        chunks = self._listed(super().finish(why))
        return [*chunks, b"]" if self._is_open else b"[]"]

    def _listed(self, frames: list[bytes]) -> list[bytes]:
        chunks: list[bytes] = []
        for frame in frames:
            chunks.append((b",\n" if self._is_open else b"[") + frame.removeprefix(b"data: ").rstrip())
            self._is_open = True
        return chunks

"""A whole reply, not streamed. Law: it says what the stream of the same reply says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyExtra,
    ReplyFailed,
    Request,
    TextPiece,
    Usage,
)
from callboard.wires.chat.decode_stream import StreamDecoder
from callboard.wires.chat.encode_stream import finish_reason, usage_body
from callboard.wires.chat.errors import error_body
from callboard.wires.chat.schema import Chunk
from callboard.wires.common.errors import EXCERPT, malformed_reply
from callboard.wires.common.reply_stream import DONE, DecodeContext, ending, last_attempt, vendor_field
from callboard.wires.common.tool_calls import ended_arguments


def decode_response(body: bytes | str | Mapping[str, Any], context: DecodeContext) -> list[Event]:
    """The events of a reply that came whole, as JSON or decoded.

    The last is a ReplyEnded or ReplyFailed, whatever the body is.
    """
    decoder = StreamDecoder(context)
    if isinstance(body, Mapping):
        try:
            chunk = msgspec.convert(body, Chunk)
        except (msgspec.MsgspecError, RecursionError) as error:
            return [malformed_reply(f"the reply is not of this wire: {error}", repr(body)[:EXCERPT])]
        events = decoder.decode((chunk, body))
    else:
        events = decoder.feed(body if isinstance(body, str) else body.decode("utf-8", "replace"))
    return events + decoder.feed(DONE) if events else decoder.finish()


_GROWING = frozenset({"data", "transcript"})
"""Texts of `audio` that come in pieces."""


class _Message:
    """The message that the events of a reply make."""

    def __init__(self) -> None:
        self.refusal: list[str] = []
        self.is_cut = False
        self.warnings: list[str] = []
        self.logprobs: dict[str, list[Any]] = {}
        self.usage: Usage | None = None
        self.extra: dict[str, Any] = {}
        """Fields of the reply without a name in the core; under `choice` and `message` those of these."""
        self.open: set[int] = set()
        """Calls that have not ended."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[InvocationStarted, list[str]]] = {}

    def add(self, event: Event) -> None:
        match event:
            case TextPiece(text=text):
                self._text.append(text)
            case ReasoningPiece(text=text):
                self._reasoning.append(text)
            case RefusalPiece(text=text):
                self.refusal.append(text)
            case Logprobs(tokens=tokens, is_refusal=is_refusal):
                self.logprobs.setdefault("refusal" if is_refusal else "content", []).extend(tokens)
            case ReplyExtra(wire="chat"):
                self.extra = _merge(self.extra, {**event.fields, "choice": event.choice, "message": event.message})
            case InvocationStarted(index=index):
                self._calls[index] = (event, [])
                self.open.add(index)
            case ArgumentsPiece(index=index, json=json):
                self._calls[index][1].append(json)
            case InvocationEnded(index=index):
                self.open.discard(index)
                if not self._calls[index][1]:
                    self._calls[index][1].append(ended_arguments(event))
            case InvocationIncomplete():
                self.is_cut = True
            case Usage():
                self.usage = event
            case Note(code="incomplete", text=text):
                self.warnings.append(text)
            case _:
                pass

    def body(self) -> dict[str, Any]:
        text = "".join(self._text)
        refusal = "".join(self.refusal) or None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if not text and (self._calls or refusal) else text,
            "refusal": refusal,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        message |= self.extra.get("message", {})
        if self._calls:
            message["tool_calls"] = [
                {"id": call.identifier, "type": "function", "function": {"name": call.name, "arguments": "".join(json)}}
                for call, json in self._calls.values()
            ]
        return message


def _merge(before: Any, after: Any, name: str = "") -> Any:
    """Fields of two chunks as clients of streams put them together."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {**before, **{each: _merge(before.get(each), value, each) for each, value in after.items()}}
    if isinstance(before, list) and isinstance(after, list):
        return before + after
    return before + after if name in _GROWING and isinstance(before, str) and isinstance(after, str) else after


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,
    request: Request | None = None,  # noqa: ARG001
) -> dict[str, Any]:
    """The body of a reply; that of a failed one is `{"error": …}`. `created` is in seconds since 1970."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, ReplyFailed):
        return error_body(terminal)
    message = _Message()
    for event in attempt:
        message.add(event)
    is_cut = message.is_cut or bool(message.open)
    reason = ending(terminal.reason, is_cut=is_cut)
    choice = {
        "index": 0,
        "message": message.body(),
        "logprobs": {"content": None, "refusal": None, **message.logprobs} if message.logprobs else None,
        "finish_reason": finish_reason(reason, refused=bool(message.refusal) and not is_cut),
        **message.extra.get("choice", {}),
    }
    fields = {name: value for name, value in message.extra.items() if name not in ("choice", "message")}
    head = {"id": identifier, "object": "chat.completion", "created": created, "model": model}
    body = {**head, "choices": [choice], **fields, **vendor_field(message.warnings)}
    return body if message.usage is None else body | {"usage": usage_body(message.usage)}

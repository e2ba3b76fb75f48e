"""A whole reply, not streamed.

Owns the body of a reply in both directions. Knows nothing of HTTP.
Law: it says what the stream of the same reply says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import (
    ArgumentsPiece,
    Event,
    Identify,
    InvocationEnded,
    InvocationIncomplete,
    InvocationStarted,
    Logprobs,
    Note,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyExtra,
    ReplyFailed,
    ReplyStarted,
    Request,
    TextPiece,
    Usage,
)
from callboard.wires.chat.decode_stream import StreamDecoder
from callboard.wires.chat.encode_stream import finish_reason, spell_arguments, usage_body
from callboard.wires.chat.errors import EXCERPT, error_body
from callboard.wires.chat.schema import DONE, Chunk
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.stream_end import ending, vendor_field


def decode_response(
    body: bytes | str | Mapping[str, Any],
    *,
    names: Mapping[str, str] = NO_NAMES,
    identify: Identify,
    declared: frozenset[str] | None = None,
    origin: str = "",
) -> list[Event]:
    """The events of a reply that came whole, as JSON or decoded; parameters as of StreamDecoder.

    The last is a ReplyEnded or ReplyFailed, whatever the body is.
    """
    decoder = StreamDecoder(names=names, identify=identify, declared=declared, origin=origin)
    if isinstance(body, Mapping):
        try:
            chunk = msgspec.convert(body, Chunk)
        except (msgspec.MsgspecError, RecursionError) as error:
            message = f"the reply is not of this wire: {error}"
            return [ReplyFailed("provider", "malformed", message, repr(body)[:EXCERPT])]
        events = decoder.take(chunk, raw=body)
    else:
        events = decoder.feed(body if isinstance(body, str) else body.decode("utf-8", "replace"))
    if not events:
        return decoder.finish()
    return events + decoder.feed(DONE)


_GROWING = frozenset({"data", "transcript"})
"""Texts of `audio` that come in pieces."""


class _Message:
    """What was said so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.calls: dict[int, tuple[InvocationStarted, list[str]]] = {}
        self.open: set[int] = set()
        """Calls that have not ended."""
        self.is_cut = False
        self.warnings: list[str] = []
        self.logprobs: dict[str, list[Any]] = {}
        self.extra: dict[str, Any] = {}
        """Fields of the reply that have no name here, and in `choice` and `message` those of these."""

    def body(self) -> dict[str, Any]:
        text = "".join(self.text)
        refusal = "".join(self.refusal) or None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if not text and (self.calls or refusal) else text,
            "refusal": refusal,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        message |= self.extra.get("message", {})
        if self.calls:
            message["tool_calls"] = [
                {"id": call.identifier, "type": "function", "function": {"name": call.name, "arguments": "".join(json)}}
                for call, json in self.calls.values()
            ]
        return message


def _merged(before: Any, after: Any, name: str = "") -> Any:
    """Fields that came one after the other, as clients of streams put them together."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {**before, **{each: _merged(before.get(each), value, each) for each, value in after.items()}}
    if isinstance(before, list) and isinstance(after, list):
        return before + after
    return before + after if name in _GROWING and isinstance(before, str) and isinstance(after, str) else after


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,
    request: Request | None = None,  # noqa: ARG001  # what other wires echo
) -> dict[str, Any]:
    """The body of a reply; that of a failed one is `{"error": …}`. `created` is in seconds since 1970.

    What came before a ReplyEnded("retry") is left out: another reply stands in its place.
    """
    message = _Message()
    usage: Usage | None = None
    terminal: ReplyEnded | ReplyFailed = ReplyFailed("provider", "cut", "the reply has no end")
    for event in events:
        match event:
            case ReplyStarted():
                pass
            case TextPiece(text=text):
                message.text.append(text)
            case ReasoningPiece(text=text):
                message.reasoning.append(text)
            case RefusalPiece(text=text):
                message.refusal.append(text)
            case Logprobs(tokens=tokens, is_refusal=is_refusal):
                message.logprobs.setdefault("refusal" if is_refusal else "content", []).extend(tokens)
            case ReplyExtra(wire="chat"):
                message.extra = _merged(
                    message.extra, {**event.fields, "choice": event.choice, "message": event.message}
                )
            case InvocationStarted(index=index):
                message.calls[index] = (event, [])
                message.open.add(index)
            case ArgumentsPiece(index=index, json=json):
                message.calls[index][1].append(json)
            case InvocationEnded(index=index):
                message.open.discard(index)
                if not message.calls[index][1]:
                    message.calls[index][1].append(spell_arguments(event))
            case InvocationIncomplete():
                message.is_cut = True
            case Usage():
                usage = event
            case Note(code="incomplete", text=text):
                message.warnings.append(text)
            case ReplyEnded(reason="retry"):
                message = _Message()
            case ReplyEnded() | ReplyFailed():
                terminal = event
            case _:
                pass
    if isinstance(terminal, ReplyFailed):
        return error_body(terminal)
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
    return body if usage is None else body | {"usage": usage_body(usage)}

"""A whole reply, not streamed. Law: it says what the stream of the same reply says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import (
    Event,
    ReplyExtra,
    ReplyFailed,
    Request,
)
from callboard.wires.chat.decode_stream import StreamDecoder
from callboard.wires.chat.encode_stream import StreamEncoder
from callboard.wires.chat.errors import error_body
from callboard.wires.chat.schema import Chunk
from callboard.wires.common.errors import EXCERPT, malformed_reply
from callboard.wires.common.reply_stream import DONE, DecodeContext, last_attempt


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


def _merge(before: Any, after: Any, name: str = "") -> Any:
    """Fields of two chunks as clients of streams put them together."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {**before, **{each: _merge(before.get(each), value, each) for each, value in after.items()}}
    if isinstance(before, list) and isinstance(after, list):
        return before + after
    return before + after if name in _GROWING and isinstance(before, str) and isinstance(after, str) else after


def encode_response(
    events: Iterable[Event], *, identifier: str, model: str, created: int, request: Request | None = None
) -> dict[str, Any]:
    """The chunks of a reply as one body; that of a failed one is `{"error": …}`. `created` is in seconds since 1970."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, ReplyFailed):
        return error_body(terminal)
    encoder = StreamEncoder(identifier=identifier, model=model, created=created, request=request)
    body: dict[str, Any] = {"id": identifier, "object": "chat.completion", "created": created, "model": model}
    extra: dict[str, Any] = {"choice": {}, "message": {}}
    texts: dict[str, list[str]] = {"content": [], "refusal": []}
    logprobs: dict[str, list[Any]] = {"content": [], "refusal": []}
    calls: dict[int, tuple[dict[str, Any], list[str]]] = {}
    reason = ""
    for event in (*attempt, terminal):
        if isinstance(event, ReplyExtra):
            if event.wire == "chat":
                extra = _merge(extra, {**event.fields, "choice": event.choice, "message": event.message})
            continue
        for chunk in encoder.chunks(event):
            for choice in chunk.pop("choices"):
                delta, reason = choice["delta"], choice["finish_reason"]
                for call in delta.pop("tool_calls", ()):
                    _add_call(calls, call)
                delta.pop("role", None)
                for name, text in delta.items():
                    texts.setdefault(name, []).append(text)
                for name, more in choice.get("logprobs", {}).items():
                    logprobs[name] += more or ()
            body |= chunk
    message: dict[str, Any] = {"role": "assistant", **{name: "".join(pieces) for name, pieces in texts.items()}}
    message["refusal"] = message["refusal"] or None
    if not message["content"] and (calls or message["refusal"]):
        message["content"] = None
    message |= extra.pop("message")
    if calls:
        message["tool_calls"] = [_whole_call(call, pieces) for call, pieces in calls.values()]
    tokens = {name: each or None for name, each in logprobs.items()}
    choice = {"index": 0, "message": message, "logprobs": tokens if any(tokens.values()) else None}
    return {**body, "choices": [{**choice, "finish_reason": reason, **extra.pop("choice")}], **extra}


def _add_call(calls: dict[int, tuple[dict[str, Any], list[str]]], delta: dict[str, Any]) -> None:
    """Adds a piece of a call to those that began."""
    index = delta.pop("index")
    if "id" in delta:
        calls[index] = delta, []
    part = delta.get("custom") or delta["function"]
    calls[index][1].append(part["input" if "custom" in delta else "arguments"])


def _whole_call(call: dict[str, Any], pieces: list[str]) -> dict[str, Any]:
    kind, field = ("custom", "input") if "custom" in call else ("function", "arguments")
    return {**call, kind: {"name": call[kind]["name"], field: "".join(pieces)}}

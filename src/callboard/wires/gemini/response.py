"""A whole reply, not streamed. Law: it says what the stream of the same reply says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import Event, ReplyFailed, Request
from callboard.wires.common.errors import EXCERPT, malformed_reply
from callboard.wires.common.reply_stream import DecodeContext, last_attempt
from callboard.wires.gemini.decode_stream import StreamDecoder
from callboard.wires.gemini.encode_stream import ReplyParts, ending_fields
from callboard.wires.gemini.errors import encode_error
from callboard.wires.gemini.finish_reasons import usage_body
from callboard.wires.gemini.schema import Body


def decode_response(body: bytes | str | Mapping[str, Any] | list[Any], context: DecodeContext) -> list[Event]:
    """The events of a reply that came whole, as JSON or decoded.

    A list of chunks, which a stream without `alt=sse` is, is read as the stream. The last event is a ReplyEnded
    or ReplyFailed, whatever the body is.
    """
    decoder = StreamDecoder(context)
    if isinstance(body, Mapping | list):
        try:
            decoded: Body = msgspec.convert(body, Body)
        except (msgspec.MsgspecError, RecursionError) as error:
            return [malformed_reply(f"the reply is not of this wire: {error}", repr(body)[:EXCERPT])]
        events = decoder.decode(decoded)
    else:
        events = decoder.feed(body if isinstance(body, str) else body.decode("utf-8", "replace"))
    return events + decoder.finish_whole()


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,  # noqa: ARG001 - this wire has no place for it
    request: Request | None = None,  # noqa: ARG001 - nothing of it is repeated
) -> dict[str, Any]:
    """The body of a reply; that of a failed one is `{"error": …}`."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, ReplyFailed):
        return encode_error(terminal)[1]
    parts, joined = ReplyParts(model), _JoinedParts()
    for event in attempt:
        joined.add(parts.feed(event))
    joined.add(parts.finish())
    content = {"parts": joined.parts() or [{"text": ""}], "role": "model"}
    body: dict[str, Any] = {"candidates": [{"content": content, **ending_fields(terminal, parts)}]}
    if parts.usage is not None:
        body["usageMetadata"] = usage_body(parts.usage)
    return body | {"modelVersion": model, "responseId": identifier}


class _JoinedParts:
    """Parts, with adjacent texts and thoughts joined, each up to the one that is signed."""

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

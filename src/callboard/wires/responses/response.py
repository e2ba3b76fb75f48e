"""A whole reply, not streamed. Law: it says what the stream of the same reply says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import Event
from callboard.wires.common.errors import excerpt_of, malformed_reply, read_error
from callboard.wires.common.reply_stream import DecodeContext, last_attempt
from callboard.wires.responses.decode_stream import StreamDecoder
from callboard.wires.responses.response_builder import ResponseBuilder
from callboard.wires.responses.schema import ResponseShape

_decode = msgspec.json.Decoder(ResponseShape).decode


def decode_response(body: bytes | str | Mapping[str, Any], context: DecodeContext) -> list[Event]:
    """The events of a reply that came whole, as JSON or decoded.

    The last is a ReplyEnded or ReplyFailed, whatever the body is.
    """
    try:
        response = msgspec.convert(body, ResponseShape) if isinstance(body, Mapping) else _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return [malformed_reply(f"the reply is not of this wire: {error}", excerpt_of(body))]
    if response.output is None and response.status is None:
        if response.error:
            return [read_error(response.error, 0, excerpt_of(body))]
        return [malformed_reply("the reply is not of this wire: no output", excerpt_of(body))]
    if response.status in ("queued", "in_progress"):
        return [malformed_reply(f"the reply has not ended: {response.status}", excerpt_of(body))]
    return StreamDecoder(context).decode_response(response, "completed", excerpt_of(body))


def encode_response(events: Iterable[Event], **options: Any) -> dict[str, Any]:
    """The response of a reply; parameters as of ResponseBuilder. That of a failed one has its `error`."""
    attempt, terminal = last_attempt(events)
    builder = ResponseBuilder(**options)
    for event in (*attempt, terminal):
        builder.add(event)
    return builder.response or {}

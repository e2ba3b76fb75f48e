"""A whole reply, not streamed. Law: it says what the stream of the same reply says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import Event, Note, ReplyFailed, Request, Usage
from callboard.wires.common.errors import excerpt_of, malformed_reply
from callboard.wires.common.reply_stream import DecodeContext, ending, last_attempt, vendor_field
from callboard.wires.messages.decode_stream import StreamDecoder
from callboard.wires.messages.encode_stream import message_body
from callboard.wires.messages.errors import error_body
from callboard.wires.messages.reply_blocks import ReplyBlocks
from callboard.wires.messages.schema import Delta, Frame, Message

_decode = msgspec.json.Decoder(Message).decode


def decode_response(body: bytes | str | Mapping[str, Any], context: DecodeContext) -> list[Event]:
    """The events of a reply that came whole, as JSON or decoded.

    The last is a ReplyEnded or ReplyFailed, whatever the body is.
    """
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


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,  # noqa: ARG001 - this wire has no place for it
    request: Request | None = None,  # noqa: ARG001 - nothing of it is repeated
) -> dict[str, Any]:
    """The body of a reply; that of a failed one is an error's."""
    attempt, terminal = last_attempt(events)
    if isinstance(terminal, ReplyFailed):
        return error_body(terminal)
    blocks, usage = ReplyBlocks(model), Usage()
    warnings: list[str] = []
    for event in attempt:
        match event:
            case Usage():
                usage = event
            case Note(code="incomplete", text=text):
                warnings.append(text)
            case _:
                blocks.add(event)
    content = [block.body() for block in blocks.blocks]
    reason = ending(terminal.reason, is_cut=blocks.is_cut)
    return message_body(identifier, model, content, reason, usage) | vendor_field(warnings)

"""A whole reply, not streamed.

Owns the body of a reply in both directions. Knows nothing of HTTP.
Law: it says what the stream of the same reply says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import Event, Identify, Note, ReplyEnded, ReplyFailed, Request, Usage
from callboard.wires.chat.errors import EXCERPT
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.common.stream_end import ending, vendor_field
from callboard.wires.messages.decode_stream import StreamDecoder
from callboard.wires.messages.encode_stream import message_body
from callboard.wires.messages.errors import error_body
from callboard.wires.messages.reply_blocks import Layout
from callboard.wires.messages.schema import Delta, Frame, Message

_decode = msgspec.json.Decoder(Message).decode


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
    said = (
        body if isinstance(body, str) else repr(body) if isinstance(body, Mapping) else body.decode("utf-8", "replace")
    )
    try:
        message = msgspec.convert(body, Message) if isinstance(body, Mapping) else _decode(said)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        excerpt = said[:EXCERPT].encode("utf-8", "replace").decode()
        return [ReplyFailed("provider", "malformed", f"the reply is not of this wire: {error}", excerpt)]
    decoder = StreamDecoder(names=names, identify=identify, declared=declared, origin=origin)
    return [event for frame in _frames(message) for event in decoder.take(frame, said)] + decoder.finish()


def _frames(message: Message) -> Iterable[Frame]:
    """The reply as the frames of its stream."""
    if message.type == "error" or message.error:
        yield Frame("error", error=message.error)
    if message.content is None and message.stop_reason is None:
        return
    yield Frame("message_start", message=message)
    for place, block in enumerate(message.content or ()):
        yield Frame("content_block_start", place, content_block=block)
        yield Frame("content_block_stop", place)
    yield Frame("message_delta", delta=Delta(stop_reason=message.stop_reason, stop_details=message.stop_details))
    yield Frame("message_stop")


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,  # noqa: ARG001 - every wire's signature
    request: Request | None = None,  # noqa: ARG001 - every wire's signature
) -> dict[str, Any]:
    """The body of a reply; that of a failed one is an error's. `created` is not on this wire.

    What came before a ReplyEnded("retry") is left out: another reply stands in its place.
    """
    layout = Layout(model)
    usage = Usage()
    warnings: list[str] = []
    terminal: ReplyEnded | ReplyFailed = ReplyFailed("provider", "cut", "the reply has no end")
    for event in events:
        match event:
            case Usage():
                usage = event
            case Note(code="incomplete", text=text):
                warnings.append(text)
            case ReplyEnded(reason="retry"):
                layout, warnings = Layout(model), []
            case ReplyEnded() | ReplyFailed():
                terminal = event
                break
            case _:
                layout.put(event)
    if isinstance(terminal, ReplyFailed):
        return error_body(terminal)
    content = [block.body() for block in layout.blocks]
    reason = ending(terminal.reason, is_cut=layout.is_cut)
    return message_body(identifier, model, content, reason, usage) | vendor_field(warnings)

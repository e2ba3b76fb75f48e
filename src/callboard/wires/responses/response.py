"""A whole reply, not streamed.

Owns the body of a reply in both directions. Knows nothing of HTTP.
Law: it says what the stream of the same reply says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from callboard.core import Event, Identify, ReplyEnded, ReplyFailed, Request
from callboard.wires.chat.errors import EXCERPT, read_error
from callboard.wires.common.encoded_request import NO_NAMES
from callboard.wires.responses.decode_stream import StreamDecoder
from callboard.wires.responses.encode_stream import StreamEncoder
from callboard.wires.responses.reply_items import Step
from callboard.wires.responses.schema import ResponseShape

_decode = msgspec.json.Decoder(ResponseShape).decode


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
    try:
        response = msgspec.convert(body, ResponseShape) if isinstance(body, Mapping) else _decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return [ReplyFailed("provider", "malformed", f"the reply is not of this wire: {error}", _excerpt(body))]
    if response.output is None and response.status is None:
        if response.error:
            return [read_error(response.error, 0, _excerpt(body))]
        return [ReplyFailed("provider", "malformed", "the reply is not of this wire: no output", _excerpt(body))]
    if response.status in ("queued", "in_progress"):
        return [ReplyFailed("provider", "malformed", f"the reply has not ended: {response.status}", _excerpt(body))]
    decoder = StreamDecoder(names=names, identify=identify, declared=declared, origin=origin)
    return decoder.take(response, "completed", _excerpt(body))


def encode_response(
    events: Iterable[Event],
    *,
    identifier: str,
    model: str,
    created: int,
    request: Request | None = None,
    echo: Mapping[str, Any] | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[str, Any]:
    """The response of a reply; parameters as of StreamEncoder. That of a failed one has its `error`.

    What came before a ReplyEnded("retry") is left out: another reply stands in its place.
    """

    def begin() -> _Silent:
        return _Silent(identifier=identifier, model=model, created=created, request=request, echo=echo, clock=clock)

    encoder = begin()
    for event in events:
        if event == ReplyEnded("retry"):
            encoder = begin()
        else:
            encoder.feed(event)
    encoder.finish()
    return encoder.response or {}


class _Silent(StreamEncoder):
    """Puts the response together, and no frames."""

    def _frame(self, step: Step) -> bytes:
        return b""

    def _delta(self, beginning: bytes, text: str) -> bytes:
        return b""


def _excerpt(body: bytes | str | Mapping[str, Any]) -> str:
    if isinstance(body, bytes):
        return body[: 4 * EXCERPT].decode("utf-8", "replace")[:EXCERPT]
    return (body if isinstance(body, str) else repr(body))[:EXCERPT].encode("utf-8", "replace").decode()

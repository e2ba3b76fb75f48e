"""A provider's format, as a row.

Owns what a client has to know of a wire, and the table of ours. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.wires import chat
from callboard.wires.lowered import Lowered


class Encodes(Protocol):
    """Encodes the requests of conversations; may keep what it encoded."""

    def encode(self, request: Request, /) -> Lowered: ...


class Wire(msgspec.Struct, frozen=True):
    """The client half of a codec.

    `path` stands behind the endpoint's base URL. `encoder` makes an encoder of requests, `stream_decoder` a
    Stage from one frame's data to events, `decode_response` reads a reply that came whole, `decode_error` an
    HTTP status and body. Decoders take `names`, `identify`, `declared` and `origin` (see `chat.StreamDecoder`).
    """

    name: str
    path: str
    encoder: Callable[[], Encodes]
    stream_decoder: Callable[..., Stage[str, Event]]
    decode_response: Callable[..., list[Event]]
    decode_error: Callable[[int, bytes], ReplyFailed]


CHAT = Wire(
    "chat",
    "/chat/completions",
    encoder=chat.RequestEncoder,
    stream_decoder=chat.StreamDecoder,
    decode_response=chat.decode_response,
    decode_error=chat.decode_error,
)

WIRES: Mapping[str, Wire] = MappingProxyType({wire.name: wire for wire in (CHAT,)})


def wire_named(name: str) -> Wire:
    """The wire of that name, ours or a plug-in's (entry points `callboard.wires`). Raises CallerError."""
    if name in WIRES:
        return WIRES[name]
    added: dict[str, Any] = {wire.name: wire for wire in plugins("callboard.wires")}
    if name not in added:
        raise CallerError(f"no wire {name!r}", hint=f"there are {', '.join([*WIRES, *added])}")
    found: Wire = added[name]
    return found

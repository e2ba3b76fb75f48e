"""The wires, as rows: what the rest of Callboard has to know of a provider's format. No HTTP here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.text.sse import Payload
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.reply_stream import DecodeContext


class Wire(msgspec.Struct, frozen=True):
    """A codec with a `name`: its client half talks to a backend, its server half serves a client."""

    name: str
    path: Callable[[Request], str]
    """Path to append to the endpoint's base URL for a request."""
    encode_request: Callable[..., EncodedRequest]
    """Writes a request; keywords are options of the wire."""
    stream_decoder: Callable[[DecodeContext], Stage[str, Event]]
    """Makes a Stage from the data of a frame to events."""
    decode_response: Callable[[bytes | str | Mapping[str, Any], DecodeContext], list[Event]]
    """Reads a reply that came whole."""
    decode_error: Callable[[int, bytes], ReplyFailed]
    """Reads an HTTP status other than 2xx and its body."""
    decode_request: Callable[[Mapping[str, Any]], Request]
    """Reads a client's body. Raises CallerError."""
    stream_encoder: Callable[..., Stage[Event, Payload]]
    """Makes a Stage from events to payloads, which `SSEEncoder` frames; takes `identifier`, `model`, `created` (seconds since 1970) and `request`."""
    encode_response: Callable[..., dict[str, Any]]
    """Writes a whole reply; takes the events, then as `stream_encoder`."""
    encode_error: Callable[[ReplyFailed], tuple[int, dict[str, Any]]]
    """The HTTP status and body of a failure."""
    headers: Callable[[str], Mapping[str, str]]
    """The headers that carry a key, and those that the provider requires."""
    min_max_tokens: int = 1
    """The least limit of a reply that the provider takes."""


def _bearer(key: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _anthropic_headers(key: str) -> Mapping[str, str]:
    return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}


def _google_headers(key: str) -> Mapping[str, str]:
    return {"x-goog-api-key": key} if key else {}


def _gemini_path(request: Request) -> str:
    from callboard.wires.gemini import request_path  # noqa: PLC0415  # on first use

    return request_path(request.model, stream=request.stream)


_ROWS: Mapping[str, Mapping[str, Any]] = {
    "chat": {"path": lambda _: "/chat/completions", "headers": _bearer},
    "responses": {"path": lambda _: "/responses", "headers": _bearer, "min_max_tokens": 16},
    "messages": {"path": lambda _: "/v1/messages", "headers": _anthropic_headers},
    "gemini": {"path": _gemini_path, "headers": _google_headers},
}
_CLASSES: Mapping[str, str] = {"stream_decoder": "StreamDecoder", "stream_encoder": "StreamEncoder"}
_PARTS = (
    "encode_request", "stream_decoder", "decode_response", "decode_error", "decode_request", "stream_encoder",
    "encode_response", "encode_error",
)  # fmt: skip


class _Wires(Mapping[str, Wire]):
    """Our wires by their names. A codec is imported when it is first asked for: four of them take 40 ms."""

    def __init__(self) -> None:
        self._loaded: dict[str, Wire] = {}

    def __getitem__(self, name: str) -> Wire:
        if name not in self._loaded:
            row, codec = _ROWS[name], import_module(f"callboard.wires.{name}")
            parts = {part: getattr(codec, _CLASSES.get(part, part)) for part in _PARTS}
            self._loaded[name] = Wire(name, **row, **parts)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_ROWS)

    def __len__(self) -> int:
        return len(_ROWS)


WIRES: Mapping[str, Wire] = _Wires()


def get_wire(name: str) -> Wire:
    """Return the wire `name`, ours or a plug-in's (entry points `callboard.wires`). Raises CallerError."""
    if name in WIRES:
        return WIRES[name]
    plugged: dict[str, Wire] = {wire.name: wire for wire in plugins("callboard.wires")}
    if name not in plugged:
        raise CallerError(f"no wire {name!r}", hint=f"there are {', '.join([*WIRES, *plugged])}")
    return plugged[name]

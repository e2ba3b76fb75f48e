"""The wires, as rows: what the rest of Callboard has to know of a provider's format. No HTTP here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.text.sse import Payload
from callboard.wires import chat
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.reply_stream import DecodeContext


class Wire(msgspec.Struct, frozen=True):
    """A codec: its client half talks to a backend, its server half serves a client."""

    name: str
    path: Callable[[Request], str]
    """What is appended to the endpoint's base URL for a request."""
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


def _row(
    name: str,
    path: Callable[[Request], str],
    headers: Callable[[str], Mapping[str, str]],
    codec: Any,
    *,
    min_max_tokens: int = 1,
) -> Wire:
    """The row of a package that names the parts of its codec as Wire does."""
    return Wire(
        name,
        path,
        encode_request=codec.encode_request,
        stream_decoder=codec.StreamDecoder,
        decode_response=codec.decode_response,
        decode_error=codec.decode_error,
        decode_request=codec.decode_request,
        stream_encoder=codec.StreamEncoder,
        encode_response=codec.encode_response,
        encode_error=codec.encode_error,
        headers=headers,
        min_max_tokens=min_max_tokens,
    )


def _bearer(key: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _anthropic_headers(key: str) -> Mapping[str, str]:
    return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}


CHAT = _row("chat", lambda _: "/chat/completions", _bearer, chat)


# The other codecs are imported when they are first asked for.


@cache
def _responses() -> Wire:
    from callboard.wires import responses  # noqa: PLC0415

    return _row("responses", lambda _: "/responses", _bearer, responses, min_max_tokens=16)


@cache
def _messages() -> Wire:
    from callboard.wires import messages  # noqa: PLC0415

    return _row("messages", lambda _: "/v1/messages", _anthropic_headers, messages)


@cache
def _gemini() -> Wire:
    from callboard.wires import gemini  # noqa: PLC0415

    def path(request: Request) -> str:
        return gemini.request_path(request.model, stream=request.stream)

    return _row("gemini", path, lambda key: {"x-goog-api-key": key} if key else {}, gemini)


class _Wires(Mapping[str, Wire]):
    """Our wires by their names, each made when it is first asked for."""

    _FACTORIES: Mapping[str, Callable[[], Wire]] = MappingProxyType(
        {"chat": lambda: CHAT, "responses": _responses, "messages": _messages, "gemini": _gemini}
    )

    def __getitem__(self, name: str) -> Wire:
        return self._FACTORIES[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._FACTORIES)

    def __len__(self) -> int:
        return len(self._FACTORIES)


WIRES: Mapping[str, Wire] = _Wires()


def get_wire(name: str) -> Wire:
    """The wire of that name, ours or a plug-in's (entry points `callboard.wires`). Raises CallerError."""
    if name in WIRES:
        return WIRES[name]
    plugged: dict[str, Wire] = {wire.name: wire for wire in plugins("callboard.wires")}
    if name not in plugged:
        raise CallerError(f"no wire {name!r}", hint=f"there are {', '.join([*WIRES, *plugged])}")
    return plugged[name]

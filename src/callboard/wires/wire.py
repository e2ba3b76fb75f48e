"""A provider's format, as a row.

Owns what a client has to know of a wire, and the table of ours. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from callboard.core import Event, ReplyFailed, Request, Stage
from callboard.errors import CallerError
from callboard.plugins import plugins
from callboard.wires import chat
from callboard.wires.common.encoded_request import Lowered


class Encodes(Protocol):
    """Encodes the requests of conversations; may keep what it encoded."""

    def encode(self, request: Request, /) -> Lowered: ...


class Wire(msgspec.Struct, frozen=True):
    """A codec: its client half talks to a backend, its server half serves a client.

    `path` is what stands behind the endpoint's base URL for a request, `headers` are those that carry a key, or say of the wire what it wants said.
    `encode_request` writes one request, `encoder` makes an encoder of those of conversations, `stream_decoder` a Stage from one frame's data to events,
    `decode_response` reads a reply that came whole, `decode_error` an HTTP status and body. Decoders take
    `names`, `identify`, `declared` and `origin` (see `chat.StreamDecoder`). `decode_request` reads a client's
    body, `stream_encoder` makes a Stage from events to frames, `encode_response` a whole reply and
    `encode_error` the status and body of a failure; encoders take `identifier`, `model`, `created` and
    `request` (see `chat.StreamEncoder`).
    """

    name: str
    path: Callable[[Request], str]
    encode_request: Callable[[Request], Lowered]
    encoder: Callable[[], Encodes]
    stream_decoder: Callable[..., Stage[str, Event]]
    decode_response: Callable[..., list[Event]]
    decode_error: Callable[[int, bytes], ReplyFailed]
    decode_request: Callable[[Mapping[str, Any]], Request]
    stream_encoder: Callable[..., Stage[Event, bytes]]
    encode_response: Callable[..., dict[str, Any]]
    encode_error: Callable[[ReplyFailed], tuple[int, dict[str, Any]]]
    headers: Callable[[str], Mapping[str, str]]


def _row(
    name: str,
    path: Callable[[Request], str],
    headers: Callable[[str], Mapping[str, str]],
    codec: Any,
    *,
    encoder: Callable[[], Encodes] | None = None,
) -> Wire:
    """The row of a package that names the parts of its codec as Wire does."""
    return Wire(
        name,
        path,
        encode_request=codec.encode_request,
        encoder=encoder or codec.RequestEncoder,
        stream_decoder=codec.StreamDecoder,
        decode_response=codec.decode_response,
        decode_error=codec.decode_error,
        decode_request=codec.decode_request,
        stream_encoder=codec.StreamEncoder,
        encode_response=codec.encode_response,
        encode_error=codec.encode_error,
        headers=headers,
    )


def _bearer(key: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _anthropic(key: str) -> Mapping[str, str]:
    return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}


def _chat_stream(*, request: Request | None = None, **said: Any) -> Stage[Event, bytes]:
    """The encoder of a stream; another one where the request declares custom tools, which few do."""
    if request is None or all(tool.kind != "custom" for tool in request.tools):
        return chat.StreamEncoder(request=request, **said)
    from callboard.wires.chat.custom_tools import CustomStreamEncoder  # noqa: PLC0415

    return CustomStreamEncoder(request=request, **said)


def _chat_response(events: Iterable[Event], *, request: Request | None = None, **said: Any) -> dict[str, Any]:
    body = chat.encode_response(events, request=request, **said)
    if request is None or all(tool.kind != "custom" for tool in request.tools):
        return body
    from callboard.wires.chat.custom_tools import custom_names, encode_custom_calls  # noqa: PLC0415

    for choice in body.get("choices", ()):
        if calls := choice["message"].get("tool_calls"):
            choice["message"]["tool_calls"] = encode_custom_calls(calls, custom_names(request))
    return body


CHAT = msgspec.structs.replace(
    _row("chat", lambda _: "/chat/completions", _bearer, chat),
    stream_encoder=_chat_stream,
    encode_response=_chat_response,
)


# The other codecs are imported when they are first asked for.


@cache
def _responses() -> Wire:
    from callboard.wires import responses  # noqa: PLC0415

    return _row("responses", lambda _: "/responses", _bearer, responses)


@cache
def _messages() -> Wire:
    from callboard.wires import messages  # noqa: PLC0415

    # The provider keeps the beginning of a conversation only where it is told to.
    keeping = partial(messages.RequestEncoder, breakpoints=True)
    return _row("messages", lambda _: "/v1/messages", _anthropic, messages, encoder=keeping)


@cache
def _gemini() -> Wire:
    from callboard.wires import gemini  # noqa: PLC0415

    def path(request: Request) -> str:
        return gemini.request_path(request.model, stream=request.stream)

    return _row("gemini", path, lambda key: {"x-goog-api-key": key} if key else {}, gemini)


class _Wires(Mapping[str, Wire]):
    """Ours by their names, each made when it is asked for."""

    _MADE: Mapping[str, Callable[[], Wire]] = MappingProxyType(
        {"chat": lambda: CHAT, "responses": _responses, "messages": _messages, "gemini": _gemini}
    )

    def __getitem__(self, name: str) -> Wire:
        return self._MADE[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._MADE)

    def __len__(self) -> int:
        return len(self._MADE)


WIRES: Mapping[str, Wire] = _Wires()


def wire_named(name: str) -> Wire:
    """The wire of that name, ours or a plug-in's (entry points `callboard.wires`). Raises CallerError."""
    if name in WIRES:
        return WIRES[name]
    added: dict[str, Any] = {wire.name: wire for wire in plugins("callboard.wires")}
    if name not in added:
        raise CallerError(f"no wire {name!r}", hint=f"there are {', '.join([*WIRES, *added])}")
    found: Wire = added[name]
    return found

"""Canisters and events as JSON lines: a JSON object each, in UTF-8, without its line break."""

from __future__ import annotations

import msgspec

from callboard.core.canisters import Canister
from callboard.core.events import Event
from callboard.errors import CallerError

_encoder = msgspec.json.Encoder()
_canisters: msgspec.json.Decoder[Canister] = msgspec.json.Decoder(Canister)
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_line(item: Canister | Event) -> bytes:
    """The item as one line, without the line break."""
    return _encoder.encode(item)


def decode_canister(line: bytes | str, *, path: str = "") -> Canister:
    """The canister of a line. Raises CallerError that names `path` where it is none."""
    try:
        return _canisters.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not a canister: {error}", path=path) from None


def decode_event(line: bytes | str, *, path: str = "") -> Event:
    """The event of a line. Raises CallerError that names `path` where it is none."""
    try:
        return _events.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"not an event: {error}", path=path) from None

"""Seal a model's opaque reasoning with the model's name, so that it is sent to no other model when a client sends it back.

Laws: unseal(seal(opaque, origin), any) is (opaque, origin); of a seal that was cut off, nothing opaque is left.
"""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = "callboard.1."


def seal(opaque: str, origin: str) -> str:
    """One string: `callboard.1.`, the origin in base64, a check sum and the opaque text, with dots between them."""
    return f"{_MARK}{base64.urlsafe_b64encode(origin.encode()).decode()}.{_sum(opaque)}.{opaque}"


def seal_for_client(opaque: str, origin: str, model: str) -> str:
    """The opaque text for a client that asked for `model`: as it is if it is that model's, else with its origin."""
    origin = origin or model
    if origin == model and not opaque.startswith(_MARK):  # the seal of another gateway is sealed again, not opened
        return opaque
    return seal(opaque, origin)


def unseal(text: str, origin: str) -> tuple[str, str]:
    """The opaque text and the model it came from; `origin` is that of a text without our seal."""
    named, dot, rest = text.removeprefix(_MARK).partition(".")
    if not (dot and text.startswith(_MARK)):
        return text, origin
    check, _, opaque = rest.partition(".")
    try:
        named = base64.b64decode(named, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return text, origin
    return opaque if check == _sum(opaque) else "", named


def _sum(opaque: str) -> str:
    return f"{zlib.crc32(opaque.encode('utf-8', 'surrogatepass')):08x}"

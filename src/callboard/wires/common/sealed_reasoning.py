"""Reasoning on its way through a client.

Owns how a reply's opaque reasoning names the model it came from, so that it is sent to no other one when it comes
back. Knows no wire.
Laws: unseal(seal(opaque, origin), any) is (opaque, origin); of a seal that was cut nothing opaque is left.
"""

from __future__ import annotations

import base64
import binascii
import zlib

_MARK = "callboard.1."


def seal(opaque: str, origin: str) -> str:
    """One string: `callboard.1.`, the origin in base64, and with dots before them a check sum and what is opaque."""
    return f"{_MARK}{base64.urlsafe_b64encode(origin.encode()).decode()}.{_sum(opaque)}.{opaque}"


def sealed(opaque: str, origin: str, model: str) -> str:
    """What is opaque for a client that asked for `model`: as it is if it is that model's, else with its origin."""
    origin = origin or model
    if origin == model and not opaque.startswith(_MARK):  # what another gateway sealed is not opened by us
        return opaque
    return seal(opaque, origin)


def unseal(sealed: str, origin: str) -> tuple[str, str]:
    """What is opaque and the model it came from; `origin` where it is not of ours."""
    named, dot, rest = sealed.removeprefix(_MARK).partition(".")
    if not (dot and sealed.startswith(_MARK)):
        return sealed, origin
    check, _, opaque = rest.partition(".")
    try:
        named = base64.b64decode(named, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return sealed, origin
    return opaque if check == _sum(opaque) else "", named


def _sum(opaque: str) -> str:
    return f"{zlib.crc32(opaque.encode('utf-8', 'surrogatepass')):08x}"

"""Reasoning on its way through a client.

Owns how a reply's opaque reasoning names the model it came from, so that it is not sent to another one when it
comes back. Knows nothing of items.
Law: unseal(seal(opaque, origin)) is (opaque, origin).
"""

from __future__ import annotations

import base64
import binascii

_MARK = "callboard.1."


def seal(opaque: str, origin: str) -> str:
    """One string for `encrypted_content`: `callboard.1.`, the origin in base64, a dot, and what is opaque."""
    return f"{_MARK}{base64.urlsafe_b64encode(origin.encode()).decode()}.{opaque}"


def unseal(sealed: str, origin: str) -> tuple[str, str]:
    """What is opaque and the model it came from; `origin` where it is not of ours."""
    if not sealed.startswith(_MARK):
        return sealed, origin
    named, _, opaque = sealed.removeprefix(_MARK).partition(".")
    try:
        return opaque, base64.b64decode(named, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return sealed, origin

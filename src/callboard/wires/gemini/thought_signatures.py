"""Thought signatures as the `opaque` of reasoning.

Gemini signs parts of every kind, and a signature has to come back on the very part that had it. That of a thought is
the reasoning's `opaque` as it is; that of a text or a call is the `opaque` of an empty reasoning right before it, after
a `>`.
"""

from __future__ import annotations

import base64
import binascii

FOLLOWING = ">"
"""The prefix of a signature of the part that follows; no base64 begins with it."""

_STAND_INS = frozenset({b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go"})
"""What clients send in place of a signature that they do not have, so that Google's check passes."""
_MARK = b"callboard:"
_STANDARD = str.maketrans("-_", "+/")


def split(opaque: str) -> tuple[str, str]:
    """The signature of the thought, and that of the part that follows: one of the two is empty."""
    return ("", opaque[1:]) if opaque.startswith(FOLLOWING) else (opaque, "")


def to_client(signature: str) -> str:
    """The signature as base64 that a client's decoding and encoding gives back: others are wrapped."""
    if _decode(signature) is not None:
        return signature
    return base64.b64encode(_MARK + signature.encode("utf-8", "replace")).decode()


def from_client(signature: str) -> str:
    """The signature that a client gives back, "" for none: clients hold it as bytes and may spell it for URLs."""
    standard = signature.translate(_STANDARD)
    data = _decode(standard)
    if data in _STAND_INS or signature.encode(errors="replace") in _STAND_INS:
        return ""
    if data is None:
        return signature
    return data.removeprefix(_MARK).decode("utf-8", "replace") if data.startswith(_MARK) else standard


def _decode(signature: str) -> bytes | None:
    """The bytes of base64 in its one standard spelling."""
    try:
        data = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == signature else None

"""Summaries on their way through a client.

Owns how a conversation's summary is one opaque string. Knows nothing of items.
Law: summary_of(sealed_summary(text, origin)) holds the text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from callboard.wires.common.sealed_reasoning import seal, unseal

_SAID_BEFORE = "What was said and done before, summed up:\n\n"


def sealed_summary(text: str, origin: str) -> str:
    """The `encrypted_content` of a summary, with the model that wrote it."""
    return seal(base64.b64encode(text.encode("utf-8", "replace")).decode(), origin)


def summary_of(sealed: Any) -> str | None:
    """The summary as it is put to a model; None for one that is not of ours."""
    if not isinstance(sealed, str):
        return None
    opaque, origin = unseal(sealed, "")
    if not origin or (not opaque and sealed != seal("", origin)):  # another's, or cut
        return None
    try:
        return _SAID_BEFORE + base64.b64decode(opaque, validate=True).decode()
    except (binascii.Error, ValueError):
        return None

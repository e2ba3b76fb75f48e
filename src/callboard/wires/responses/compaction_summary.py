"""The summary of a conversation as one opaque string, which a client keeps and sends back.

Law: read_summary(seal_summary(text, origin)) holds the text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from callboard.wires.common.sealed_reasoning import seal, unseal

_HEADING = "What was said and done before, summed up:\n\n"


def seal_summary(text: str, origin: str) -> str:
    """The `encrypted_content` of a summary, with the model that wrote it."""
    return seal(base64.b64encode(text.encode("utf-8", "replace")).decode(), origin)


def read_summary(sealed: Any) -> str | None:
    """The summary as a model reads it; None for one that is not of ours."""
    if not isinstance(sealed, str):
        return None
    opaque, origin = unseal(sealed, "")
    if not origin or (not opaque and sealed != seal("", origin)):  # another's, or cut
        return None
    try:
        return _HEADING + base64.b64decode(opaque, validate=True).decode()
    except (binascii.Error, ValueError):
        return None

"""Bytes inside a body: base64, and URLs that hold what they are the address of.

Owns both spellings (RFC 4648, RFC 2397) in both directions. Knows no wire.
"""

from __future__ import annotations

import base64
import binascii

from callboard.errors import CallerError

SCHEME = "data:"
_STANDARD = str.maketrans("-_", "+/")


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_base64(text: str, path: str) -> bytes:
    """The bytes; the alphabet may be that of URLs, and the padding missing. Raises CallerError at `path`."""
    standard = text.translate(_STANDARD).rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise CallerError("not base64", path=path) from None


def encode_data_url(data: bytes, mime_type: str) -> str:
    return f"{SCHEME}{mime_type};base64,{encode_base64(data)}"


def decode_data_url(url: str, path: str) -> tuple[bytes, str]:
    """Bytes and type of a data URL in base64, or of base64 without its head: the type is then empty.

    Raises CallerError at `path`.
    """
    head, _, payload = url.rpartition(",")
    mime_type, *parameters = head.removeprefix(SCHEME).split(";")
    if head and "base64" not in parameters:
        raise CallerError("a data URL that is not base64", path=path)
    return decode_base64(payload, path), mime_type


def is_audio(mime_type: str) -> bool:
    return mime_type.lower().startswith("audio/")

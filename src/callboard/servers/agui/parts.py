"""Contents as the content parts of AG-UI 1.0, and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from callboard.core import Content, FileContent, PictureContent, TextualContent


def encode_part(content: Content) -> dict[str, Any] | None:
    """The part, None for what the protocol has no part for."""
    match content:
        case TextualContent(text=text):
            return {"type": "text", "text": text}
        case PictureContent():
            return {"type": "image", "source": _encode_source(content)}
        case FileContent(name=name):
            part: dict[str, Any] = {"type": "document", "source": _encode_source(content)}
            return part | ({"metadata": {"filename": name}} if name else {})
        case _:
            return None


def decode_part(part: Mapping[str, Any]) -> Content | None:
    """The content, None for a part that no provider here takes: sounds, films, and handles of other providers.

    A part was checked before.
    """
    if part["type"] == "text":
        return TextualContent(part["text"])
    make = _MAKE.get(part["type"])
    source = part["source"]
    if make is None or source["type"] == "file":
        return None
    if source["type"] == "url":
        return make(url=source["value"])
    try:
        data = base64.b64decode(source["value"], validate=True)
    except (binascii.Error, ValueError):
        return None
    return make(data=data, mime_type=source["mimeType"])


_MAKE: Mapping[str, type[PictureContent | FileContent]] = {"image": PictureContent, "document": FileContent}


def _encode_source(content: PictureContent | FileContent) -> dict[str, Any]:
    if content.url:
        return {"type": "url", "value": content.url}
    return {"type": "data", "value": base64.b64encode(content.data).decode(), "mimeType": content.mime_type}

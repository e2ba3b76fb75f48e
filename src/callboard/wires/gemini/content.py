"""Encode contents as the parts of a turn and results as function responses, and decode them.

Gemini signs parts of every kind, and a signature must come back on the same part. The signature of a thought is the
reasoning's `opaque`, unchanged. The signature of a text or a call is the `opaque` of an empty reasoning right before it,
after a `>`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.contents import content_kind, decode_base64, encode_base64
from callboard.wires.gemini.schema import Blob, FileData, FunctionResponse, Part, ResultPart

FOLLOWING = ">"
"""The prefix of a signature of the part that follows; no base64 begins with it."""
_STAND_INS = frozenset({b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go"})
"""Placeholders that clients send for missing signatures, so that Google's check passes."""
_MARK = b"callboard:"
_STANDARD = str.maketrans("-_", "+/")
OUTPUT = "output"
ERROR = "error"
_HEAD = "Error: "
"""Prefix that `core.error_result` puts before the message."""
_MEDIA = ("mediaResolution", "videoMetadata")
_PICTURES: Mapping[str, str] = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def encode_part(content: core.Content, dropped: list[str]) -> dict[str, Any] | None:
    """The content as a part; None for what this wire cannot carry. A refusal is a text here."""
    match content:
        case core.TextualContent(text=text) | core.RefusalContent(text=text):
            return {"text": text} if text else None
        case core.PictureContent(data=data, url=url) | core.FileContent(data=data, url=url) if data or url:
            if isinstance(content, core.FileContent) and content.name:
                dropped.append("name of a file")
            extra = content.extra or {}
            return _media(content) | {key: extra[key] for key in _MEDIA if key in extra}
        case _:
            dropped.append(content_kind(content))
            return None


def _media(content: core.PictureContent | core.FileContent) -> dict[str, Any]:
    if content.data:
        return {"inlineData": {"mimeType": content.mime_type, "data": encode_base64(content.data)}}
    mime_type = content.mime_type
    if mime_type == "image/png":  # also what a picture of unknown type has
        mime_type = _PICTURES.get(content.url.rpartition(".")[2].lower(), mime_type)
    return {"fileData": {"mimeType": mime_type, "fileUri": content.url}}


def encode_result(result: core.ResultCanister, dropped: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The response object, and the parts that follow it.

    A JSON object in the spelling of the decoder is the response itself. Other texts do not change, because a model may
    have to quote them.
    """
    parts: list[dict[str, Any]] = []
    for content in result.content:
        if isinstance(content, core.PictureContent | core.FileContent):
            part = encode_part(content, dropped)
            if part is not None:
                parts.append(part)
        elif not isinstance(content, core.TextualContent):
            dropped.append(content_kind(content))
    text = result.text
    if result.error is not None:
        return {ERROR: text or result.error.message}, parts
    if text.startswith("{") and text.endswith("}") and (decoded := _object(text)) is not None:
        return decoded, parts
    return {OUTPUT: text}, parts


def _object(text: str) -> dict[str, Any] | None:
    try:
        decoded = _decode(text)
        same = _encode(decoded).decode() == text
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return decoded if same and _only_text(decoded) is None else None


def _only_text(response: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key and text of a response that is only one text."""
    if len(response) == 1:
        ((key, value),) = response.items()
        if key in {OUTPUT, ERROR} and isinstance(value, str):
            return key, value
    return None


def decode_result(response: FunctionResponse, identifier: str, path: str) -> core.ResultCanister:
    """Return the result that a client sent. Raises CallerError below `path` for invalid data."""
    value = {OUTPUT: ""} if response.response is None else response.response
    key, text = _only_text(value) or (OUTPUT, _encode(value).decode())
    content: list[core.Content] = [core.TextualContent(text)] if text else []
    for index, part in enumerate(response.parts or []):
        content += decode_media(part, f"{path}.parts[{index}]")
    error = core.ToolError("execution", text.removeprefix(_HEAD)) if key == ERROR else None
    return core.ResultCanister(invocation_id=identifier, content=tuple(content), error=error)


def decode_media(part: Part | ResultPart, path: str) -> list[core.Content]:
    """Return the picture or file of a part, if there is one. Raises CallerError below `path` for invalid data."""
    extra: dict[str, Any] = {}
    if isinstance(part, Part):
        named = zip(_MEDIA, (part.media_resolution, part.video_metadata), strict=True)
        extra = {name: value for name, value in named if value is not None}
    media: Blob | FileData
    if part.inline_data is not None:
        media = part.inline_data
        if not media.data:
            raise CallerError("inlineData without its data", path=f"{path}.inlineData.data")
        source: dict[str, Any] = {"data": decode_base64(media.data, f"{path}.inlineData.data")}
    elif part.file_data is not None:
        media = part.file_data
        if not media.file_uri:
            raise CallerError("fileData without its fileUri", path=f"{path}.fileData.fileUri")
        source = {"url": media.file_uri}
    else:
        return []
    mime_type = media.mime_type or "application/octet-stream"
    if mime_type.startswith("image/"):
        return [core.PictureContent(**source, mime_type=mime_type, extra=extra or None)]
    return [core.FileContent(**source, mime_type=mime_type, name=media.display_name or "", extra=extra or None)]


def split_signature(opaque: str) -> tuple[str, str]:
    """Return the signatures of the thought and of the next part. One of the two is empty."""
    return ("", opaque[1:]) if opaque.startswith(FOLLOWING) else (opaque, "")


def signature_to_client(signature: str) -> str:
    """The signature as base64 that a client's decoding and encoding gives back: others are wrapped."""
    if _decode_base64(signature) is not None:
        return signature
    return base64.b64encode(_MARK + signature.encode("utf-8", "replace")).decode()


def signature_from_client(signature: str) -> str:
    """The signature that a client gives back, "" for none: clients hold it as bytes and may spell it for URLs."""
    standard = signature.translate(_STANDARD)
    data = _decode_base64(standard)
    if data in _STAND_INS or signature.encode(errors="replace") in _STAND_INS:
        return ""
    if data is None:
        return signature
    return data.removeprefix(_MARK).decode("utf-8", "replace") if data.startswith(_MARK) else standard


def _decode_base64(signature: str) -> bytes | None:
    """The bytes of base64 in its one standard spelling."""
    try:
        data = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == signature else None

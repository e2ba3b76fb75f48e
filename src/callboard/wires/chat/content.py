"""Encode contents as the parts of a message, and decode them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.errors import CallerError
from callboard.wires.chat import schema
from callboard.wires.common.client_input import extra_for, unnamed_in
from callboard.wires.common.contents import (
    SCHEME,
    content_kind,
    decode_data_url,
    encode_base64,
    encode_data_url,
    is_audio,
    own_fields,
)

_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
"""The formats of audio that OpenAI accepts."""
_FORMATS = {
    **{f"audio/{name}": "wav" for name in ("wav", "x-wav", "wave", "vnd.wave")},
    **{f"audio/{name}": "mp3" for name in ("mpeg", "mp3", "x-mp3", "mpeg3", "x-mpeg-3")},
}
_PLAIN = {"type", "text"}
_INSIDE = ("text", "refusal")
"""Fields of parts that are not called as their type is."""
_FORMAT = re.compile(r"[A-Za-z0-9.+_-]{1,32}")


def encode_part(content: core.Content) -> dict[str, Any] | None:
    """The content as a part of a user's message; None for what this wire cannot carry."""
    part = _encode_part(content)
    return part | own_fields("chat", content.extra) if part is not None and content.extra else part


def _encode_part(content: core.Content) -> dict[str, Any] | None:
    match content:
        case core.TextualContent(text=text):
            return {"type": "text", "text": text}
        case core.PictureContent(data=data, mime_type=mime_type, url=url) if data or url:
            where: dict[str, Any] = {"url": url if not data else encode_data_url(data, mime_type)}
            return {"type": "image_url", "image_url": where | _field(content.extra, "detail")}
        case core.FileContent(data=data, mime_type=mime_type, extra=extra) if data and is_audio(mime_type):
            named = _FORMATS.get(mime_type.partition(";")[0].strip().lower()) or (extra or {}).get("format")
            audio = {"data": encode_base64(data), "format": named}
            return {"type": "input_audio", "input_audio": audio} if named else None
        case core.FileContent(data=data, mime_type=mime_type, name=name) if data:
            file = {"filename": name} if name else {}
            return {"type": "file", "file": file | {"file_data": encode_data_url(data, mime_type)}}
        case core.FileContent(extra=extra) if _field(extra, "file_id"):
            return {"type": "file", "file": _field(extra, "file_id")}
        case _:
            return None


def encode_content(content: Iterable[core.Content], dropped: list[str]) -> str | list[dict[str, Any]]:
    """A user's content: a string where it is only text, its texts joined as `core.join_texts` does, else parts."""
    parts: list[dict[str, Any]] = []
    for item in content:
        part = encode_part(item)
        if part is None:
            dropped.append(content_kind(item))
        else:
            parts.append(part)
    if all(part.keys() == _PLAIN for part in parts):
        return "\n".join([part["text"] for part in parts])
    return parts


def split_media(result: core.ResultCanister) -> tuple[core.ResultCanister, tuple[core.Content, ...]]:
    """The result as its own message carries it, and the contents of a user's message for what only that can hold."""
    texts: list[core.Content] = []
    parts: list[core.Content] = []
    for content in result.content:
        if isinstance(content, core.PictureContent | core.FileContent) and encode_part(content) is not None:
            texts.append(core.TextualContent(f"[{content_kind(content)}: in the next message]"))
            parts.append(content)
        else:
            texts.append(content)
    if not parts:
        return result, ()
    heading = core.TextualContent(f"From the result of {result.invocation_id}:")
    return msgspec.structs.replace(result, content=tuple(texts)), (heading, *parts)


def decode_content(content: schema.MessageContent, path: str, raw: Any = None) -> tuple[core.Content, ...]:
    """Return a message's contents; `raw` has all fields. Raises CallerError below `path` for invalid data."""
    if not content:
        return ()
    if isinstance(content, str):
        return (core.TextualContent(content),)
    contents = [_decode_part(part, f"{path}[{index}]") for index, part in enumerate(content)]
    for index, fields in enumerate(raw if isinstance(raw, list) else ()):
        if own := unnamed_in(fields, ("type", str(fields.get("type")), *_INSIDE)):  # those that have no name here
            extra = {**(contents[index].extra or {}), **extra_for("chat", own)}
            contents[index] = replace(contents[index], extra=extra)
    return tuple(contents)


def _decode_part(
    part: schema.TextPart | schema.RefusalPart | schema.ImagePart | schema.FilePart | schema.AudioPart, path: str
) -> core.Content:
    match part:
        case schema.TextPart(text=text):
            return core.TextualContent(text)
        case schema.RefusalPart(refusal=text):
            return core.RefusalContent(text)
        case schema.ImagePart(image_url=image):
            return _picture(
                image if isinstance(image, schema.ImageUrl) else schema.ImageUrl(image), f"{path}.image_url.url"
            )
        case schema.FilePart(file=file):
            return _file(file, f"{path}.file")
        case schema.AudioPart(input_audio=audio):
            return _audio(audio, f"{path}.input_audio")


def _picture(image: schema.ImageUrl, path: str) -> core.PictureContent:
    extra = {"detail": image.detail} if image.detail else None
    if not image.url.startswith(SCHEME):
        return core.PictureContent(url=image.url, extra=extra)
    data, mime_type = decode_data_url(image.url, path)
    return core.PictureContent(data=data, mime_type=mime_type or "image/png", extra=extra)


def _file(file: schema.FileShape, path: str) -> core.FileContent:
    name = file.filename or ""
    if file.file_data:
        data, mime_type = decode_data_url(file.file_data, f"{path}.file_data")
        return core.FileContent(data=data, mime_type=mime_type or "application/octet-stream", name=name)
    if file.file_id:
        return core.FileContent(name=name, extra={"file_id": file.file_id})
    raise CallerError("a file without file_data or file_id", path=path)


def _audio(audio: schema.Audio, path: str) -> core.FileContent:
    """Return a file part. Formats that OpenAI does not know keep their names for other backends."""
    data, _ = decode_data_url(audio.data, f"{path}.data")
    if not data:
        raise CallerError("audio without data", path=f"{path}.data")
    if audio.format in _TYPES:
        return core.FileContent(data, _TYPES[audio.format])
    if not _FORMAT.fullmatch(audio.format):
        raise CallerError("no format of audio", path=f"{path}.format", hint=f"there are {', '.join(_TYPES)}")
    return core.FileContent(data, f"audio/{audio.format}", extra={"format": audio.format})


def _field(extra: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    return {key: extra[key]} if extra and key in extra else {}

"""Encode contents as the parts of an item, and decode them; seal the summary of a compaction, and read it.

Law: read_summary(seal_summary(text, origin)) holds the text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.client_input import read_shape
from callboard.wires.common.contents import (
    SCHEME,
    content_kind,
    decode_data_url,
    encode_data_url,
    is_audio,
    seal,
    unseal,
)
from callboard.wires.responses import schema

_HEADING = "What was said and done before, summed up:\n\n"
_TEXT = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_SHAPES: Mapping[
    Any, type[schema.TextPart | schema.RefusalPart | schema.ImagePart | schema.FilePart | schema.OutputPart]
] = {
    **dict.fromkeys(_TEXT, schema.TextPart),
    "refusal": schema.RefusalPart,
    "input_image": schema.ImagePart,
    "image_url": schema.ImagePart,
    "computer_screenshot": schema.ImagePart,
    "input_file": schema.FilePart,
    "output": schema.OutputPart,
}


def encode_part(content: core.Content) -> dict[str, Any] | None:
    """The content as a part of a message to the model; None for what this wire cannot carry."""
    match content:
        case core.TextualContent(text=text):
            return {"type": "input_text", "text": text}
        case core.PictureContent(data=data, mime_type=mime_type, url=url, extra=extra):
            part = {"type": "input_image", "detail": (extra or {}).get("detail") or "auto"}
            if data or url:
                return part | {"image_url": encode_data_url(data, mime_type) if data else url}
            return part | field if (field := _field(extra, "file_id")) else None
        case core.FileContent(data=data, mime_type=mime_type, name=name, url=url, extra=extra):
            if data and is_audio(mime_type):
                return None
            file: dict[str, Any] = {"type": "input_file"} | ({"filename": name} if name else {})
            if data:
                return file | {"file_data": encode_data_url(data, mime_type)}
            if url:
                return file | {"file_url": url}
            return file | field if (field := _field(extra, "file_id")) else None
        case _:
            return None


def encode_content(content: Iterable[core.Content], dropped: list[str]) -> str | list[dict[str, Any]]:
    """A string where it is one text or nothing, else parts."""
    parts: list[dict[str, Any]] = []
    for item in content:
        part = encode_part(item)
        if part is None:
            dropped.append(content_kind(item))
        else:
            parts.append(part)
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "input_text" else parts


def encode_output_text(content: Iterable[core.TextualContent | core.RefusalContent]) -> str | list[dict[str, Any]]:
    """The text of the model: a string where it is one text, else parts."""
    parts: list[dict[str, Any]] = [
        {"type": "refusal", "refusal": item.text}
        if isinstance(item, core.RefusalContent)
        else {"type": "output_text", "text": item.text, "annotations": []}
        for item in content
    ]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "output_text" else parts


def decode_content(content: schema.MessageContent, path: str, dropped: list[str]) -> tuple[core.Content, ...]:
    """The contents of an item; parts of a type that is not known are dropped.

    Raises CallerError below `path` for a part that is not what its type says.
    """
    if not content:
        return ()
    if isinstance(content, str):
        return (core.TextualContent(content),)
    contents: list[core.Content] = []
    for index, part in enumerate(content):
        shape = _SHAPES.get(named) if isinstance(named := part.get("type"), str) else None
        if shape is None:
            dropped.append(f"part {named}")
        else:
            where = f"{path}[{index}]"
            contents.append(_content(read_shape(part, shape, where, f"a part {named}"), where))
    return tuple(contents)


def _content(
    part: schema.TextPart | schema.RefusalPart | schema.ImagePart | schema.FilePart | schema.OutputPart, path: str
) -> core.Content:
    match part:
        case schema.TextPart(text=text) | schema.OutputPart(body=text):
            return core.TextualContent(text)
        case schema.RefusalPart(refusal=text):
            return core.RefusalContent(text)
        case schema.ImagePart():
            return _picture(part, path)
        case schema.FilePart():
            return _file(part, path)


def _picture(part: schema.ImagePart, path: str) -> core.PictureContent:
    image = part.image_url
    url, detail = (image.url, image.detail) if isinstance(image, schema.ImageUrl) else (image or "", part.detail)
    extra: dict[str, Any] = {"detail": detail} if detail and detail != "auto" else {}
    if url.startswith(SCHEME):
        data, mime_type = decode_data_url(url, f"{path}.image_url")
        return core.PictureContent(data=data, mime_type=mime_type or "image/png", extra=extra or None)
    if url:
        return core.PictureContent(url=url, extra=extra or None)
    if part.file_id:
        return core.PictureContent(extra={**extra, "file_id": part.file_id})
    raise CallerError("a picture without image_url or file_id", path=path)


def _file(part: schema.FilePart, path: str) -> core.FileContent:
    name = part.filename or ""
    if part.file_data:
        data, mime_type = decode_data_url(part.file_data, f"{path}.file_data")
        return core.FileContent(data=data, mime_type=mime_type or "application/octet-stream", name=name)
    if part.file_url:
        return core.FileContent(name=name, url=part.file_url)
    if part.file_id:
        return core.FileContent(name=name, extra={"file_id": part.file_id})
    raise CallerError("a file without file_data, file_url or file_id", path=path)


def _field(extra: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    return {key: extra[key]} if extra and extra.get(key) else {}


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

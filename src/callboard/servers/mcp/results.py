"""Encode a tool's result as MCP content.

Law: a failure is a result that the model reads, with its category beside it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import mcp_types as types
import msgspec

from callboard.core import Content, FileContent, PictureContent, ResultCanister, TextualContent

CATEGORY = "callboard/category"
"""Where in `_meta` the category of a failure is."""


def encode_result(
    result: ResultCanister, structured: Mapping[str, Any] | None = None, schema: Mapping[str, Any] | None = None
) -> types.CallToolResult:
    """The result of `tools/call`; without `structured` content, that is the JSON object which its one text is.

    One that is not as the `schema` says, which clients do not take, is an error that says so.
    """
    content = [_block(part) for part in result.content]
    if result.error is not None:
        return types.CallToolResult(content=content, is_error=True, _meta={CATEGORY: result.error.category})
    structured = structured or _structured_content(result.content)
    if schema is not None and not jsonschema_rs.is_valid(dict(schema), structured):
        content.append(types.TextContent(text="This is not what the tool's outputSchema says."))
        return types.CallToolResult(content=content, is_error=True, _meta={CATEGORY: "execution"})
    return types.CallToolResult(content=content, structured_content=structured)


def _structured_content(content: tuple[Content, ...]) -> Mapping[str, Any] | None:
    match content:
        case (TextualContent(text=text),) if text.startswith("{"):
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return None
            return value if isinstance(value, dict) else None
        case _:
            return None


def _block(part: Content) -> types.ContentBlock:
    match part:
        case PictureContent(url="") as picture:
            return types.ImageContent(data=_text_of(picture.data), mime_type=picture.mime_type)
        case PictureContent(url=url, mime_type=mime_type):
            return types.ResourceLink(uri=url, name="picture", mime_type=mime_type)
        case FileContent(url="") as file:
            return _file(file)
        case FileContent(url=url, name=name, mime_type=mime_type):
            return types.ResourceLink(uri=url, name=name or "file", mime_type=mime_type)
        case _:
            return types.TextContent(text=part.text)


def _file(file: FileContent) -> types.ContentBlock:
    if file.mime_type.startswith("audio/"):
        return types.AudioContent(data=_text_of(file.data), mime_type=file.mime_type)
    uri = f"callboard:{quote(file.name or 'file', safe='')}"
    if file.mime_type.startswith("text/"):
        try:
            text = file.data.decode()
        except UnicodeDecodeError:
            pass
        else:
            contents = types.TextResourceContents(uri=uri, mime_type=file.mime_type, text=text)
            return types.EmbeddedResource(resource=contents)
    blob = types.BlobResourceContents(uri=uri, mime_type=file.mime_type, blob=_text_of(file.data))
    return types.EmbeddedResource(resource=blob)


def _text_of(data: bytes) -> str:
    return b64encode(data).decode("ascii")

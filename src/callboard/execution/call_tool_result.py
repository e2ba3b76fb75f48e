"""Read the CallToolResult of MCP's SDK, which a function written by hand returns as it is.

The SDK is not needed for it: its versions differ in the case of names, and this takes both.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from callboard.core import FileContent, PictureContent, TextualContent
from callboard.errors import ToolExecutionFailure


def read_call_tool_result(result: Any) -> Any:
    """The contents of the result; without any, its structured content. Raises ToolExecutionFailure for an error."""
    blocks = [_content(block) for block in result.content]
    structured = _get(result, "structured_content", "structuredContent")
    if _get(result, "is_error", "isError"):
        texts = [each.text for each in blocks if isinstance(each, TextualContent)]
        raise ToolExecutionFailure("\n".join(texts) or "the server says that the call failed")
    return blocks or ("" if structured is None else structured)


def _content(block: Any) -> TextualContent | PictureContent | FileContent:
    """A block as content; a block without text and bytes is its JSON."""
    inner = getattr(block, "resource", block)
    text, encoded = getattr(inner, "text", None), getattr(inner, "data", None) or getattr(inner, "blob", None)
    kind = _get(inner, "mime_type", "mimeType") or "application/octet-stream"
    if isinstance(text, str):
        return TextualContent(text)
    if not isinstance(encoded, str):
        return TextualContent(block.model_dump_json(exclude_none=True))
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return TextualContent(f"[{kind}, left out: it is not base64]")
    return PictureContent(data, kind) if kind.startswith("image/") else FileContent(data, kind)


def _get(value: Any, *names: str) -> Any:
    return next((member for name in names if (member := getattr(value, name, None)) is not None), None)

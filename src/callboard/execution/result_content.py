"""Turn the value of a tool into the content of a result, up to a maximum size.

A function may return the CallToolResult of MCP's SDK. The SDK is not imported: its versions spell names differently,
and both spellings are read.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import ItemsView, KeysView, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from callboard import core
from callboard.errors import CallerError, ToolExecutionFailure


def read_call_tool_result(result: Any) -> Any:
    """Return the contents, or the structured content if there are none. Raises ToolExecutionFailure for an error."""
    blocks = [_read_block(block) for block in result.content]
    structured = _get(result, "structured_content", "structuredContent")
    if _get(result, "is_error", "isError"):
        texts = [each.text for each in blocks if isinstance(each, core.TextualContent)]
        raise ToolExecutionFailure("\n".join(texts) or "the server says that the call failed")
    return blocks or ("" if structured is None else structured)


def _read_block(block: Any) -> core.TextualContent | core.PictureContent | core.FileContent:
    """Read a block as content; a block without text and bytes is its JSON."""
    inner = getattr(block, "resource", block)
    text, encoded = getattr(inner, "text", None), getattr(inner, "data", None) or getattr(inner, "blob", None)
    kind = _get(inner, "mime_type", "mimeType") or "application/octet-stream"
    if isinstance(text, str):
        return core.TextualContent(text)
    if not isinstance(encoded, str):
        return core.TextualContent(block.model_dump_json(exclude_none=True))
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return core.TextualContent(f"[{kind}, left out: it is not base64]")
    return core.PictureContent(data, kind) if kind.startswith("image/") else core.FileContent(data, kind)


def _get(value: Any, *names: str) -> Any:
    return next((member for name in names if (member := getattr(value, name, None)) is not None), None)


MAX_TEXT = 256 * 1024
"""Maximum characters of a result's text. Longer text is cut with a note."""

MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a result."""

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+>")
_CONTENTS = (core.TextualContent, core.PictureContent, core.FileContent)
_BYTES = (bytes, bytearray, memoryview)
_SERIES = (Sequence, AbstractSet, KeysView, ValuesView, ItemsView)
_KEYS = (tuple, frozenset)
"""Series that occur here only as keys of a dict."""
_SCALARS = (str, int, float)
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def make_result(identifier: str, value: Any) -> core.ResultCanister:
    """Return the result of the call `identifier` with this `value`: text as it is, pictures and bytes with their type,
    the rest as JSON.

    Raises CallerError if the only text of a value is its memory address, as for a generator. Raises
    ToolExecutionFailure for an MCP result that reports a failed call.
    """
    if type(value).__name__ == "CallToolResult":
        value = read_call_tool_result(value)
    exit_code = value.exit_code if isinstance(value, core.CommandOutput) else None
    return core.ResultCanister(invocation_id=identifier, content=_contents(value), exit_code=exit_code)


def _contents(value: Any) -> tuple[core.Content, ...]:
    # Pictures and files are useless to a model as JSON, but a list of only texts stays JSON.
    if (
        isinstance(value, (list, tuple))
        and any(isinstance(each, (*_CONTENTS, *_BYTES)) for each in value)
        and all(isinstance(each, (str, *_CONTENTS, *_BYTES)) for each in value)
    ):
        return tuple([_content(each) for each in value])
    return (_content(value),)


def _content(value: Any) -> core.Content:
    if isinstance(value, core.TextualContent):
        return msgspec.structs.replace(value, text=cut(value.text))
    if isinstance(value, _CONTENTS):
        return value
    if isinstance(value, _BYTES):
        return _of_bytes(bytes(value))
    return core.TextualContent(cut(value if isinstance(value, str) else _json(value)))


def _of_bytes(data: bytes) -> core.Content:
    if len(data) > MAX_BYTES:
        return core.TextualContent(f"[{len(data)} bytes, which is more than the {MAX_BYTES} that a result may have]")
    for magic, mime_type in _PICTURES:
        if data.startswith(magic):
            return core.PictureContent(data, mime_type)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return core.PictureContent(data, "image/webp")
    return core.FileContent(data)


def _json(value: Any) -> str:
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return _json_of_python(value)
    # msgspec writes null for numbers that JSON cannot express.
    return _json_of_python(value) if "null" in text else text


def _json_of_python(value: Any) -> str:
    """Encode integers beyond 64 bits, keys that are not strings, and NaN and infinities as strings."""
    try:
        plain = _finite(msgspec.to_builtins(value, enc_hook=_plain))
        return json.dumps(plain, default=_plain, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return _text(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    for kind in _SCALARS:
        if isinstance(value, kind):  # a subclass
            return kind(value)
    if isinstance(value, _SERIES) and not isinstance(value, _KEYS) and len(value) <= MAX_TEXT:
        return [*value]
    return _text(value)


def _text(value: object) -> str:
    """Return the value as text. Raises CallerError if the text is only the value's memory address."""
    text = str(value)
    if not _ADDRESS.search(text):
        return text
    raise CallerError(
        f"a {type(value).__name__} is no result that a model could read",
        hint="return text, numbers, a dict, a list, a dataclass or a pydantic model",
    )


def cut(text: str) -> str:
    """Cut the text to the maximum, without lone surrogates: file names may have them, JSON may not."""
    excerpt = text[:MAX_TEXT]
    if not excerpt.isascii():
        excerpt = excerpt.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return excerpt if len(text) <= MAX_TEXT else f"{excerpt}\n[cut: {MAX_TEXT} of {len(text)} characters]"

"""Repair messages that the SDK refuses but other clients read.

The SDK accepts only strict JSON in strict UTF-8, and refuses a whole list because of one bad tool. A lone surrogate
(from JavaScript's `text.slice(0, 4)`), a byte order mark, or a schema without a type must not make an answer unusable.

Laws: messages that the SDK accepts stay unchanged. An unreadable answer fails its call at once. A tool that cannot be
repaired is omitted with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import msgspec

from callboard.mcp.errors import error_text

_PARSE_ERROR: Final = -32700
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ID: Final = r'"id"\s*:\s*(\d+|"(?:[^"\\]|\\.)*")'
_ID_AT_THE_EDGE: Final = re.compile(
    rf'^\s*\{{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?{_ID}|,\s*{_ID}\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}}\s*$'
)
"""The identifier of an answer, at a position where it cannot belong to a nested value."""
_EDGE: Final = 512
_REQUIRED_KEYS: Final = ("name", "description", "inputSchema")
_LIST_FIELDS: Final[Mapping[str, Any]] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Fields of a 2026-07-28 list in addition to its tools."""


def mend_message(data: bytes) -> bytes:
    """Return the message, repaired if the SDK refuses it and a repair is possible."""
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415  # the SDK's, imported with it

    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        return reparse(data) or data
    return data


def reparse(data: bytes) -> bytes | None:
    """Repair a message that the SDK refuses.

    Returns:
        The repaired message, an error for the call if the answer is unreadable, or None if this is not a message.
    """
    text = data.decode("utf-8-sig", "replace")
    try:
        message = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        identifier = _find_id(text)
        return None if identifier is None else _error_response(identifier, f"no JSON: {error}")
    if not isinstance(message, dict) or message.get("jsonrpc", "2.0") != "2.0":
        return None
    identifier = message.get("id")
    answers = "method" not in message and isinstance(identifier, int | str) and not isinstance(identifier, bool)
    failure = message.get("error")
    is_error = isinstance(failure, dict) and (
        isinstance(failure.get("code"), int) and isinstance(failure.get("message"), str)
    )
    if answers and not (isinstance(message.get("result"), dict) or is_error):
        return _error_response(identifier, "neither a result, which is an object, nor an error")
    if not answers and not isinstance(message.get("method"), str):
        return None
    try:
        return _SURROGATE.sub("\ufffd", json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)).encode()
    except RecursionError:
        return None


@asynccontextmanager
async def mend_transport(
    transport: Any, mend: Callable[[list[Any]], list[Any]]
) -> AsyncGenerator[tuple[_MendingStream, Any]]:
    """Yield a transport of the SDK whose lists of tools are repaired by `mend`."""
    async with transport as (read, write):
        yield _MendingStream(read, mend), write


class _MendingStream:
    def __init__(self, stream: Any, mend: Callable[[list[Any]], list[Any]]) -> None:
        self._stream = stream
        self._mend = mend

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._stream)
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
            result["tools"] = self._mend(result["tools"])
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


def mend_tools(tools: list[Any], version: str, skipped: dict[str, str]) -> list[Any]:
    """Repair the tools of a list for this protocol version. Reasons for omitted tools go to `skipped`."""
    if _find_error(tools, version) is None:
        return tools
    return [mended for tool in tools if (mended := _mend_tool(tool, version, skipped)) is not None]


def _mend_tool(tool: Any, version: str, skipped: dict[str, str]) -> Any:
    """Return the part of the tool that the SDK accepts, or None if the tool cannot be called."""
    if not isinstance(tool, Mapping):
        skipped[""] = "it is no object"
        return None
    schema = tool.get("inputSchema")
    if schema is None or isinstance(schema, Mapping):
        kind = (schema or {}).get("type")
        if kind is None or (isinstance(kind, list) and "object" in kind):  # arguments are an object
            tool = {**tool, "inputSchema": {**(schema or {}), "type": "object"}}
    # Other keys are optional: annotations, the output schema, icons.
    needed = {key: tool[key] for key in _REQUIRED_KEYS if tool.get(key) is not None}
    reasons: list[str] = []
    for candidate in (tool, needed):
        why = _find_error([candidate], version)
        if why is None:
            return candidate
        reasons.append(why.removeprefix("tools.0."))
    skipped[str(tool.get("name", ""))] = reasons[-1]
    return None


def _find_error(tools: list[Any], version: str) -> str | None:
    """Return why the SDK refuses a list of these tools, or None if the list is accepted."""
    from mcp_types.methods import validate_server_result  # noqa: PLC0415  # the SDK's, imported with it

    try:
        validate_server_result("tools/list", version, {"tools": tools, **_LIST_FIELDS})
    except ValueError as error:
        return error_text(error)
    return None


def _find_id(text: str) -> Any:
    begin, end = text[:_EDGE], text[-_EDGE:]
    match = _ID_AT_THE_EDGE.search(begin) or _ID_AT_THE_EDGE.search(end)
    if match is None or '"method"' in begin or '"method"' in end:
        return None
    return msgspec.json.decode((match[1] or match[2]).encode())


def _error_response(identifier: Any, why: str) -> bytes:
    error = {"code": _PARSE_ERROR, "message": f"its answer cannot be read: {why}"}
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}).encode()

"""What a server sends, read as leniently as other clients read it.

The SDK takes nothing but strict JSON in strict UTF-8, and refuses a whole list for one tool in it. Half of an emoji,
as `text.slice(0, 4)` of JavaScript leaves it, a byte order mark, or a tool whose schema does not say that it is an
object is no reason to lose an answer.
Laws: what the SDK reads is not touched; an answer that nobody can read fails the call that it answers, at once; a tool
that cannot be mended is left out with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from callboard.mcp.errors import reason_of

_PARSE_ERROR: Final = -32700
_HALF: Final = re.compile("[\ud800-\udfff]")
_ID: Final = r'"id"\s*:\s*(\d+|"(?:[^"\\]|\\.)*")'
_ID_AT_THE_EDGE: Final = re.compile(
    rf'^\s*\{{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?{_ID}|,\s*{_ID}\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}}\s*$'
)
"""The identifier of what looks like an answer, where it cannot be one inside of it."""
_EDGE: Final = 512
_NEEDED: Final = ("name", "description", "inputSchema")
_BESIDE: Final[Mapping[str, Any]] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What a list of 2026-07-28 has beside its tools."""


def readable(data: bytes) -> bytes:
    """A message as the SDK takes it: as it is, or mended where that helps."""
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415  # the SDK's, imported with it

    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        return reread(data) or data
    return data


def reread(data: bytes) -> bytes | None:
    """A message that the SDK refuses, as one that it takes.

    An answer that is none becomes an error for the call that it answers. None for what is no message.
    """
    text = data.decode("utf-8-sig", "replace")
    try:
        message = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        identifier = _identifier_in(text)
        return None if identifier is None else _no_answer(identifier, f"no JSON: {error}")
    if not isinstance(message, dict) or message.get("jsonrpc", "2.0") != "2.0":
        return None
    identifier = message.get("id")
    answers = "method" not in message and isinstance(identifier, int | str) and not isinstance(identifier, bool)
    if answers and not (isinstance(message.get("result"), dict) or _is_error(message.get("error"))):
        return _no_answer(identifier, "neither a result, which is an object, nor an error")
    if not answers and not isinstance(message.get("method"), str):
        return None
    try:
        return _HALF.sub("\ufffd", json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)).encode()
    except RecursionError:
        return None


class LenientTransport:
    """A transport of the SDK's; `mend` gives the tools of a list as they are to be read."""

    def __init__(self, transport: Any, mend: Callable[[list[Any]], list[Any]]) -> None:
        self._transport = transport
        self._mend = mend

    async def __aenter__(self) -> tuple[_Reading, Any]:
        read, write = await self._transport.__aenter__()
        return _Reading(read, self._mend), write

    async def __aexit__(self, *error: object) -> Any:
        return await self._transport.__aexit__(*error)


class _Reading:
    """The SDK's read stream."""

    def __init__(self, stream: Any, mend: Callable[[list[Any]], list[Any]]) -> None:
        self._stream = stream
        self._mend = mend

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return self._mended(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._mended(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)

    def _mended(self, item: Any) -> Any:
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list) and "content" not in result:
            result["tools"] = self._mend(result["tools"])
        return item


def mend_tools(tools: list[Any], version: str, left_out: dict[str, str]) -> list[Any]:
    """The tools as the SDK takes them in this version; `left_out` gets why others are not there, by their names."""
    if _refusal(tools, version) is None:
        return tools
    return [mended for tool in tools if (mended := _mend(tool, version, left_out)) is not None]


def _mend(tool: Any, version: str, left_out: dict[str, str]) -> Any:
    """The tool, or as much of it as the SDK takes; None for one that cannot be called."""
    if not isinstance(tool, Mapping):
        left_out[""] = "it is no object"
        return None
    schema = tool.get("inputSchema")
    if schema is None or isinstance(schema, Mapping):
        tool = {**tool, "inputSchema": _of_an_object(schema or {})}
    # What is beside these decides nothing: annotations, the schema of its output, icons.
    needed = {key: tool[key] for key in _NEEDED if tool.get(key) is not None}
    reasons: list[str] = []
    for candidate in (tool, needed):
        why = _refusal([candidate], version)
        if why is None:
            return candidate
        reasons.append(why.removeprefix("tools.0."))
    left_out[str(tool.get("name", ""))] = reasons[-1]
    return None


def _of_an_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments are an object: a schema that leaves the type open, or allows for others too, means the same."""
    kind = schema.get("type")
    return {**schema, "type": "object"} if kind is None or (isinstance(kind, list) and "object" in kind) else schema


def _refusal(tools: list[Any], version: str) -> str | None:
    """Why the SDK refuses a list of these tools; None if it does not."""
    from mcp_types.methods import validate_server_result  # noqa: PLC0415  # the SDK's, imported with it

    try:
        validate_server_result("tools/list", version, {"tools": tools, **_BESIDE})
    except ValueError as error:
        return reason_of(error)
    return None


def _identifier_in(text: str) -> Any:
    begin, end = text[:_EDGE], text[-_EDGE:]
    found = _ID_AT_THE_EDGE.search(begin) or _ID_AT_THE_EDGE.search(end)
    if found is None or '"method"' in begin or '"method"' in end:
        return None
    return msgspec.json.decode((found[1] or found[2]).encode())


def _is_error(error: Any) -> bool:
    return isinstance(error, dict) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)


def _no_answer(identifier: Any, why: str) -> bytes:
    error = {"code": _PARSE_ERROR, "message": f"its answer cannot be read: {why}"}
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}).encode()

"""Read a request's body, within the limits of one request and of the whole process.

Laws: a few bytes of JSON can become a hundred bytes of objects, so the values are counted before any is built. A large
body is read on a thread, in steps short enough for other requests to proceed. Bytes taken of a ByteBudget are returned
exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive

from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.settings import GatewayLimits
from callboard.text.surrogates import replace_halves

LARGE: Final = 256 * 1024
"""Minimum bytes of a request that is read on a thread. For a smaller one, a thread costs more than it saves."""
_STEP: Final = 64 * 1024
"""Bytes to search in one step, about a tenth of a millisecond."""
_OPENS: Final = (b",", b"[", b"{")
"""Bytes that precede a value, except the first value of an array or object."""
_CODEX_HINT: Final = " (Codex: -c features.enable_request_compression=false)"
"""Codex is the only client known to compress requests: with zstd, to a provider called OpenAI, with a ChatGPT login."""
_MAX_FIELDS: Final = 256
"""Maximum fields of a body. Unknown fields are reported one by one. The largest wire has 50."""
_T = TypeVar("_T")


class ByteBudget:
    """The bytes of requests that may be in memory at once, from arrival to answer.

    Without it, clients that each respect their own limits could together fill the memory.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class BudgetShare:
    """The bytes of a ByteBudget that one request uses. The end of its `with` returns all of them."""

    __slots__ = ("_budget", "taken")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, size: int) -> None:
        """Raises an HttpError if the budget is used up."""
        if self._budget.used + size > self._budget.limit:
            raise HttpError("overloaded", "too many requests are waiting for an answer", headers={"retry-after": "1"})
        self._budget.used += size
        self.taken += size

    def give(self, size: int) -> None:
        """Return bytes before the end."""
        self.taken -= size
        self._budget.used -= size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give(self.taken)


async def read_body(headers: Headers, receive: Receive, limits: GatewayLimits, share: BudgetShare) -> bytes:
    """Return the whole body, and charge it to the share as it arrives.

    Raises an HttpError if the body is too large or compressed, or if the client stops in the middle.
    """
    if (encoding := headers.get("content-encoding", "")).strip().lower() not in {"", "identity"}:
        reason = f"compressed bodies are not accepted: send no content-encoding {encoding[:50]!r}{_CODEX_HINT}"
        raise HttpError("unsupported_content_encoding", reason, headers={"accept-encoding": "identity"})
    limit = limits.body
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise HttpError("request_too_large", f"{length} bytes; the limit is {limit}")
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(limits.read_timeout):
                message = await receive()
        except TimeoutError:
            raise HttpError(
                "timeout", f"the client sent nothing for {limits.read_timeout:g} s in the middle of the request"
            ) from None
        if message["type"] == "http.disconnect":
            raise HttpError("timeout", "the client left in the middle of its request")
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise HttpError("request_too_large", f"more than {limit} bytes, which is the limit")
        share.take(len(piece))
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def run_in_thread_if_large(size: int, work: Callable[[], _T]) -> _T:
    """Call `work`, on a thread if `size` bytes would block other clients."""
    return work() if size < LARGE else await asyncio.to_thread(work)


async def read_json(data: bytes, limits: GatewayLimits) -> dict[str, Any]:
    """Return a body as a JSON object. Raises an HttpError."""
    return await run_in_thread_if_large(len(data), lambda: _decode_object(data, limits.values))


def _decode_object(data: bytes, limit: int) -> dict[str, Any]:
    if len(data) > limit and count_values(data, limit) > limit:
        raise HttpError("request_too_large", f"more than {limit} values, which is the limit")
    try:
        body = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise HttpError("invalid_json", f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise HttpError("invalid_json", "the body is not a JSON object")
    if len(body) > _MAX_FIELDS:
        raise HttpError("request_too_large", f"{len(body)} fields; the limit is {_MAX_FIELDS}")
    return body


def _decode(data: bytes) -> Any:
    """Decode JSON. Half characters, which JavaScript leaves when it cuts a text, become replacement characters."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        mended = replace_halves(text := data.decode())
        if mended == text:
            raise
        return msgspec.json.decode(mended)


def count_values(data: bytes, limit: int) -> int:
    """Count the values in JSON, with at most one missing. Stop soon after `limit`.

    It counts arrays, objects and commas, in C and without creating objects: a gigabyte takes two seconds.
    """
    if (upper := sum([data.count(each) for each in _OPENS])) <= limit:
        return upper  # includes those inside strings
    count = 0
    is_inside = False  # inside a string
    begin = 0
    while begin < len(data) and count <= limit:
        end = begin + _STEP
        while data[end - 1 : end] == b"\\" and end < len(data):
            end += 1  # do not end a step within an escape
        piece = data[begin:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[is_inside::2])
        count += sum([outside.count(each) for each in _OPENS])
        is_inside ^= len(parts) % 2 == 0
        begin = end
    return count

"""Read a request's body, within the limits of one request and of the whole process.

Laws: no more is built of a body than its limits allow: a few bytes of JSON can be a hundred bytes of objects, so its
values are counted before the first of them is made. What is large is read on a thread, in steps so short that others
have their turn. What was taken of a ByteBudget is given back once.
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
"""From so many bytes on a request is read on a thread; below, a thread costs more than it saves."""
_STEP: Final = 64 * 1024
"""Bytes that are searched at once: a tenth of a millisecond."""
_OPENS: Final = (b",", b"[", b"{")
"""What begins a value, but for the first of an array or object."""
_CODEX_HINT: Final = " (Codex: -c features.enable_request_compression=false)"
"""The one client known to compress what it sends, with zstd, to a provider called OpenAI under a ChatGPT login."""
_MAX_FIELDS: Final = 256
"""Fields of a body: unknown ones are reported one by one. The largest wire has 50."""
_T = TypeVar("_T")


class ByteBudget:
    """The bytes of requests that are held at once, from their arrival until they are answered.

    Without such a bound, each client may stay below every limit of its own, and all of them together fill the memory.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class BudgetShare:
    """The bytes that one request takes of a ByteBudget. At the end of its `with`, everything is given back."""

    __slots__ = ("_budget", "taken")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.taken = 0

    def take(self, size: int) -> None:
        """Raises an HttpError where there is no room."""
        if self._budget.used + size > self._budget.limit:
            raise HttpError("overloaded", "too much is waiting to be answered here", headers={"retry-after": "1"})
        self._budget.used += size
        self.taken += size

    def give(self, size: int) -> None:
        """Give bytes back before the end."""
        self.taken -= size
        self._budget.used -= size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give(self.taken)


async def read_body(headers: Headers, receive: Receive, limits: GatewayLimits, share: BudgetShare) -> bytes:
    """The whole body, which is taken of the share as it comes.

    Raises an HttpError beyond the limit's bytes, for a compressed body, and for a client that stops in its middle.
    """
    if (encoding := headers.get("content-encoding", "")).strip().lower() not in {"", "identity"}:
        reason = f"bodies are not unpacked here: send this one without content-encoding {encoding[:50]!r}{_CODEX_HINT}"
        raise HttpError("unsupported_content_encoding", reason, headers={"accept-encoding": "identity"})
    limit = limits.body
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise HttpError("request_too_large", f"{length} bytes; at most {limit} are taken")
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(limits.read_timeout):
                message = await receive()
        except TimeoutError:
            raise HttpError(
                "timeout", f"nothing came for {limits.read_timeout:g} s in the middle of the request"
            ) from None
        if message["type"] == "http.disconnect":
            raise HttpError("timeout", "the client left in the middle of its request")
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise HttpError("request_too_large", f"more than {limit} bytes; at most {limit} are taken")
        share.take(len(piece))
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def run_in_thread_if_large(size: int, work: Callable[[], _T]) -> _T:
    """Call `work`; on a thread if `size` bytes would keep other clients waiting."""
    return work() if size < LARGE else await asyncio.to_thread(work)


async def read_json(data: bytes, limits: GatewayLimits) -> dict[str, Any]:
    """A body as a JSON object. Raises an HttpError."""
    return await run_in_thread_if_large(len(data), lambda: _decode_object(data, limits.values))


def _decode_object(data: bytes, limit: int) -> dict[str, Any]:
    if len(data) > limit and count_values(data, limit) > limit:
        raise HttpError("request_too_large", f"more than {limit} values; at most {limit} are taken")
    try:
        body = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise HttpError("invalid_json", f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise HttpError("invalid_json", "the body is not a JSON object")
    if len(body) > _MAX_FIELDS:
        raise HttpError("request_too_large", f"{len(body)} fields; at most {_MAX_FIELDS} are taken")
    return body


def _decode(data: bytes) -> Any:
    """The JSON; halves of characters, which JavaScript leaves where it cuts a text, become replacement characters."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        mended = replace_halves(text := data.decode())
        if mended == text:
            raise
        return msgspec.json.decode(mended)


def count_values(data: bytes, limit: int) -> int:
    """How many values JSON has, at most one less than are; it stops soon after `most`.

    Arrays and objects count, and what follows a comma. In C and without objects: a gigabyte in two seconds.
    """
    if (upper := sum([data.count(each) for each in _OPENS])) <= limit:
        return upper  # with those inside strings
    count = 0
    is_inside = False  # a string
    begin = 0
    while begin < len(data) and count <= limit:
        end = begin + _STEP
        while data[end - 1 : end] == b"\\" and end < len(data):
            end += 1  # no step ends within an escape
        piece = data[begin:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[is_inside::2])
        count += sum([outside.count(each) for each in _OPENS])
        is_inside ^= len(parts) % 2 == 0
        begin = end
    return count

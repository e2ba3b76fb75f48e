"""Streams of server-sent events to a page: updates as HTML that the server has rendered.

A message names the parts of the page and their content. If messages have ids, a browser that reconnects sends the last
id that it saw, and receives only later messages.

Input from a browser: forms, numbers and short values, each read with a size limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from callboard.errors import CallboardError

if TYPE_CHECKING:
    from markupsafe import Markup

    from callboard.servers.board.app import Board

MAX_FORM: Final = 1024 * 1024
"""Maximum bytes of a form."""
MAX_FIELDS: Final = 1000
"""Maximum fields of a form."""
_MAX_VALUE: Final = 500
"""Maximum characters of a value."""
_MAX_DIGITS: Final = 9

Form: TypeAlias = Mapping[str, str]


_T = TypeVar("_T")


def require(part: _T | None) -> _T:
    """Return a part of the board, or a value. Raises HTTPException if there is none."""
    if part is None:
        raise HTTPException(404)
    return part


async def read_form(request: Request) -> Form:
    """Return the fields of a form. Raises HTTPException if it is too large or not a form."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_FORM:
                raise HTTPException(413, f"a form has at most {MAX_FORM:,} bytes")
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except (ClientDisconnect, ValueError):
        raise HTTPException(400, "the request is not a form of the board") from None


def read_number(text: str) -> int | None:
    """Return a number of at least 0, or None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def read_value(text: str | None) -> str:
    """Return a value, cut to its maximum length; "" if it is missing."""
    return (text or "")[:_MAX_VALUE]


def find_back(request: Request) -> str:
    """Return the path of the board's page with the link or form that led here, "" if there is none."""
    base = f"{request.scope['root_path']}/"
    page = request.headers.get("referer", "").partition(f"//{request.headers['host']}{base}")[2]
    return f"{base}{page}" if page and f"{base}{page}" != request.url.path else ""


POLL_SECONDS: Final = 0.1
"""Seconds between polls of a database while a browser watches."""
BEAT_SECONDS: Final = 15.0
"""Seconds of silence after which a comment shows that the stream is alive."""
RETRY: Final = b"retry: 1000\n\n"
"""Delay before a browser reconnects, in milliseconds."""

_encode_json: Final = msgspec.json.Encoder(enc_hook=str).encode  # markup is a subclass of str


class PageUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event: str
    """parts: elements to replace, by id; entries: new entries for the end of the log; pieces: text of the open reply;
    reload: the page is outdated."""
    data: Any = None
    id: str = ""

    def encode(self) -> bytes:
        identifier = f"id: {self.id}\n".encode() if self.id else b""
        return b"%sevent: %s\ndata: %s\n\n" % (identifier, self.event.encode(), _encode_json(self.data))


def send_updates(board: Board, request: Request, updates: AsyncGenerator[PageUpdate]) -> StreamingResponse:
    """Stream updates until the browser leaves, the session ends, the updates end, or the server stops."""
    cookie = request.cookies.get(board.login.cookie, "")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_encode(board, cookie, updates), media_type="text/event-stream", headers=headers)


async def follow_parts(
    board: Board, read: Callable[[], Awaitable[Mapping[str, Markup] | None]], seconds: float = 1.0
) -> AsyncGenerator[PageUpdate]:
    """Yield the parts of a page that `read` renders in another way than before, while the browser watches.

    The parts are read every `seconds`. If `read` returns None, the page is outdated: the browser reloads it.
    """
    parts: Mapping[str, Markup] = {}
    while (fresh := await read()) is not None:
        if changed := {name: markup for name, markup in fresh.items() if parts.get(name) != markup}:
            yield PageUpdate(event="parts", data=changed)
        parts = fresh
        with suppress(TimeoutError):
            await asyncio.wait_for(board.closing.wait(), seconds)
            return
    yield PageUpdate(event="reload")


async def _encode(board: Board, cookie: str, updates: AsyncGenerator[PageUpdate]) -> AsyncIterator[bytes]:
    yield RETRY
    async with aclosing(updates):
        following = asyncio.ensure_future(anext(updates, None))
        closing = asyncio.ensure_future(board.closing.wait())
        try:
            while True:
                await asyncio.wait({following, closing}, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if closing.done() or not board.login.find_session(cookie):
                    return
                if not following.done():
                    yield b": here\n\n"
                    continue
                try:
                    update = following.result()
                except CallboardError:  # the job was deleted, or the database is unavailable: the browser reconnects
                    return
                if update is None:
                    return
                yield update.encode()
                following = asyncio.ensure_future(anext(updates, None))
        finally:
            for task in (following, closing):
                task.cancel()
            await asyncio.gather(following, closing, return_exceptions=True)

"""A request's body.

Owns the reading of it, and its limit. Knows nothing of what it says.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive

from callboard.servers.gateway.refusal import Refusal
from callboard.servers.gateway.settings import Limits


async def read_body(headers: Headers, receive: Receive, limits: Limits) -> bytes:
    """The whole body. Raises a Refusal beyond the limit's bytes, and for a client that stops in its middle."""
    most = limits.body
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise Refusal("request_too_large", f"{length} bytes; at most {most} are taken")
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(limits.silence):
                message = await receive()
        except TimeoutError:
            raise Refusal("timeout", f"nothing came for {limits.silence:g} s in the middle of the request") from None
        if message["type"] == "http.disconnect":
            raise Refusal("timeout", "the client left in the middle of its request")
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise Refusal("request_too_large", f"more than {most} bytes; at most {most} are taken")
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

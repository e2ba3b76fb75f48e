"""Send the head of an answer together with its body.

uvicorn writes the head separately. On a TCP socket without delay, that costs a system call and a packet for each answer: a
tenth of the gateway's work for a short answer.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_MAX_BYTES: Final = 64 * 1024
"""Maximum bytes to hold. Without a limit, the transport could not pause a writer that is faster than its client."""


class JoinedWrites:
    """A transport that joins the writes of one turn of the event loop. Everything else is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._data: list[bytes] = []
        self._size = 0
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write the data at the end of this turn, or now if there is much of it."""
        if not self._data:
            self._loop.call_soon(self._flush)
        self._data.append(data)
        self._size += len(data)
        if self._size > _MAX_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left, then close."""
        self._flush()
        self._transport.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection to another protocol, such as that of WebSockets."""
        self._flush()
        self._transport.set_protocol(protocol)

    def _flush(self) -> None:
        data, self._data, self._size = self._data, [], 0
        if data and not self._transport.is_closing():
            self._transport.write(data[0] if len(data) == 1 else b"".join(data))


class JoinedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # one of uvicorn's two, by what is installed
    """uvicorn's protocol for HTTP on such a transport. The `http` of a uvicorn.Config may name it."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Serve a new connection."""
        super().connection_made(JoinedWrites(transport))

"""Lines of JSON-RPC from and to an ACP client.

The package's own transport stops at a message that is no object, and forgets to answer what it cannot read. Laws: every
request gets an answer, and no answer ends the connection; of a line that is too long nothing is kept; what is sent is
UTF-8, whatever a model wrote.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from callboard.servers.stdio import Writer

MAX_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of one message; a prompt may hold pictures."""
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600


class LineTransport:
    """A `Transport` of the package `acp`, over a reader and a writer of lines.

    Args:
        reader: What the client writes.
        writer: What the client reads.
        max_message: Bytes of one message; a longer one is refused.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: Writer, *, max_message: int = MAX_MESSAGE) -> None:
        self._reader = reader
        self._writer = writer
        self._max_message = max_message

    def post(self, message: dict[str, Any]) -> None:
        """Sends a message behind all that were sent before, and does not wait for the client to read it.

        What waits is no more than the conversation, which is in memory too.
        """
        self._writer.post(_encode(message) + "\n")

    async def send(self, message: dict[str, Any]) -> None:
        """Sends a message, and waits while the client is slow to read."""
        self.post(message)
        await self._writer.flush()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end."""
        while (line := await self._read_line()) is not None:
            if not line.strip():
                continue
            message = self._parse(line)
            if message is not None:
                return message
        return None

    async def close(self) -> None:
        """Nothing more is sent."""
        self._writer.close()

    async def _read_line(self) -> bytes | None:
        """The next line, None at the end. One that is too long is refused, and skipped."""
        parts: list[bytes] = []
        length = 0
        while True:
            try:
                part = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                part = await self._reader.readexactly(error.consumed)
            except asyncio.IncompleteReadError as error:
                if not error.partial and not parts:
                    return None
                part = error.partial + b"\n"
            length += len(part)
            if length <= self._max_message:
                parts.append(part)
            if part.endswith(b"\n"):
                break
        if length > self._max_message:
            self._refuse(_INVALID_REQUEST, f"a message has at most {self._max_message} bytes: send less at once")
            return b""
        return b"".join(parts)

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._refuse(_PARSE_ERROR, "not JSON: send one JSON object a line")
            return None
        if not isinstance(message, dict):
            self._refuse(_INVALID_REQUEST, "not a JSON object: requests come one by one, not as a batch")
            return None
        identifier = message.get("id")
        if identifier is not None and (isinstance(identifier, bool) or not isinstance(identifier, (int, str))):
            self._refuse(_INVALID_REQUEST, "the id of a request is a number or a string")
            return None
        if "method" in message and not isinstance(message["method"], str):
            self._refuse(_INVALID_REQUEST, "the method of a request is a string", identifier)
            return None
        if message.get("error") is not None:
            message.pop("result", None)  # of both, the package takes the result: an error would count as an answer
        if not isinstance(message.get("error", {}), dict):
            message["error"] = {}  # the package looks into it
        return message

    def _refuse(self, code: int, text: str, identifier: int | str | None = None) -> None:
        self.post({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": text}})


def _encode(message: dict[str, Any]) -> str:
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number that JSON has not, in the arguments of a call
        plain = json.loads(json.dumps(message), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))

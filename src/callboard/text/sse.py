"""Server-sent events (WHATWG HTML, section 9.2.6): bytes to frames, and payloads to bytes.

Reading is tolerant: a last frame without its blank line also counts. `[DONE]` is ordinary data.
Law: each byte is read once, and the frames do not depend on the cuts between chunks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, Protocol, TypeAlias

import msgspec

from callboard.errors import ProviderError

Payload: TypeAlias = tuple[bytes, bytes]
"""An event to be sent: its name, b"" for none, and its data. A plain tuple, for one is made for each piece of a text."""

LIMIT = 16 * 1024 * 1024
"""The most bytes of one frame, by default."""

_LF, _CR = b"\n\r"
"""As numbers: these are found several times faster than bytes."""
_BOM = b"\xef\xbb\xbf"


class Frame(msgspec.Struct, frozen=True):
    """One event of a stream: its name, its data and the last identifier; each may be ""."""

    event: str
    data: str
    id: str


class SSEDecoder:
    """A Stage: bytes in, frames out. Raises ProviderError `too_large` for a frame of more than `limit` bytes."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._after_return = False
        self._first = True
        self._event = ""
        self._id = ""
        self._data: list[str] = []
        self._data_size = 0

    def feed(self, chunk: bytes, /) -> list[Frame]:
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if _CR in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        last = lines.pop()
        if self._tail and lines:
            self._hold(lines[0])
            lines[0] = b"".join(self._tail)
            self._tail = []
            self._tail_size = 0
        frames: list[Frame] = []
        for line in lines:
            if line or self._first:
                self._line(line, frames)
            else:
                self._dispatch(frames)
        if last:
            self._hold(last)
        return frames

    def finish(self, why: str = "stop", /) -> list[Frame]:
        """Return the frame that lacks only its blank line; none after a cut, because more may be missing."""
        frames: list[Frame] = []
        if why in {"stop", "length"}:
            self._line(b"".join(self._tail), frames)
            self._dispatch(frames)
        self._tail = []
        self._data = []
        return frames

    def _hold(self, piece: bytes) -> None:
        self._tail.append(piece)
        self._tail_size += len(piece)
        if self._tail_size > self._limit:
            self._refuse()

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(frames)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
            self._data_size += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        # Skip comments, `retry`, and fields that the standard does not have.
        if len(line) > self._limit or self._data_size > self._limit:
            self._refuse()

    def _dispatch(self, frames: list[Frame]) -> None:
        if data := self._data:
            frames.append(Frame(self._event, data[0] if len(data) == 1 else "\n".join(data), self._id))
            self._data = []
            self._data_size = 0
        self._event = ""

    def _refuse(self) -> NoReturn:
        raise ProviderError(
            f"a frame of the stream is larger than {self._limit} bytes",
            code="too_large",
            hint="raise the limit if the provider is trusted",
        )


class Framer(Protocol):
    """Makes the bytes of a stream of its payloads."""

    def encode(self, payloads: Iterable[Payload], /) -> bytes:
        """Return the bytes for these payloads, which may be written at once."""

    def finish(self, why: Any = "stop", /) -> list[bytes]:
        """Return the last bytes to send."""


class SSEEncoder:
    """A Framer, and a Stage: payloads in, frames out."""

    def encode(self, payloads: Iterable[Payload], /) -> bytes:
        frames: list[bytes] = []
        for payload in payloads:
            event, data = payload
            if _LF in data or _CR in data:
                frames.append(encode_frame(data, event))
            else:  # `encode_frame` for data in one line, written out: it runs for each piece of a text
                frames.append(b"event: %b\ndata: %b\n\n" % payload if event else b"data: " + data + b"\n\n")
        return b"".join(frames)

    def feed(self, payload: Payload, /) -> list[bytes]:
        return [self.encode((payload,))]

    def finish(self, why: Any = "stop", /) -> list[bytes]:
        return []


def encode_frame(data: bytes, event: bytes = b"") -> bytes:
    """One frame with its blank line."""
    if _LF in data or _CR in data:
        data = b"\ndata: ".join(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    return b"event: " + event + b"\ndata: " + data + b"\n\n" if event else b"data: " + data + b"\n\n"

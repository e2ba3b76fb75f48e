"""What is kept of a stream that may be without end.

Law: memory is bounded by the limit, whatever comes; each byte is copied a bounded number of times.
"""

from __future__ import annotations


class BoundedOutput:
    """The beginning and the end of what was fed, together at most `limit` bytes; `total` counts all of them."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._beginning = bytearray()
        self._end = bytearray()
        self._first = limit - limit // 2
        self._last = limit // 2

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._first - len(self._beginning)
        self._beginning += data[:room]
        self._end += data[room:]
        # Only when as much again has come, so that the cost is spread.
        if len(self._end) > 2 * self._last:
            del self._end[: len(self._end) - self._last]

    def value(self) -> bytes:
        """What was fed; if it was more than the limit, with a line in the middle that says how much is missing."""
        end = self._end[max(0, len(self._end) - self._last) :]
        missing = self.total - len(self._beginning) - len(end)
        line = b"\n[%d bytes are missing here]\n" % missing if missing else b""
        return bytes(self._beginning + line + end)

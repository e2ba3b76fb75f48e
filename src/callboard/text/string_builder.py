"""A text that grows, kept as bytes: an object for each piece would take many times the memory.

Law: adding a piece takes time linear in the piece; building takes time linear in the text.
"""

from __future__ import annotations


class StringBuilder:
    """Appended to, and joined when it is whole; true once there is something. Half a surrogate pair is kept too."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append(self, text: str) -> None:
        self._bytes += text.encode("utf-8", "surrogatepass")

    def build(self, begin: int = 0) -> str:
        """Return the text from `begin` on, which is an earlier length."""
        return (self._bytes[begin:] if begin else self._bytes).decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        """Return the length in bytes."""
        return len(self._bytes)

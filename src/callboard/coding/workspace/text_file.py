"""Decode files to text and encode them again: encodings, byte order marks, line endings.

Law: a file that is decoded and encoded is the same, byte for byte; an edit changes only the bytes of its lines.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import msgspec

from callboard.coding.edits.result import Change

MAX_BYTES: Final = 10 * 1024 * 1024
"""Bytes of a file that is read as text."""

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NO_TEXT: Final = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f]")
"""Characters that a text in an unknown encoding doesn't have: controls but for white space, backspace and escape."""


class NotText(ValueError):
    """A binary file, or a text that the file's encoding cannot express."""


class TextFile(msgspec.Struct, frozen=True):
    """A text, and what the bytes of its file need besides."""

    text: str
    """With LF alone."""
    encoding: str = "utf-8"
    bom: bytes = b""
    endings: tuple[str, ...] = ()
    """The line endings in the file, in order; empty if all are LF."""

    def encode(self) -> bytes:
        """Encode the file. Raises NotText for a character that the encoding does not have."""
        text = self.text
        if self.endings:
            lines = text.split("\n")
            text = "".join([part for pair in zip(lines, self.endings, strict=False) for part in pair] + lines[-1:])
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise NotText(
                f"the file is in {self.encoding}, which has no {character!r} (U+{ord(character):04X}); write it another way"
            ) from None

    def apply(self, change: Change) -> TextFile:
        """Apply a change: unchanged lines keep their endings, new ones get the file's usual one."""
        if not self.endings:
            return msgspec.structs.replace(self, text=change.text)
        usual = max(("\n", "\r\n"), key=self.endings.count)
        endings: list[str] = []
        done = 0
        for start, removed, added in change.spans:
            endings += self.endings[done : start - 1]
            own = self.endings[start - 1 : start - 1 + removed][:added]
            endings += [*own, *[usual] * (added - len(own))]
            done = start - 1 + removed
        endings += self.endings[done:]
        count = change.text.count("\n")
        # A last line without an end can have got one.
        endings += [usual] * (count - len(endings))
        return msgspec.structs.replace(self, text=change.text, endings=tuple(endings[:count]))


def decode(data: bytes) -> TextFile:
    """Decode a file: UTF-8, UTF-16 with a byte order mark, else Latin-1. Raises NotText for a binary one."""
    if len(data) > MAX_BYTES:
        raise NotText(f"the file has more than {MAX_BYTES} bytes")
    bom, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    try:
        text = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError:
        text, encoding, bom = data.decode("latin-1"), "latin-1", b""
        if _NO_TEXT.search(text):
            raise NotText("it is a binary file, not text") from None
    if "\0" in text:
        raise NotText("it is a binary file, not text")
    if "\r\n" not in text:
        return TextFile(text, encoding, bom)
    parts = text.split("\n")
    endings = tuple(["\r\n" if part.endswith("\r") else "\n" for part in parts[:-1]])
    return TextFile(normalize_newlines(text), encoding, bom, endings)


def normalize_newlines(text: str) -> str:
    """Replace CRLF by LF."""
    return text.replace("\r\n", "\n")

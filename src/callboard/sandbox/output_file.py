"""The end of a command's output in a file while the command runs, for whoever finds it after a crash of this process.

Law: the file never has more than twice `MAX_BYTES`, and a disk that is full ends the writing, not the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 16 * 1024
"""Of the end of the output that are in the file at least."""


class OutputFile:
    """A file that is made anew for each command; of None nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._size = 0
        self._file = -1
        if path is not None:
            self._do(lambda: self._open(path))

    def feed(self, data: bytes) -> None:
        """Write what the command has printed."""
        if self._file >= 0:
            self._do(lambda: self._write(data[-2 * MAX_BYTES :]))

    def close(self, *, keep: bool) -> None:
        """Close the file. It stays where nobody learns the outcome of the command."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._path is not None and not keep:
            self._path.unlink(missing_ok=True)

    def _open(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _write(self, data: bytes) -> None:
        if self._size + len(data) > 2 * MAX_BYTES:
            data = (os.pread(self._file, MAX_BYTES, max(0, self._size - MAX_BYTES)) + data)[-MAX_BYTES:]
            self._size = 0
            os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, self._size)
        self._size += len(data)

    def _do(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError:
            self.close(keep=True)


def read_end(path: Path, longest: int) -> str | None:
    """The last lines of the output of a command that was under way, None where there was none."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    if len(text) <= longest:
        return text
    end = text[-longest:]
    return f"...\n{end.partition(chr(10))[2] or end}"

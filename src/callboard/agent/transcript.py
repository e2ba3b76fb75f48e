"""A conversation as a JSONL file: a canister a line, and lines that say where the conversation was rolled back.

Law: what was appended is on disk when `append` returns, and no line of the file is ever changed; what is taken
away is only the beginning of a line that could not be written whole.
"""

from __future__ import annotations

import os
from pathlib import Path

from callboard.core import Canister, RolledBack, decode_canister, decode_event, encode_line

_ROLLED_BACK = b'{"type":"rolled_back"'
_BLOCK = 4096


class Transcript:
    """A Store; the file and its folder are made at the first canister, for their owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, item: Canister | RolledBack, /) -> None:
        """Raises OSError, with the file as it was, if it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            end = _end_of_lines(file, size)
            if end < size:
                os.ftruncate(file, end)
            try:
                rest = memoryview(encode_line(item) + b"\n")
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, end)
                raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            os.close(file)

    def read(self) -> list[Canister]:
        """The canisters of the conversation as it goes on: what was rolled back is not among them.

        A last line that was cut is left out. Raises CallerError that names the line that is no canister.
        """
        canisters: list[Canister] = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n")[:-1], 1):
            if not line.strip():
                continue
            place = f"{self.path}:{number}"
            if line.startswith(_ROLLED_BACK):
                event = decode_event(line, path=place)
                del canisters[event.to if isinstance(event, RolledBack) else len(canisters) :]
            else:
                canisters.append(decode_canister(line, path=place))
        return canisters


def _end_of_lines(file: int, end: int) -> int:
    """Where the last whole line ends: a process may have died in the middle of the next."""
    while end:
        begin = max(0, end - _BLOCK)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0

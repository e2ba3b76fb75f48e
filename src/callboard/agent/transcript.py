"""A conversation in a file.

Owns one JSONL file, a canister a line. Knows nothing of runs.
Law: what was appended is on disk when `append` returns, and nothing of the file is ever changed.
"""

from __future__ import annotations

import os
from pathlib import Path

from callboard.core import Canister, decode_canister, encode_line


class Transcript:
    """A Store; the file and its folder are made at the first canister, for their owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, canister: Canister, /) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
            file.write(encode_line(canister) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Canister]:
        """The canisters. Raises CallerError that names the line that is none; a last line that is cut is left out."""
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [
            decode_canister(line, path=f"{self.path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
        ]

"""A file that is still coming, and the hash of its bytes.

Law: bytes are only appended, and the hash is always that of all of them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

_BLOCK = 1 << 20


class Partial:
    """The partial file at `path`, begun if there is none. Opening it hashes what it holds."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        self._hash = hashlib.sha256()
        self.size = 0
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            self._count(block)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, block: bytes) -> None:
        """Raises OSError if the disk is full; what was written until then is kept."""
        rest = memoryview(block)
        while rest:
            written = self._file.write(rest) or 0
            self._count(rest[:written])
            rest = rest[written:]

    def begin_again(self) -> None:
        """Forget what has come."""
        self._file.truncate(0)
        self._hash = hashlib.sha256()
        self.size = 0

    def sync(self) -> None:
        """Put all of it on the disk."""
        os.fsync(self._file.fileno())

    def sha256(self) -> str:
        return self._hash.hexdigest()

    def _count(self, block: bytes | memoryview) -> None:
        self._hash.update(block)
        self.size += len(block)

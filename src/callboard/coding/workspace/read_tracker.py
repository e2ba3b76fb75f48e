"""Remember which lines of which files the model has seen, and whether they changed since.

Law: a line whose number changed since it was shown was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Literal, TypeAlias

ReadStatus: TypeAlias = Literal["seen", "changed", "unseen"]


class ReadTracker:
    """Hashes of the lines that were shown, by the files' canonical paths.

    Only hashes are kept, of Python's own, which nobody outside of the process can choose.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[int, int]] = {}
        self._lock = Lock()

    def record(self, path: str, start: int, lines: Sequence[str]) -> None:
        """Record lines that were shown; the first has the number `start`, from 1."""
        with self._lock:
            self._files.setdefault(path, {}).update(enumerate(map(hash, lines), start))

    def compare(self, path: str, start: int, lines: Sequence[str]) -> ReadStatus:
        """Compare lines with those that were shown under their numbers; `unseen` if any was never shown."""
        with self._lock:
            known = self._files.get(path, {})
            hashes = [known.get(number) for number in range(start, start + len(lines))]
        if None in hashes:
            return "unseen"
        return "seen" if hashes == [*map(hash, lines)] else "changed"

    def copy(self) -> ReadTracker:
        """An independent copy."""
        copied = ReadTracker()
        with self._lock:
            copied._files = {path: {**lines} for path, lines in self._files.items()}
        return copied

    def forget(self, path: str, start: int = 1) -> None:
        """Forget the lines from `start` on: they have other numbers now, or are gone."""
        with self._lock:
            known = self._files.get(path, {})
            self._files[path] = {number: line for number, line in known.items() if number < start}

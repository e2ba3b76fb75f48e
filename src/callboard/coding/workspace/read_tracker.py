"""Remember which lines of which files the model has seen, and whether they changed since.

Law: a line whose number changed since it was shown was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Literal, TypeAlias

Sight: TypeAlias = Literal["seen", "changed", "unseen"]


class ReadTracker:
    """The lines of files that were shown, by the files' canonical paths. Takes memory for what was shown, no more.

    Only hashes are kept, of Python's own, which nobody outside of the process can choose.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[int, int]] = {}
        self._lock = Lock()

    def record(self, path: str, start: int, lines: Sequence[str]) -> None:
        """These lines were shown; the first has the number `start`, from 1."""
        with self._lock:
            self._files.setdefault(path, {}).update(enumerate(map(hash, lines), start))

    def compare(self, path: str, start: int, lines: Sequence[str]) -> Sight:
        """Whether these lines are what was shown under their numbers; `unseen` if any was never shown."""
        with self._lock:
            known = self._files.get(path, {})
            hashes = [known.get(number) for number in range(start, start + len(lines))]
        if None in hashes:
            return "unseen"
        return "seen" if hashes == [*map(hash, lines)] else "changed"

    def copy(self) -> ReadTracker:
        """What was shown so far; what is shown to one of them later is not known to the other."""
        copied = ReadTracker()
        with self._lock:
            copied._files = {path: {**lines} for path, lines in self._files.items()}
        return copied

    def forget(self, path: str, start: int = 1) -> None:
        """What was shown from line `start` on has another number now, or is gone."""
        with self._lock:
            known = self._files.get(path, {})
            self._files[path] = {number: line for number, line in known.items() if number < start}

"""A directory that tells what is written in it, with what was there before.

Law: what is told is what was done: a write that fails is not told, and what cannot be read counts as absent.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection

from callboard.coding.chat.dry_run import ChangedFile, read_before
from callboard.storage.confined_directory import ConfinedDirectory


class ObservedDirectory(ConfinedDirectory):
    """A ConfinedDirectory; `on_change` is called behind each write and deletion, in the thread that did it."""

    def __init__(self, root: str, read_only: Collection[str], on_change: Callable[[ChangedFile], None]) -> None:
        super().__init__(root, read_only)
        self._on_change = on_change

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        before = read_before(self, path)
        super().write(path, data, mode)
        self._on_change(ChangedFile(self.canonical(path), before, data))

    def delete(self, path: str) -> None:
        before = read_before(self, path)
        with self._resolve(path, change=True, follow=False) as entry:
            name = entry.path
            if stat.S_ISLNK(os.stat(entry.name, dir_fd=entry.parent, follow_symlinks=False).st_mode):
                before = None  # the link goes, and what it leads to stays
        super().delete(path)
        self._on_change(ChangedFile(name, before, None))

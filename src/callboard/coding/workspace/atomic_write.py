"""Write several files as one change.

Law: all of them are written, or none: if one fails, those before it are restored.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from callboard.storage.confined_directory import ConfinedDirectory


class FileChange(msgspec.Struct, frozen=True):
    """A file's content before and after, None where there is no file, and its permissions."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


def write_files(files: ConfinedDirectory, changes: Sequence[FileChange]) -> None:
    """Write and delete files. Raises the first error; its notes name the files that could not be restored."""
    done: list[FileChange] = []
    try:
        for change in changes:
            _write_or_delete(files, change, change.after)
            done.append(change)
    except BaseException as error:
        for change in reversed(done):
            try:
                _write_or_delete(files, change, change.before)
            except OSError as further:
                error.add_note(f"{change.path} could not be put back: {further}")
        raise


def _write_or_delete(files: ConfinedDirectory, change: FileChange, data: bytes | None) -> None:
    if data is None:
        files.delete(change.path)
    else:
        files.write(change.path, data, change.mode)

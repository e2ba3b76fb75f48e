"""Write several files as one change.

Law: all of them are written, or none: if one fails, those before it are restored.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from callboard.storage.confined_directory import ConfinedDirectory


class FileChange(msgspec.Struct, frozen=True):
    """What a file was and what it is to be; None is no file. `mode` are its permissions, if it has or shall have any."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


def write_files(files: ConfinedDirectory, changes: Sequence[FileChange]) -> None:
    """Writes and deletes. Raises what the first that fails raises; what could not be put back is in its notes."""
    done: list[FileChange] = []
    try:
        for change in changes:
            _put(files, change, change.after)
            done.append(change)
    except BaseException as error:
        for change in reversed(done):
            try:
                _put(files, change, change.before)
            except OSError as further:
                error.add_note(f"{change.path} could not be put back: {further}")
        raise


def _put(files: ConfinedDirectory, change: FileChange, data: bytes | None) -> None:
    if data is None:
        files.delete(change.path)
    else:
        files.write(change.path, data, change.mode)

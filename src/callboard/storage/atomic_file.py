"""Private files that are written whole or not at all, and the version of their format."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

VERSION: Final = 1
"""Version of the formats of our files. A change that an older Callboard cannot read increases it."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a JSON file, with the version of its format. A newer version is not decoded."""

    version: int = VERSION

    def __post_init__(self) -> None:
        check_version(self.version)


def check_version(version: int) -> None:
    """Raises ValueError for a version that a newer Callboard wrote."""
    if version > VERSION:
        raise ValueError(f"its format has version {version}, and this Callboard reads version {VERSION}: update it")


def write_private(path: Path, data: bytes) -> None:
    """Replace a file's content atomically: a reader sees the old or the new, also after a crash.

    The file and its missing folders can be read by their owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name[:64]}-{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor, which no Path opens
            file.write(data)
            file.flush()
            os.fsync(file)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise

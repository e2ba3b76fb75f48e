"""What is remembered of servers between processes.

Owns where it is kept, and how a file is written: for its owner alone, whole or not at all. Knows nothing of what
is in it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from callboard.errors import CallerError

LONGEST = 200
"""Bytes of a name in a file's; the file systems take 255."""


def state_directory() -> Path:
    """`${XDG_STATE_HOME:-~/.local/state}/callboard/mcp`. A relative one is ignored, as its specification says."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "callboard" / "mcp"


def file_name(name: str) -> str:
    """A server's name as a file's, without its suffix. Raises CallerError if it is too long for one."""
    quoted = quote(name, safe=" ")
    if not quoted or len(quoted) > LONGEST:
        raise CallerError("a server's name has 1 to some 60 characters", path=name[:64])
    return quoted


def write_private(path: Path, data: bytes) -> None:
    """Puts the data in place of what was in the file; whoever reads sees the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name[:64]}-{secrets.token_hex(8)}")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(file, "wb") as written:  # noqa: PTH123  # a descriptor, which no Path opens
            written.write(data)
            written.flush()
            os.fsync(file)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise

"""The files in which state of a server is kept: one for a name and a program or URL.

Two projects may each have a server `db`, and a name may be given to another program later: a pin or a remembered
protocol of one must not count for the other.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from callboard.errors import CallerError
from callboard.mcp.settings import ServerSettings

_DIGITS: Final = 12
_LONGEST: Final = 200
"""Bytes that a server's name may take in a file's name; file systems allow 255."""


def identity_hash(settings: ServerSettings) -> str:
    """A hash of the server's URL, or of its command and working directory.

    A word of the command that is a file counts with its whole path: `python server.py` is another program in another
    directory, and `npx -y @scope/server` is the same everywhere.
    """
    directory = Path(settings.directory or ".").absolute()
    words = [str(directory / word) if _is_file(directory / word) else word for word in settings.command]
    facts = [settings.url] if settings.transport == "http" else [str(directory) if settings.directory else "", *words]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGITS]


def file_name(name: str) -> str:
    """Encode a server's name for a file's name, without suffix. Raises CallerError if it is too long."""
    quoted = quote(name, safe=" ")
    if not quoted or len(quoted) > _LONGEST:
        raise CallerError("a server's name has 1 to some 60 characters", path=name[:64])
    return quoted


def state_file(directory: Path, settings: ServerSettings) -> Path:
    """The file of this server in a directory. Raises CallerError for a name that is too long for one."""
    return directory / f"{file_name(settings.name)}~{identity_hash(settings)}.json"


def find_state_files(directory: Path, name: str) -> list[Path]:
    """The files of all servers that have or had this name."""
    return [*directory.glob(f"{file_name(name)}~{'?' * _DIGITS}.json")]


def server_name(path: Path) -> str:
    """The name of the server that a state file belongs to."""
    return unquote(path.stem.rpartition("~")[0] or path.stem)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # an argument that is no path, such as Python code
        return False

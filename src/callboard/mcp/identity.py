"""Which server it is that answers under a name.

Two projects may each have a server `db`, and a name may be given to another program later: what is remembered of a
server is remembered for its name and for what is started or asked.
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
"""Bytes of a name in a file's; the file systems take 255."""


def identity_of(settings: ServerSettings) -> str:
    """A hash of the server's URL, or of its command and of where that is started.

    A word of the command that is a file counts with its whole path: `python server.py` is another program in another
    directory, and `npx -y @scope/server` is the same everywhere.
    """
    directory = Path(settings.directory or ".").absolute()
    words = [str(directory / word) if _is_file(directory / word) else word for word in settings.command]
    facts = [settings.url] if settings.transport == "http" else [str(directory) if settings.directory else "", *words]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGITS]


def file_name(name: str) -> str:
    """A server's name as a file's, without its suffix. Raises CallerError if it is too long for one."""
    quoted = quote(name, safe=" ")
    if not quoted or len(quoted) > _LONGEST:
        raise CallerError("a server's name has 1 to some 60 characters", path=name[:64])
    return quoted


def state_file(directory: Path, settings: ServerSettings) -> Path:
    """The file of this server in a directory. Raises CallerError for a name that is too long for one."""
    return directory / f"{file_name(settings.name)}~{identity_of(settings)}.json"


def files_of(directory: Path, name: str) -> list[Path]:
    """The files of all servers that have or had this name."""
    return [*directory.glob(f"{file_name(name)}~{'?' * _DIGITS}.json")]


def name_of(path: Path) -> str:
    """The name of the server whose file it is."""
    return unquote(path.stem.rpartition("~")[0] or path.stem)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no path at all, as a program in an argument
        return False

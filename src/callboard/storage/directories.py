"""The directories of Callboard's own files on this machine.

On Linux the XDG variables count, and a relative path is ignored, as the XDG Base Directory Specification 0.8 says.
`configuration.settings` finds the directory of settings, which depends on a given environment, not on this process.
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import PlatformDirs

_DIRECTORIES = PlatformDirs("callboard", appauthor=False)


def data_directory() -> Path:
    """Models, conversations and jobs; on Linux `${XDG_DATA_HOME:-~/.local/share}/callboard`."""
    return _DIRECTORIES.user_data_path


def state_directory() -> Path:
    """Return the directory of expendable state; on Linux `${XDG_STATE_HOME:-~/.local/state}/callboard`."""
    return _DIRECTORIES.user_state_path

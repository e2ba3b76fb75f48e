"""Where Callboard keeps its own files on this machine.

On Linux the XDG variables count, and a relative one is ignored, as the XDG Base Directory Specification 0.8 says. The
directory of settings is not here: `configuration.settings` finds it for a given environment, not for this process.
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import PlatformDirs

_DIRECTORIES = PlatformDirs("callboard", appauthor=False)


def data_directory() -> Path:
    """Models, conversations and jobs; on Linux `${XDG_DATA_HOME:-~/.local/share}/callboard`."""
    return _DIRECTORIES.user_data_path


def state_directory() -> Path:
    """What is remembered between processes and may be lost; on Linux `${XDG_STATE_HOME:-~/.local/state}/callboard`."""
    return _DIRECTORIES.user_state_path

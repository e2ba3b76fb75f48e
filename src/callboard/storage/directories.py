"""Where Callboard keeps its own files on this machine.

A relative XDG variable is ignored, as the XDG Base Directory Specification 0.8 says. The directory of settings is not
here: `configuration.settings` finds it for a given environment, not for this process alone.
"""

from __future__ import annotations

import os
from pathlib import Path


def data_directory() -> Path:
    """Models, conversations and jobs: `${XDG_DATA_HOME:-~/.local/share}/callboard`."""
    return _absolute("XDG_DATA_HOME", ".local/share")


def state_directory() -> Path:
    """What is remembered between processes and may be lost: `${XDG_STATE_HOME:-~/.local/state}/callboard`."""
    return _absolute("XDG_STATE_HOME", ".local/state")


def _absolute(variable: str, default: str) -> Path:
    directory = Path(os.environ.get(variable, ""))
    return (directory if directory.is_absolute() else Path.home() / default) / "callboard"

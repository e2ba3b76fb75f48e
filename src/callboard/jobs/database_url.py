"""Which database the durable jobs are in, without what opens one.

A command that only asks whether there are jobs imports this, and not SQLAlchemy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from callboard.storage.directories import state_directory

VARIABLE: Final = "CALLBOARD_DATABASE_URL"
"""The environment variable that names another one."""
HINT: Final = f"set {VARIABLE} to sqlite:////PATH/jobs.db or postgresql://USER:PASSWORD@HOST/NAME"


def database_url() -> str:
    """The one that the environment names, else the file of this user and machine."""
    return os.environ.get(VARIABLE, "") or f"sqlite:///{_default_file()}"


def may_have_jobs() -> bool:
    """Whether the environment names a database, or the user's file is there."""
    return bool(os.environ.get(VARIABLE)) or _default_file().is_file()


def _default_file() -> Path:
    return state_directory() / "jobs" / "jobs.db"

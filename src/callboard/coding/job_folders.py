"""The folders of jobs: each holds the job's tree, results too long for the model, and the lock of the running process.

The events of a job are in the database.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from callboard.errors import CallerError
from callboard.storage.directories import data_directory

OLD_RECORD: Final = "a record of version 1 (a folder with job.json)"
"""Name of a job record from before jobs were in the database."""
_NAME: Final = re.compile(r"\w[\w-]*")
"""Also of rows of a database that others write."""
_LOCK = "job.lock"


def jobs_directory() -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/callboard/jobs`."""
    return data_directory() / "jobs"


def list_old_records() -> list[str]:
    """Return the names of jobs recorded by an earlier version, which this version cannot read."""
    return sorted([path.parent.name for path in jobs_directory().glob("*/job.json")], reverse=True)


class JobFolders:
    """The folders in a directory, by default the user's."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or jobs_directory()

    def folder(self, identifier: str) -> Path:
        """Return the folder of a job. Raises CallerError for a name that would lead elsewhere."""
        if not _NAME.fullmatch(identifier):
            raise CallerError("no name of a job", path=identifier, hint="callboard jobs list --all shows them")
        return self.directory / identifier

    def make(self, identifier: str) -> Path:
        """Make the folder of a job if it is missing, and return it."""
        folder = self.folder(identifier)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def remove(self, identifier: str) -> None:
        """Delete the folder of a job, if there is one."""
        shutil.rmtree(self.folder(identifier), ignore_errors=True)

    @contextmanager
    def running(self, identifier: str) -> Iterator[None]:
        """Hold the lock of a job: this process works in its folder. Raises CallerError if another process does."""
        try:
            import fcntl  # noqa: PLC0415  # not on Windows
        except ImportError:
            hint = "coding agents, chats and jobs work on Linux and macOS; on Windows, use WSL"
            raise CallerError("this system has no file locks that end with a process (fcntl)", hint=hint) from None
        file = os.open(self.folder(identifier) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CallerError("the job is running already", path=identifier) from None
            yield
        finally:
            os.close(file)

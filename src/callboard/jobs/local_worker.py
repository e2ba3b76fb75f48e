"""Start a detached `callboard worker --until-idle` for jobs that need this host, unless one runs on its SQLite file.

Law: a job that is queued while such a worker ends gets another one. The worker holds a lock of a file until its process
has ended, so whoever queued a job waits until the job was claimed or the lock is free.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from sqlalchemy import select

from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.tables import clock, segments

IDLE_SECONDS: Final = 60
"""Seconds that the worker waits for another job."""
CODING: Final = "coding"
"""The name of the worker for coding jobs."""
_ENDING_SECONDS: Final = 2.0
"""Seconds that an idle worker takes to end."""


def start_worker(database: Database, queue: str, *, name: str = CODING, directory: str = "/") -> Path | None:
    """Start a process that runs the jobs of a queue and ends when it is idle, unless one of its name runs.

    Args:
        database: The jobs'. One that other machines share has workers of its own.
        queue: The queue that the worker serves.
        name: The name of the worker, for its files.
        directory: The directory that it works in. None of its files may replace a module.

    Returns:
        The file that the worker writes to, None if none was started.

    Raises:
        CallerError: The directory is gone.
    """
    file = database.engine.url.database
    if not database.is_sqlite or file is None:
        return None
    path = Path(f"{file}-{name}-worker.log")
    lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    command = ["worker", "--queue", queue, "--until-idle", str(IDLE_SECONDS)]
    try:
        if not _take_lock(lock, database, queue):
            return None
        worker = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-P", "-m", "callboard", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            start_new_session=True,
            pass_fds=[lock],
        )
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(worker.pid).encode(), 0)
    except FileNotFoundError as error:
        raise CallerError("the directory of the job is gone", path=directory) from error
    finally:
        os.close(log)
        os.close(lock)
    return path


def _take_lock(lock: int, database: Database, queue: str) -> bool:
    """Lock the file of the worker. Return whether nobody has the lock and a job waits for a worker."""
    its = segments.c
    due = its.executor.is_(None) & (its.due_at <= clock(database.engine.dialect.name))
    query = select(its.job).where(its.queue == queue, due).limit(1)
    end = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_claimed = database.read_blocking(lambda connection: connection.scalar(query)) is None
            if is_claimed or time.monotonic() > end:
                return False
            time.sleep(0.05)
        else:
            return True

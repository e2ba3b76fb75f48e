"""A worker that is started by itself: for jobs that need this host, where no such worker runs on its SQLite file.

Law: a job that is queued while the lock of the worker is held is run by it, for the worker looks once more behind
releasing it; one that is queued later finds the lock free, and starts another worker.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from callboard.errors import CallerError
from callboard.jobs.database import Database
from callboard.jobs.engine import Engine
from callboard.jobs.kinds import JobKind
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.store import DurableStore
from callboard.jobs.user_settings import load_job_settings, model_limits, open_services, queue_settings
from callboard.jobs.worker import Worker

IDLE_SECONDS: Final = 60.0
"""That the worker waits for another job."""
CODING: Final = "coding"
"""The name of the worker for coding jobs."""
_LAST_LOOK: Final = 0.5
"""Seconds that it looks once more, behind releasing its lock."""


def start_worker(
    database: Database, command: Sequence[str], *, name: str = CODING, directory: str = "/"
) -> Path | None:
    """Start a process that runs jobs of this host and ends when it is idle, unless one of its name runs.

    Args:
        database: The jobs'; one that other machines share has workers of its own.
        command: What `run_worker` runs in.
        name: That of the worker.
        directory: The one that it works in.

    Returns:
        The file that the worker writes to, None where none was started.

    Raises:
        CallerError: The directory is gone.
    """
    file = _lock_file(database, name)
    if file is None:
        return None
    log = file.with_suffix(".log")
    with _lock(file) as is_free:
        if not is_free:
            return None
    output = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CallerError("the directory of the job is gone", path=directory) from error
    finally:
        os.close(output)
    return log


async def run_worker(
    make_kinds: Callable[[DurableStore], Iterable[JobKind]],
    queue: str,
    name: str = CODING,
    *,
    idle_seconds: float = IDLE_SECONDS,
) -> None:
    """Run the jobs of a queue of this host until there were none for a while, unless another process does already.

    Args:
        make_kinds: Gives what it can run.
        queue: Whose jobs it runs.
        name: That of the worker.
        idle_seconds: How long it waits for another job.

    Raises:
        CallerError: The database is none.
        DatabaseUnavailable: It cannot be reached.
    """
    database = await asyncio.to_thread(Database.open)
    try:
        file = _lock_file(database, name)
        if file is None:
            return
        with _lock(file) as is_free:
            if not is_free:
                return
            engine = Engine(database)
            store = DurableStore(database, engine.enqueue)
            settings = load_job_settings()
            runner = SegmentRunner(store, make_kinds(store), limits=model_limits(settings, database))
            queues = queue_settings(settings, [queue])
            async with (
                open_services(store, settings, queues, partial(print, file=sys.stderr, flush=True)),
                Worker(engine, store, runner, queues=queues) as worker,
            ):
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGTERM, worker.stop)
                await worker.run(idle_seconds)
                is_free.release()
                await worker.run(_LAST_LOOK)
    finally:
        await asyncio.to_thread(database.close)


class _Lock:
    """A lock of a file, which holds the number of the process, while it is held; false where another process holds it."""

    def __init__(self, file: int) -> None:
        self._file = file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_held = True
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            self._is_held = False

    def __bool__(self) -> bool:
        return self._is_held

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._is_held = False


@contextmanager
def _lock(path: Path) -> Iterator[_Lock]:
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield _Lock(file)
    finally:
        os.close(file)


def _lock_file(database: Database, worker: str) -> Path | None:
    """The file that the worker locks; None for a database that is no file of this machine."""
    name = database.engine.url.database
    return Path(f"{name}-{worker}-worker.lock") if database.is_sqlite and name else None

"""The lease of a process: a thread renews the process's claims, and ends the process if it cannot.

A claim of a segment ends at a time of the database's clock. The thread extends it every few seconds. After that time,
another worker may claim the segment. So a process that lost the database ends, because its work could be done twice. A
process may also freeze, for example while it loads a model. It ends if another worker has one of its segments. Until
the process knows, the fence of a job prevents its writes.

The same thread listens for writes of other processes, which may have queued a segment.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

from callboard.jobs.database import Database
from callboard.jobs.tables import lease_renewal
from callboard.sandbox.process_tree import kill_descendants

LEASE_SECONDS: Final = 8.0
"""Seconds after which the segments of a silent process are taken over."""
CHANNEL: Final = "callboard_jobs"
"""PostgreSQL channel that notifies workers of queued segments."""
EXIT_STATUS: Final = 75
"""Exit status of a process that lost its lease: EX_TEMPFAIL. Start the process again."""
_WAIT_SECONDS: Final = 0.5
"""Maximum seconds of one wait for writes."""
_LOOK_SECONDS: Final = 0.1
"""Seconds between reads of SQLite's counter of writes, which is in shared memory."""

_SETTINGS: Final = {
    "connect_timeout": 4,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
    "application_name": "callboard lease",
}
"""Settings that detect a silent server within seconds."""


class _Line(Protocol):
    """A separate connection for the lease, so that other work of the process cannot delay it."""

    def wait(self) -> bool:
        """Wait for a moment. Return whether something was written meanwhile."""

    def renew(self) -> set[tuple[str, int]]:
        """Extend the lease of all segments of the executor. Return these segments."""

    def close(self) -> None: ...


class Lease:
    """The lease of one executor and the thread that renews it.

    Args:
        database: The database of the jobs.
        executor: Id of this process for claims.
        on_write: Called in the thread after each write, and once a second.
        read_running: Returns the segments that run in this process.
        on_loss: Called in the thread, with the reason, if the lease is lost. By default the process ends.
    """

    def __init__(
        self,
        database: Database,
        executor: str,
        on_write: Callable[[], None],
        read_running: Callable[[], set[tuple[str, int]]],
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self._read_running = read_running
        self._database = database
        self._executor = executor
        self._on_write = on_write
        self._on_loss = on_loss or end_process
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="callboard-lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. The segments stay claimed until the lease ends or they are handed back."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        line: _Line | None = None
        renewed = looked = time.monotonic()
        why, running = "", set[tuple[str, int]]()
        while not self._closing.is_set():
            now = time.monotonic()
            if now - renewed > LEASE_SECONDS:
                if why or line is None or not self._is_still_ours(line, running):
                    self._on_loss(f"{why or 'it stood still'} for {now - renewed:.0f} s")
                    break
                renewed = now
            try:
                self._database.check_health()
                if line is None:
                    line = _open_line(self._database, self._executor)
                if now - renewed > LEASE_SECONDS / 4:
                    line.renew()
                    renewed, why = now, ""
                running = self._read_running()
                wrote = line.wait()
            except Exception as error:  # noqa: BLE001  # the database is away; it is tried again until the time has passed
                why = f"{str(error).strip().partition(chr(10))[0]}; the database was away"
                if line is not None:
                    with suppress(Exception):
                        line.close()
                line = None
                self._closing.wait(_WAIT_SECONDS)
                continue
            if wrote or now - looked >= 1:  # a delay may have passed, without a write
                looked = now
                self._on_write()
        if line is not None:
            with suppress(Exception):
                line.close()

    def _is_still_ours(self, line: _Line, running: set[tuple[str, int]]) -> bool:
        """Renew an expired lease. Return False if another process may have one of the segments that were running."""
        with suppress(Exception):  # the database is away
            return running | self._read_running() <= line.renew()
        return False


def _open_line(database: Database, executor: str) -> _Line:
    renewal = lease_renewal(database.engine.dialect, executor, LEASE_SECONDS)
    return _FileLine(database, renewal) if database.is_sqlite else _SessionLine(database, renewal)


class _FileLine:
    def __init__(self, database: Database, renewal: str) -> None:
        self._renewal = renewal
        self._connection = sqlite3.connect(
            f"file:{database.place}?mode=rw", uri=True, timeout=LEASE_SECONDS / 4, isolation_level=None
        )
        self._version = self._read_version()

    def wait(self) -> bool:
        end = time.monotonic() + min(_WAIT_SECONDS, LEASE_SECONDS / 8)
        while (version := self._read_version()) == self._version and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        before, self._version = self._version, version
        return bool(before != version)

    def renew(self) -> set[tuple[str, int]]:
        return {(job, segment) for job, segment in self._connection.execute(self._renewal)}

    def close(self) -> None:
        self._connection.close()

    def _read_version(self) -> Any:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]


class _SessionLine:
    def __init__(self, database: Database, renewal: str) -> None:
        from psycopg import connect  # noqa: PLC0415  # not for SQLite

        _, arguments = database.engine.dialect.create_connect_args(database.engine.url)
        self._connection = connect(**{**arguments, **_SETTINGS}, autocommit=True)
        self._renewal = renewal
        self._connection.execute(f"LISTEN {CHANNEL}")

    def wait(self) -> bool:
        return bool(list(self._connection.notifies(timeout=min(_WAIT_SECONDS, LEASE_SECONDS / 8), stop_after=1)))

    def renew(self) -> set[tuple[str, int]]:
        return {(job, segment) for job, segment in self._connection.execute(self._renewal)}

    def close(self) -> None:
        self._connection.close()


def end_process(why: str) -> NoReturn:
    """End this process and the tools' processes without cleanup, because others may have the jobs by now."""
    with suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"callboard: lost its lease: {why}\n".encode())
    with suppress(OSError):
        kill_descendants()
    os._exit(EXIT_STATUS)

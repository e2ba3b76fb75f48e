"""The database of durable jobs: one SQLAlchemy engine, and transactions in threads that outlive a lost connection.

Laws: a database of SQLite is readable by its owner alone from its first byte on; a transaction that was lost with its
connection is run again for at most 60 seconds in all; what a user reads of a failure is one sentence without a password.

The engine is DBOS's as well, so its connections are set up as DBOS sets them up: SQLite's transactions begin with the
first write, unless they are begun here.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from callboard.errors import CallboardError, CallerError
from callboard.extras import require_extra
from callboard.jobs.tables import create_tables
from callboard.storage.directories import state_directory

T = TypeVar("T")
Work = Callable[[Connection], T]
"""What is done in one transaction. It may run again after it was committed, so doing it twice must be as once."""

VARIABLE: Final = "CALLBOARD_DATABASE_URL"
PATIENCE: Final = 60.0
"""Seconds for which a transaction is tried again while the database cannot be reached."""
CONNECT_TIMEOUT: Final = 10
BUSY_TIMEOUT: Final = 30_000
"""Milliseconds that SQLite waits for another process's transaction; DBOS's own figure."""
PAUSES: Final = (0.02, 0.1, 0.5, 1.0)
"""Seconds before the next attempt; the last counts for all that follow."""
THREADS: Final = 4

_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_HINT: Final = f"set {VARIABLE} to sqlite:////PATH/jobs.db or postgresql://USER:PASSWORD@HOST/NAME"


class DatabaseUnavailable(CallboardError):
    """The database cannot be reached, read or written."""

    party = "database"


class Database:
    """The database; `open` makes one, and it is closed by `close` or as a context manager."""

    def __init__(self, engine: Engine, place: str) -> None:
        """Takes an engine that is set up; `place` is the database's name without a password."""
        self.engine = engine
        self.place = place
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._closing = threading.Event()
        # SQLite has one writer at a time: a queue is fairer than its sleeping lock.
        self._writers = ThreadPoolExecutor(1 if self.is_sqlite else THREADS, "callboard-jobs-write")
        self._readers = ThreadPoolExecutor(THREADS, "callboard-jobs-read") if self.is_sqlite else self._writers

    @classmethod
    def open(cls, url: str = "") -> Self:
        """Open the database and make or migrate its tables; it blocks, mostly for some milliseconds.

        Args:
            url: `sqlite:///FILE` or `postgresql://...`; by default CALLBOARD_DATABASE_URL, else SQLite in the user's
                state directory.

        Raises:
            CallerError: The URL is none, the extra `jobs` is missing, or the database is newer or another program's.
            DatabaseUnavailable: It cannot be reached or written.
        """
        require_extra("jobs")
        engine, place = _make_engine(url or os.environ.get(VARIABLE, "") or default_url())
        database = cls(engine, place)
        try:
            database.run_blocking(lambda connection: create_tables(connection, place), patience=0)
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Waits for transactions that have begun, gives up those that are tried again, and closes all connections."""
        self._closing.set()
        self._writers.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def run(self, work: Work[T]) -> T:
        """Run one transaction that writes, in a thread. On SQLite it holds the write lock from its beginning.

        Where the connection is lost, `work` runs again, also where it was committed unnoticed.

        Raises:
            DatabaseUnavailable: The database could not be reached for 60 seconds, or refuses to be written.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writers, self.run_blocking, work)

    async def read(self, work: Work[T]) -> T:
        """Run one transaction that only reads, in a thread: all of its statements see the same moment on SQLite."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_blocking, work)

    def run_blocking(self, work: Work[T], *, patience: float = PATIENCE) -> T:
        """As `run`, in this thread."""
        return self._attempt(work, "BEGIN IMMEDIATE", patience)

    def _read_blocking(self, work: Work[T]) -> T:
        return self._attempt(work, "BEGIN", PATIENCE)

    def _attempt(self, work: Work[T], begin: str, patience: float) -> T:
        end = time.monotonic() + patience
        attempt = 0
        while True:
            try:
                with self.engine.connect() as connection:
                    if self.is_sqlite:
                        connection.exec_driver_sql(begin)
                    result = work(connection)
                    connection.commit()
                    return result
            except DBAPIError as error:
                pause = PAUSES[min(attempt, len(PAUSES) - 1)]
                attempt += 1
                if not is_transient(error) or time.monotonic() + pause > end or self._closing.wait(pause):
                    raise explain_failure(error, self.place) from None


def default_url() -> str:
    """The file of this user and machine."""
    return f"sqlite:///{state_directory() / 'jobs' / 'jobs.db'}"


def is_transient(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed later: the connection was lost, or another one was in the way."""
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    return isinstance(error, OperationalError)


def explain_failure(error: DBAPIError, place: str) -> CallboardError:
    """What the user reads."""
    return DatabaseUnavailable(str(error.orig).strip().partition("\n")[0], path=place, hint=_HINT)


def _make_engine(text: str) -> tuple[Engine, str]:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # what it says has the password in it
        raise CallerError("not a database's URL", path=VARIABLE, hint=_HINT) from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None or not url.database:
        raise CallerError("no such database", path=VARIABLE, hint=_HINT)
    url = url.set(drivername=driver)
    return (_make_sqlite_engine(url) if driver == "sqlite" else _make_postgresql_engine(url)), _place_of(url)


def _place_of(url: URL) -> str:
    return url.render_as_string(hide_password=True) if url.host else str(url.database)


def _make_sqlite_engine(url: URL) -> Engine:
    path = Path(str(url.database))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DatabaseUnavailable(error.strerror or "cannot be written", path=str(path), hint=_HINT) from None
    engine = create_engine(url, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _make_postgresql_engine(url: URL) -> Engine:
    arguments = {"connect_timeout": CONNECT_TIMEOUT, "application_name": "callboard"}
    return create_engine(url, hide_parameters=True, connect_args=arguments)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = "IMMEDIATE"
    for statement in (
        f"PRAGMA busy_timeout = {BUSY_TIMEOUT}",
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "PRAGMA foreign_keys = ON",
    ):
        connection.execute(statement).close()

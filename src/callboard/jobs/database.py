"""The database of durable jobs: one SQLAlchemy engine, and transactions that run in threads.

Laws: only its owner can ever read an SQLite file. A transaction whose connection was lost is retried for at most 60
seconds. An error message is one sentence and has no password.

SQLite starts a transaction at the first write. So `Database` sends an explicit BEGIN.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from callboard.errors import CallerError
from callboard.extras import require_extra
from callboard.jobs import HINT, VARIABLE, DatabaseUnavailable, database_url
from callboard.jobs.database_file import find_identity, prepare_file
from callboard.jobs.tables import create_tables, has_tables

__all__ = ["VARIABLE", "Database", "DatabaseUnavailable", "Work"]

T = TypeVar("T")
Work = Callable[[Connection], T]
"""The work of one transaction. It must be idempotent, because it may run again after a commit."""

PATIENCE: Final = 60.0
"""Seconds for which a transaction is retried while the database cannot be reached."""
CONNECT_TIMEOUT: Final = 10
BUSY_TIMEOUT: Final = 30_000
"""Milliseconds that SQLite waits for the transaction of another process."""
SYNCHRONOUS: Final = "FULL"
"""SQLite's `synchronous`. FULL keeps commits after a power failure, so a call with a result never runs again."""
JOURNAL_SIZE: Final = 4 * 1024 * 1024
"""Maximum bytes of the write-ahead log after a checkpoint."""
OPENING_PATIENCE: Final = 5.0
"""Seconds for which opening a file is retried. While another process turns on write-ahead logging in a new file, SQLite
refuses at once and ignores its busy timeout.
"""
PAUSES: Final = (0.02, 0.1, 0.5, 1.0)
"""Seconds before each attempt. The last value repeats."""
THREADS: Final = 4
STILL_SECONDS: Final = 8
"""Seconds without a statement after which PostgreSQL ends a transaction."""

_ANOTHER: Final = f"or name another database in {VARIABLE}"
_READ_ONLY: Final = ("it can be read only", f"give yourself the right to write it, {_ANOTHER}")
_FULL: Final = ("its disk is full", "make room; what was committed is not lost")
_LOCKED: Final = ("another process keeps it locked", "wait for that process, or end it")
_UNREACHABLE: Final = ("it cannot be reached", f"start it, {_ANOTHER}")
_REFUSED: Final = ("it refuses the user or the password", f"correct {VARIABLE}")

_SQLITE: Final[Mapping[int, tuple[str, str]]] = {
    3: _READ_ONLY,
    5: _LOCKED,
    6: _LOCKED,
    8: _READ_ONLY,
    10: ("its disk does not read or write", "look at the system's log for the disk"),
    11: ("the file is damaged", f"put a backup in its place, {_ANOTHER}"),
    13: _FULL,
    14: ("the file cannot be opened", f"look at its folder and the rights there, {_ANOTHER}"),
    26: ("the file is not an SQLite database", HINT),
}
"""Messages and hints, by SQLite's primary result codes."""

_POSTGRESQL: Final[Mapping[str, tuple[str, str]]] = {
    "08": _UNREACHABLE,
    "25006": _READ_ONLY,
    "28": _REFUSED,
    "3D000": ("there is no database of this name", "create it, as in: createdb NAME"),
    "42501": ("the user may not use it", "grant the user the rights to create tables"),
    "53100": _FULL,
    "53300": ("it has too many connections", "raise its max_connections, or start fewer workers"),
    "57P": _UNREACHABLE,
}
"""Messages and hints, by prefixes of PostgreSQL's SQLSTATEs."""

_DAMAGED: Final = frozenset({11, 26})
_TRANSIENT_SQLITE: Final = frozenset({5, 6})
_TRANSIENT_POSTGRESQL: Final = ("08", "40", "53300", "55P03", "57P01", "57P02", "57P03")

_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class Database:
    """A database, as a context manager that closes it. Use `open` to create one. `place` is its name in messages."""

    def __init__(self, engine: Engine, place: str) -> None:
        self.engine = engine
        self.place = place
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._identity = find_identity(place) if self.is_sqlite else None
        self._damage = ""
        event.listen(engine, "handle_error", self._note_damage)
        self._closing = threading.Event()
        # SQLite has one writer at a time: a queue is fairer than its sleeping lock.
        self._writers = ThreadPoolExecutor(1 if self.is_sqlite else THREADS, "callboard-jobs-write")
        self._readers = ThreadPoolExecutor(THREADS, "callboard-jobs-read") if self.is_sqlite else self._writers

    @classmethod
    def open(cls, url: str = "") -> Self:
        """Open the database and create missing tables. This blocks, usually for some milliseconds.

        Args:
            url: `sqlite:///FILE` or `postgresql://...`; by default CALLBOARD_DATABASE_URL, else SQLite in the user's
                state directory.

        Raises:
            CallerError: The URL is invalid, the extra `jobs` is missing, or another version or program made the file.
            DatabaseUnavailable: The database cannot be reached or written.
        """
        require_extra("jobs")
        engine, place = _make_engine(url or database_url())
        database = cls(engine, place)
        patience = OPENING_PATIENCE if database.is_sqlite else 0
        try:
            if not database._attempt(lambda connection: has_tables(connection, place), "BEGIN", patience):
                database.run_blocking(lambda connection: create_tables(connection, place), patience=patience)
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Wait for running transactions, stop all retries, and close all connections."""
        self._closing.set()
        self._writers.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)
        self.engine.dispose()

    def check_file(self) -> None:
        """Raise `DatabaseUnavailable` if SQLite's file was deleted or replaced, because its jobs would be lost."""
        if self.is_sqlite and find_identity(self.place) != self._identity:
            hint = "put it back, or start this process again"
            raise DatabaseUnavailable("the file was deleted or replaced while it was open", path=self.place, hint=hint)

    def check_health(self, *, forget: bool = False) -> None:
        """Raise `DatabaseUnavailable` if `check_file` does, or if a statement found the file damaged.

        Args:
            forget: True to ignore the damage that earlier statements found.
        """
        self.check_file()
        if forget:
            self._damage = ""
        if self._damage:
            raise DatabaseUnavailable(self._damage, path=self.place)

    def _note_damage(self, context: ExceptionContext) -> None:
        self._damage = find_damage(context.original_exception) or self._damage

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def run(self, work: Work[T]) -> T:
        """Run one transaction that writes, in a thread. On SQLite it takes the write lock at its start.

        If the connection is lost, `work` runs again, even if the first commit may have succeeded.

        Raises:
            DatabaseUnavailable: The database could not be reached for 60 seconds, or cannot be written.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writers, self.run_blocking, work)

    async def read(self, work: Work[T]) -> T:
        """Run one transaction that only reads, in a thread. On SQLite all of its statements see the same data."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.read_blocking, work)

    def run_blocking(self, work: Work[T], *, patience: float = PATIENCE) -> T:
        return self._attempt(work, "BEGIN IMMEDIATE", patience)

    def read_blocking(self, work: Work[T]) -> T:
        return self._attempt(work, "BEGIN", PATIENCE)

    def _attempt(self, work: Work[T], begin: str, patience: float) -> T:
        end = time.monotonic() + patience
        attempt = 0
        while True:
            try:
                self.check_file()
                with self.engine.connect() as connection:
                    try:
                        if self.is_sqlite:
                            connection.exec_driver_sql(begin)
                        result = work(connection)
                        connection.commit()
                    except DBAPIError:
                        # A failed commit may leave the transaction open, and the pool would not notice.
                        connection.invalidate()
                        raise
                    return result
            except (DBAPIError, PoolTimeout) as error:
                pause = PAUSES[min(attempt, len(PAUSES) - 1)]
                attempt += 1
                if not is_transient(error) or time.monotonic() + pause > end or self._closing.wait(pause):
                    raise explain_failure(error, self.place) from None


def _make_engine(text: str) -> tuple[Engine, str]:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # its message contains the password
        raise CallerError("not a database's URL", path=VARIABLE, hint=HINT) from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None or not url.database:
        raise CallerError("no such database", path=VARIABLE, hint=HINT)
    if url.database == ":memory:":
        raise CallerError("a database in memory does not survive its process", path=VARIABLE, hint=HINT)
    if driver == "sqlite":
        path = Path(url.database).absolute()
        prepare_file(path)
        engine = create_engine(url.set(drivername=driver, database=str(path)), hide_parameters=True)
        event.listen(engine, "connect", _prepare_sqlite)
        return engine, str(path)
    url = url.set(drivername=driver)
    arguments = {"connect_timeout": CONNECT_TIMEOUT, "application_name": "callboard"}
    engine = create_engine(url, hide_parameters=True, connect_args=arguments, pool_size=2 * THREADS)
    event.listen(engine, "connect", _prepare_postgresql)
    return engine, url.render_as_string(hide_password=True)


def _prepare_postgresql(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{STILL_SECONDS}s'")
    connection.commit()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = "IMMEDIATE"
    for statement in (
        f"PRAGMA busy_timeout = {BUSY_TIMEOUT}",
        "PRAGMA journal_mode = WAL",
        f"PRAGMA synchronous = {SYNCHRONOUS}",
        "PRAGMA foreign_keys = ON",
        f"PRAGMA journal_size_limit = {JOURNAL_SIZE}",
    ):
        connection.execute(statement).close()


def is_transient(error: DBAPIError | PoolTimeout) -> bool:
    """Return whether the transaction may succeed later: the connection was lost, or another transaction blocked it."""
    if isinstance(error, PoolTimeout) or error.connection_invalidated:
        return True
    code = _code(error.orig)
    return code in _TRANSIENT_SQLITE if isinstance(code, int) else code.startswith(_TRANSIENT_POSTGRESQL)


def find_damage(error: BaseException | None) -> str:
    """Return the message for a file that is damaged for good. Return "" for other errors."""
    code = _code(error)
    return _SQLITE[code][0] if isinstance(code, int) and code in _DAMAGED else ""


def explain_failure(error: DBAPIError | PoolTimeout, place: str) -> DatabaseUnavailable:
    if isinstance(error, PoolTimeout):
        return DatabaseUnavailable("all of its connections are in use", path=place, hint="start fewer jobs at once")
    code = _code(error.orig)
    if isinstance(code, int):
        message, hint = _SQLITE.get(code, ("", ""))
    else:
        message, hint = next((_POSTGRESQL[begin] for begin in _POSTGRESQL if code.startswith(begin)), ("", ""))
    if not message:
        # The first line is the database's message. The others may contain data of a row.
        message, hint = str(error.orig).strip().partition("\n")[0], HINT
    return DatabaseUnavailable(message, path=place, hint=hint)


def _code(error: Any) -> int | str:
    """Return SQLite's primary result code or PostgreSQL's SQLSTATE, which is 08000 if the connection failed."""
    number = getattr(error, "sqlite_errorcode", None)
    if number is not None:
        return int(number) & 0xFF
    state = getattr(error, "sqlstate", None)
    if state is None and type(error).__name__ in {"OperationalError", "ConnectionTimeout"}:
        return _login_code(str(error))
    return state or ""


def _login_code(text: str) -> str:
    """Return the SQLSTATE of a refused connection from the server's message, because psycopg does not report it."""
    for words, code in (("authentication failed", "28P01"), ("does not exist", "3D000"), ("too many clients", "53300")):
        if words in text:
            return code
    return "08000"

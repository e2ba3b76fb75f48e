"""The lease of a process: what others see that it lives by, and what it ends itself without.

A process claims segments under an id that is its own and never used again. While it lives, it holds the lock of that id:
an advisory lock of one PostgreSQL session, or a locked file beside SQLite. Who gets the lock of another id knows that its
holder is gone, because it died or because the server ended its session.

A process that lost its lock while it lives may have been taken for dead, and what it does is done a second time. The fence
of a job keeps such a process from writing; ending it at once keeps it from doing anything else.

Laws: an id is a UUID, so that no process takes over another's by accident; the lock is taken before the first claim;
it is checked every second, and by whoever was stopped for longer before anything else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol
from uuid import uuid4

from sqlalchemy import text

from callboard.jobs.database import Database
from callboard.sandbox.process_tree import kill_descendants

CHECK_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 8.0
"""After so long without a word of the holder, PostgreSQL ends its session: it was stopped, or its host is gone."""
LOOK_SECONDS: Final = 0.1
"""How often SQLite's file is asked whether another connection wrote to it; that reads a counter in shared memory."""
EXIT_STATUS: Final = 75
"""Of a process that lost its lease: EX_TEMPFAIL, start it again."""

_SETTINGS: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "application_name": "callboard lease",
}
"""So that a server that went silent is noticed within seconds."""


class LeaseLost(Exception):
    """The lock is not ours any more, or nobody can say so."""


class Hold(Protocol):
    """A lock that is held, for the thread that watches over it."""

    def wait(self) -> bool:
        """Wait for at most a second. Returns whether something was written meanwhile. May raise anything when lost."""

    def check(self) -> None:
        """Raise, if the lock is not held any more."""

    def close(self) -> None:
        """Give it back."""


class Leases(Protocol):
    """The locks of a database."""

    def hold(self, executor: str) -> Hold:
        """Take the lock of an id that is new."""

    def seize(self, executor: str) -> AbstractContextManager[bool]:
        """Whether the holder of an id is gone. Within, no other process finds so."""


class Lease:
    """The lease of this process and the thread that watches over it."""

    def __init__(
        self, leases: Leases, on_write: Callable[[], None], on_loss: Callable[[str], None] | None = None
    ) -> None:
        """Take a lease under a new id.

        Args:
            leases: Of the database.
            on_write: Called in the thread when something was written, perhaps a segment that is due.
            on_loss: Called in the thread when the lock was lost; by default the process ends there, without a farewell.
        """
        self.executor = str(uuid4())
        self._hold = leases.hold(self.executor)
        self._on_write = on_write
        self._on_loss = on_loss or _end_process
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="callboard-lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the lock back; others may take it from now on."""
        self._closing.set()
        self._thread.join()
        self._hold.close()

    def _watch(self) -> None:
        checked = time.monotonic()
        try:
            while not self._closing.is_set():
                wrote = self._hold.wait()
                now = time.monotonic()
                if now - checked > SILENCE_SECONDS:
                    raise LeaseLost(f"it stood still for {now - checked:.0f} s")  # noqa: TRY301  # as others that are lost
                if now - checked >= CHECK_SECONDS:
                    self._hold.check()
                    checked = time.monotonic()
                    wrote = True  # what becomes due by itself, such as a delayed segment, is told by nobody
                if wrote:
                    self._on_write()
        except Exception as error:  # noqa: BLE001  # whatever it is, nobody watches any more
            self._on_loss(str(error).strip().partition("\n")[0])


def open_leases(database: Database) -> Leases:
    """The locks that go with a database."""
    return FileLeases(database) if database.is_sqlite else SessionLeases(database)


class FileLeases:
    """Locked files beside a database of SQLite, one for each process that lives."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._directory = Path(f"{database.place}.leases")

    def hold(self, executor: str) -> Hold:
        self._database.check_health(forget=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return _FileHold(self._directory / executor, self._database)

    @contextmanager
    def seize(self, executor: str) -> Iterator[bool]:
        path = self._directory / Path(executor).name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:  # its holder gave it back
            yield True
            return
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(descriptor)


class _FileHold:
    def __init__(self, path: Path, database: Database) -> None:
        self._path = path
        self._database = database
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        # A lock goes along when the process forks; what was forked may outlive us, and must not hold it.
        os.register_at_fork(after_in_child=self._close_descriptor)
        self._connection = sqlite3.connect(f"file:{database.place}?mode=ro", uri=True, check_same_thread=False)
        self._version = self._read_version()

    def wait(self) -> bool:
        time.sleep(LOOK_SECONDS)
        before, self._version = self._version, self._read_version()
        return bool(before != self._version)

    def check(self) -> None:
        self._database.check_health()
        if os.fstat(self._descriptor).st_ino != self._path.stat().st_ino:
            raise LeaseLost(f"{self._path} is another file now")

    def close(self) -> None:
        self._connection.close()
        self._path.unlink(missing_ok=True)
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _read_version(self) -> Any:
        return self._connection.execute("PRAGMA data_version").fetchone()[0]


class SessionLeases:
    """Advisory locks of PostgreSQL, each held by a session on a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine

    def hold(self, executor: str) -> Hold:
        _, arguments = self._engine.dialect.create_connect_args(self._engine.url)
        return _SessionHold({**arguments, **_SETTINGS}, _key(executor))

    @contextmanager
    def seize(self, executor: str) -> Iterator[bool]:
        with self._engine.begin() as connection:
            query = text("SELECT pg_try_advisory_xact_lock(:key)")
            yield bool(connection.scalar(query, {"key": _key(executor)}))


class _SessionHold:
    def __init__(self, arguments: dict[str, Any], key: int) -> None:
        from psycopg import connect  # noqa: PLC0415  # not for SQLite

        from callboard.jobs.engine import CHANNEL  # noqa: PLC0415  # as above

        self._connection = connect(**arguments, autocommit=True)
        try:
            self._connection.execute("SELECT pg_advisory_lock(%s)", [key])
            self._connection.execute(f"LISTEN {CHANNEL}")
            with suppress(Exception):  # PostgreSQL before 14 has it not; there the system's own keepalives decide
                self._connection.execute(f"SET idle_session_timeout = '{SILENCE_SECONDS:g}s'")
            self._session = self._read_session()
        except BaseException:
            self._connection.close()
            raise

    def wait(self) -> bool:
        return bool(list(self._connection.notifies(timeout=CHECK_SECONDS / 2, stop_after=1)))

    def check(self) -> None:
        if self._read_session() != self._session:
            raise LeaseLost("a pooler gave the connection to another session; name the server itself")

    def close(self) -> None:
        self._connection.close()

    def _read_session(self) -> Any:
        row = self._connection.execute("SELECT pg_backend_pid()").fetchone()
        return row and row[0]


def _key(executor: str) -> int:
    return int.from_bytes(hashlib.sha256(f"callboard {executor}".encode()).digest()[:8], signed=True)


def _end_process(why: str) -> NoReturn:
    """Without cleaning up: whatever that would write or call is another's to do now. What tools have started ends too."""
    with suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"callboard: lost its lease: {why}\n".encode())
    with suppress(OSError):
        kill_descendants()
    os._exit(EXIT_STATUS)

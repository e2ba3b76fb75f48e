"""Store responses in a database, bounded by age and size.

Laws: one owner never sees another's response; a conversation is read with one query; every process can read a saved
response at once. Work per write is constant, except for a cleanup now and then. Its cost is spread over the bytes
written since the last one. A cleanup that fails or takes long fails no save, and a later save continues it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Engine, TextClause, bindparam, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from callboard.errors import CallerError
from callboard.servers.gateway.conversation_state import MAX_REPLIES, StoredResponse
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.shared_limits import SHARED_TABLES, SharedLimits

if TYPE_CHECKING:
    from callboard.servers.gateway.backend import Backend

log = logging.getLogger("callboard.gateway")

_CLEAN_PART = 16
"""A cleanup is due when one part in this many of the size was written, and frees as much."""
_BETWEEN = 60.0
"""Maximum seconds between two cleanups, if anything is written."""
_BATCH = 100
"""Maximum replies that one statement deletes, so that it ends within the database's time limit."""
_CLEAN_SECONDS = 2.0
"""Seconds after which a cleanup leaves the rest to the next save."""
_SQLITE = (
    "PRAGMA busy_timeout = 10000",  # milliseconds to wait for another process's write
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
)
_POSTGRESQL = (
    "SET statement_timeout = 10000",  # milliseconds: another process's lock must not block a thread forever
    # Every statement has an index. Before a table is analysed, the planner would scan the whole table.
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",  # compiling takes 100 ms, and a plan that is only "off" counts as expensive
)
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_LOCK = 0x67617465
"""PostgreSQL's advisory lock for the creation of tables, which several processes may begin at the same time."""
_START_TIMEOUT = 30.0
"""Seconds to wait for a database at startup."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
"""Pattern of valid identifiers. A database does not accept every text."""
_READERS = 3
"""Number of threads that read."""
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 15.0
"""Maximum seconds to wait for a thread and the database. The database gives up earlier."""
_HINT = "sqlite:///FILE or postgresql://USER@HOST/NAME"


VERSION = 1
"""Version of the tables. A change increases it, and adds statements that migrate older tables."""
_MAKE_VERSION = (
    "CREATE TABLE IF NOT EXISTS callboard_store (version INTEGER PRIMARY KEY)",
    "INSERT INTO callboard_store SELECT :version WHERE NOT EXISTS (SELECT version FROM callboard_store)",
)
"""Statements for the table of one row. A store without a version has version 1."""
_MAKE_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS callboard_replies (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL, size BIGINT NOT NULL,
        body {bytes} NOT NULL, input {bytes} NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS callboard_replies_expires ON callboard_replies (expires)",
    # The size is in the index, so that a cleanup reads no bodies.
    "CREATE INDEX IF NOT EXISTS callboard_replies_created ON callboard_replies (created, id, size)",
    # Cost of a day's requests in US dollars, by the name of a key, or by the name of the total.
    """
    CREATE TABLE IF NOT EXISTS callboard_spending (
        day TEXT, name TEXT, cost DOUBLE PRECISION NOT NULL, PRIMARY KEY (day, name)
    )
    """,
)
INSERT = text(
    "INSERT INTO callboard_replies (id, owner, previous, created, expires, size, body, input)"
    " VALUES (:id, :owner, :previous, :created, :expires, :size, :body, :input)"
)
FIND = text(
    "SELECT id, previous, body, input FROM callboard_replies WHERE id = :id AND owner = :owner AND expires > :now"
)
DELETE = text("DELETE FROM callboard_replies WHERE id = :id AND owner = :owner AND expires > :now")
DELETE_EXPIRED = text("""
    DELETE FROM callboard_replies WHERE id IN (
        SELECT id FROM callboard_replies WHERE expires <= :now ORDER BY expires LIMIT :batch
    )
""")
FIND_EXCESS = text("""
    SELECT created, id FROM (
        SELECT created, id, sum(size) OVER (ORDER BY created DESC, id DESC) AS total FROM callboard_replies
    ) AS summed WHERE total > :most ORDER BY created DESC, id DESC LIMIT 1
""")
"""Finds the newest reply that is too much, if the newest replies have up to `most` bytes in total."""
DELETE_OLDEST = text("""
    DELETE FROM callboard_replies WHERE id IN (
        SELECT id FROM callboard_replies WHERE (created, id) <= (:created, :id) ORDER BY created, id LIMIT :batch
    )
""")
CONVERSATION = text("""
    WITH RECURSIVE chain (id, previous, depth, total) AS (
        SELECT id, previous, 0, size FROM callboard_replies WHERE id = :id AND owner = :owner AND expires > :now
        UNION ALL
        SELECT earlier.id, earlier.previous, chain.depth + 1, chain.total + earlier.size
        FROM chain, callboard_replies AS earlier
        WHERE earlier.id = chain.previous AND earlier.owner = :owner AND earlier.expires > :now
            AND chain.total + earlier.size <= :most AND chain.depth + 1 < :longest
    )
    SELECT reply.id, reply.previous, reply.body, reply.input
    FROM callboard_replies AS reply JOIN chain ON chain.id = reply.id ORDER BY chain.depth DESC
""")
"""Selects a reply and the replies before it, up to `most` bytes and `longest` replies."""
_READ_SPENDING = text("SELECT name, cost FROM callboard_spending WHERE day = :day AND name IN :names").bindparams(
    bindparam("names", expanding=True)
)


_T = TypeVar("_T")


class ResponseStore:
    """Replies in a database. `age` in seconds and `size` in bytes limit it; the oldest go first.

    `url` is `sqlite:///FILE` (one machine) or `postgresql://...` (one or many machines). One process never exceeds
    `size`; each further process may exceed it by a sixteenth. `clock` returns seconds since 1970.

    Every method raises an HttpError if the database does not answer. The database's message goes to the log.
    """

    def __init__(self, url: str, *, age: float, size: int, clock: Callable[[], float] = time.time) -> None:
        """Raises CallerError for any other URL."""
        self._clock = clock
        self._max_age = age
        self._max_size = size - size // _CLEAN_PART
        self._clean_after_bytes = max(1, size // _CLEAN_PART)
        self._clean_after_seconds = min(_BETWEEN, age / _CLEAN_PART)
        self._written = 0
        self._cleaned = 0.0
        self._engine = _engine(url)
        self._readers = ThreadPoolExecutor(_READERS, "callboard-store")
        self._writer = ThreadPoolExecutor(1, "callboard-store-writer")
        """One thread, because SQLite allows one writer: a wait for the thread needs no polling."""

    async def start(self) -> None:
        """Create missing tables.

        Raises CallerError if the database cannot be opened, or if a newer callboard created its tables.
        """
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await self.run(_make_tables, self._writer)
        except TimeoutError:
            raise CallerError(
                f"the database did not answer in {_START_TIMEOUT:g} s", path="store", hint=_HINT
            ) from None
        except (SQLAlchemyError, OSError) as error:
            raise CallerError(self.describe(error), path="store", hint=_HINT) from None

    def describe(self, error: Exception) -> str:
        """Return the first line of the database's message. Other lines may contain values of a row."""
        line = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        password = self._engine.url.password
        return line.replace(str(password), "***") if password else line

    def share_limits(self, backends: Sequence[Backend]) -> SharedLimits | None:
        """Return the limits that gateways share through this database. SQLite has none, because it is on one machine."""
        return None if self._engine.dialect.name == "sqlite" else SharedLimits(self, backends)

    async def aclose(self) -> None:
        for threads in (self._readers, self._writer):
            await asyncio.to_thread(threads.shutdown)  # running work holds a connection
        self._engine.dispose()

    async def save(self, response: StoredResponse) -> bool:
        """Store a reply, and return whether it was stored. A reply larger than the whole store is not."""
        if response.size > self._max_size:
            log.warning("a reply of %d bytes is too large for the store", response.size)
            return False
        now = self._clock()
        row = {
            "id": response.identifier,
            "owner": response.owner,
            "previous": response.previous,
            "created": now,
            "expires": now + self._max_age,
            "size": response.size,
            "body": response.body,
            "input": response.input,
        }

        def write(connection: Connection) -> None:
            self._written += response.size
            connection.execute(INSERT, row)
            if self._written >= self._clean_after_bytes or now - self._cleaned >= self._clean_after_seconds:
                self._clean(connection, now)

        await self._ask(write, self._writer)
        return True

    def _clean(self, connection: Connection, now: float) -> None:
        self._written, self._cleaned = 0, now
        end = time.monotonic() + _CLEAN_SECONDS

        def delete(statement: TextClause, **which: Any) -> None:
            while connection.execute(statement, {**which, "batch": _BATCH}).rowcount == _BATCH:
                if time.monotonic() > end:
                    self._cleaned = 0.0
                    return

        try:
            delete(DELETE_EXPIRED, now=now)
            if (excess := connection.execute(FIND_EXCESS, {"most": self._max_size}).first()) is not None:
                delete(DELETE_OLDEST, created=excess.created, id=excess.id)
        except SQLAlchemyError as error:
            log.warning("old replies could not be deleted: %s", self.describe(error))

    async def find(self, identifier: str, owner: str) -> StoredResponse | None:
        """Return the reply, if it belongs to this owner."""
        if not _IDENTIFIER.fullmatch(identifier):
            return None
        parameters = {"id": identifier, "owner": owner, "now": self._clock()}
        row = await self._ask(lambda connection: connection.execute(FIND, parameters).first())
        return None if row is None else _to_response(row, owner)

    async def conversation(self, identifier: str, owner: str, most: int) -> list[StoredResponse]:
        """Return the reply and those that it continues, oldest first; empty if the reply is not stored.

        If more than `most` bytes or MAX_REPLIES replies are needed, or one is gone, the first has a `previous`.
        """
        if not _IDENTIFIER.fullmatch(identifier):
            return []
        parameters = {"id": identifier, "owner": owner, "now": self._clock(), "most": most, "longest": MAX_REPLIES}
        rows = await self._ask(lambda connection: connection.execute(CONVERSATION, parameters).all())
        return [_to_response(row, owner) for row in rows]

    async def delete(self, identifier: str, owner: str) -> bool:
        """Delete a reply, and return whether it existed."""
        if not _IDENTIFIER.fullmatch(identifier):
            return False
        parameters = {"id": identifier, "owner": owner, "now": self._clock()}
        return bool(await self._ask(lambda connection: connection.execute(DELETE, parameters).rowcount, self._writer))

    async def add_spending(self, costs: Mapping[tuple[str, str], float]) -> None:
        """Add costs by day and name: all of them, or none."""
        # One statement for all rows: the connection commits each statement separately.
        rows = ", ".join([f"(:day{place}, :name{place}, :cost{place})" for place in range(len(costs))])
        statement = text(
            f"INSERT INTO callboard_spending (day, name, cost) VALUES {rows}"  # noqa: S608  # names of parameters
            " ON CONFLICT (day, name) DO UPDATE SET cost = callboard_spending.cost + excluded.cost"
        )
        parameters: dict[str, Any] = {}
        for place, ((day, name), cost) in enumerate(sorted(costs.items())):
            parameters |= {f"day{place}": day, f"name{place}": name, f"cost{place}": cost}
        await self._ask(lambda connection: connection.execute(statement, parameters), self._writer)

    async def read_spending(self, day: str, names: Sequence[str]) -> dict[str, float]:
        """Return the costs of a day by name. Names without costs are missing."""
        parameters = {"day": day, "names": list(names)}
        rows = await self._ask(lambda connection: connection.execute(_READ_SPENDING, parameters).all())
        return {row.name: row.cost for row in rows}

    async def _ask(self, work: Callable[[Connection], _T], threads: ThreadPoolExecutor | None = None) -> _T:
        """Raises an HttpError if the database does not answer. Work that has not started by then is dropped."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self.run(work, threads or self._readers)
        except (SQLAlchemyError, OSError) as error:  # includes TimeoutError, which has no message
            why = self.describe(error) or f"no answer in {_ANSWER_SECONDS:g} s"
            log.error("the store failed: %s", why)  # noqa: TRY400 - a traceback would not help
            raise HttpError("store_unavailable", "the store of responses does not answer") from None

    async def run(self, work: Callable[[Connection], _T], threads: ThreadPoolExecutor) -> _T:
        """Return the result of work with a connection, which one of the threads does."""

        def connect() -> _T:
            with self._engine.connect() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(threads, connect)


def _make_tables(connection: Connection) -> None:
    local = connection.dialect.name == "sqlite"
    if not local:
        connection.execution_options(isolation_level="READ COMMITTED")  # a transaction, which holds the lock
    with connection.begin():
        if not local:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        for statement in _MAKE_VERSION:
            connection.execute(text(statement), {"version": VERSION})
        version = connection.scalar(text("SELECT max(version) FROM callboard_store")) or VERSION
        if version > VERSION:
            message = f"its tables have version {version}, and this callboard supports versions up to {VERSION}"
            hint = "upgrade callboard, or use another database"
            raise CallerError(message, path="store", hint=hint)
        for statement in (*_MAKE_TABLES, *(() if local else SHARED_TABLES)):
            connection.execute(text(statement.format(bytes="BLOB" if local else "BYTEA")))


def _to_response(row: Any, owner: str) -> StoredResponse:
    return StoredResponse(row.id, owner, row.previous, row.body, row.input)


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # such as for an invalid port; the messages contain the password
        raise CallerError("not a database URL", path="store", hint=_HINT) from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None or not parsed.database:
        raise CallerError("not a supported database URL", path="store", hint=_HINT)
    local = driver.startswith("sqlite")
    if local:
        _make_file(parsed.database)
    # Each statement is its own transaction.
    engine = create_engine(
        parsed.set(drivername=driver),
        isolation_level="AUTOCOMMIT",
        skip_autocommit_rollback=True,
        hide_parameters=True,
        pool_pre_ping=not local,
        connect_args={}
        if local
        else {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": round(_ANSWER_SECONDS * 1000)},
    )
    event.listen(engine, "connect", partial(_prepare, _SQLITE if local else _POSTGRESQL))
    return engine


def _make_file(path: str) -> None:
    """Create a file that only the user can read. SQLite gives its other files the same mode."""
    try:
        os.close(os.open(Path(path), os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise CallerError(error.strerror or "cannot be written", path=f"store: {path}") from None


def _prepare(statements: Iterable[str], connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()

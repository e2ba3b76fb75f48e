"""Store responses in a database, bounded by age and size.

Laws: one owner never sees another's response; a conversation is read with one query; a response that was saved can be
read at once, by every process. Constant work a write, but for a cleaning now and then, whose work is spread over the
bytes that were written since the last.
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
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, bindparam, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from callboard.errors import CallerError
from callboard.servers.gateway.conversation_state import MAX_REPLIES, StoredResponse
from callboard.servers.gateway.http_errors import HttpError

log = logging.getLogger("callboard.gateway")

_CLEAN_PART = 16
"""A cleaning is due when this part of the size was written, and leaves as much free."""
_BETWEEN = 60.0
"""Seconds between two cleanings, if anything is written at all."""
_SQLITE = (
    "PRAGMA busy_timeout = 10000",  # milliseconds to wait for another process's write
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
)
_POSTGRESQL = (
    "SET statement_timeout = 10000",  # milliseconds: another's lock is not to take a thread for ever
    # Every statement goes by an index; before a table is analysed the planner would rather read all of it.
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
)
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_ATTEMPTS = 3
"""To make the tables, where other processes do it as well."""
_START_TIMEOUT = 30.0
"""Seconds until a database that says nothing is given up."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
"""What can be an identifier at all; a database does not take every text."""
_READERS = 3
"""Threads that read."""
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 15.0
"""Longest wait for the database, with the wait for a thread. The database itself gives up before."""
_HINT = "sqlite:///FILE or postgresql://USER@HOST/NAME"


VERSION = 1
"""Increases when the tables change, with statements that change the earlier ones."""
_MAKE_VERSION = (
    "CREATE TABLE IF NOT EXISTS callboard_store (version INTEGER PRIMARY KEY)",
    "INSERT INTO callboard_store SELECT :version WHERE NOT EXISTS (SELECT version FROM callboard_store)",
)
"""One row. A store without a version is of version 1."""
_MAKE_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS callboard_replies (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL, size BIGINT NOT NULL,
        body {bytes} NOT NULL, input {bytes} NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS callboard_replies_expires ON callboard_replies (expires)",
    # With the size, so that a cleaning reads no bodies.
    "CREATE INDEX IF NOT EXISTS callboard_replies_created ON callboard_replies (created, id, size)",
    # What the requests of a day cost, in US dollars, by the name of a key and of the sum over all.
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
DELETE_EXPIRED = text("DELETE FROM callboard_replies WHERE expires <= :now")
DELETE_OLDEST = text("""
    DELETE FROM callboard_replies WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(size) OVER (ORDER BY created DESC, id DESC) AS total FROM callboard_replies
        ) AS summed WHERE total > :most
    )
""")
"""Keeps the newest that are `most` bytes together."""
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
"""A reply and those before it, as far as `most` bytes and `longest` replies go."""
_READ_SPENDING = text("SELECT name, cost FROM callboard_spending WHERE day = :day AND name IN :names").bindparams(
    bindparam("names", expanding=True)
)


_T = TypeVar("_T")


class ResponseStore:
    """Replies in a database: `age` in seconds and `size` in bytes bound it, the oldest go first.

    `url` is `sqlite:///FILE`, for the processes of one machine, or `postgresql://...`, for many. One process never
    goes beyond `size`; each further one may by a sixteenth. `clock` gives seconds since 1970.

    Every method raises an HttpError where the database does not answer; what it said goes to the log.
    """

    def __init__(self, url: str, *, age: float, size: int, clock: Callable[[], float] = time.time) -> None:
        """Raises CallerError for another URL."""
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
        """One thread, for SQLite has one writer: who waits here does not poll for it."""

    async def start(self) -> None:
        """Makes the tables where there are none.

        Raises CallerError for a database that cannot be had, and for tables that a newer callboard has made.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                async with asyncio.timeout(_START_TIMEOUT):
                    await self._run(_make_tables, self._writer)
            except TimeoutError:
                raise CallerError(
                    f"the database did not answer in {_START_TIMEOUT:g} s", path="store", hint=_HINT
                ) from None
            except (SQLAlchemyError, OSError) as error:
                # Processes that begin together may make the same table; then the others find it.
                if not attempts_left:
                    raise CallerError(self._without_password(_first_line(error)), path="store", hint=_HINT) from None
            else:
                return

    def _without_password(self, text: str) -> str:
        password = self._engine.url.password
        return text.replace(str(password), "***") if password else text

    async def aclose(self) -> None:
        for threads in (self._readers, self._writer):
            await asyncio.to_thread(threads.shutdown)  # what is under way holds a connection
        self._engine.dispose()

    async def save(self, response: StoredResponse) -> bool:
        """Whether the reply is kept now; what is too large for the whole store is not."""
        if response.size > self._max_size:
            log.warning("a reply of %d bytes is too large to be kept", response.size)
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
                connection.execute(DELETE_EXPIRED, {"now": now})
                connection.execute(DELETE_OLDEST, {"most": self._max_size})
                self._written, self._cleaned = 0, now

        await self._ask(write, self._writer)
        return True

    async def find(self, identifier: str, owner: str) -> StoredResponse | None:
        """The reply, if it is this owner's."""
        if not _IDENTIFIER.fullmatch(identifier):
            return None
        parameters = {"id": identifier, "owner": owner, "now": self._clock()}
        row = await self._ask(lambda connection: connection.execute(FIND, parameters).first())
        return None if row is None else _to_response(row, owner)

    async def conversation(self, identifier: str, owner: str, most: int) -> list[StoredResponse]:
        """The reply and those that it goes on from, the first first; empty where it is not known.

        Where `most` bytes or MAX_REPLIES replies are passed, or one is gone, the first has a `previous`.
        """
        if not _IDENTIFIER.fullmatch(identifier):
            return []
        parameters = {"id": identifier, "owner": owner, "now": self._clock(), "most": most, "longest": MAX_REPLIES}
        rows = await self._ask(lambda connection: connection.execute(CONVERSATION, parameters).all())
        return [_to_response(row, owner) for row in rows]

    async def delete(self, identifier: str, owner: str) -> bool:
        """Whether there was such a reply."""
        if not _IDENTIFIER.fullmatch(identifier):
            return False
        parameters = {"id": identifier, "owner": owner, "now": self._clock()}
        return bool(await self._ask(lambda connection: connection.execute(DELETE, parameters).rowcount, self._writer))

    async def add_spending(self, costs: Mapping[tuple[str, str], float]) -> None:
        """Add to what was spent, by day and name: all of it, or none."""
        # One statement for all rows: the connection commits each statement by itself.
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
        """What was spent on a day, by the names that spent something."""
        parameters = {"day": day, "names": list(names)}
        rows = await self._ask(lambda connection: connection.execute(_READ_SPENDING, parameters).all())
        return {row.name: row.cost for row in rows}

    async def _ask(self, work: Callable[[Connection], _T], threads: ThreadPoolExecutor | None = None) -> _T:
        """Raises an HttpError where the database does not answer. Work that has not begun by then is dropped."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._run(work, threads or self._readers)
        except (SQLAlchemyError, OSError) as error:  # TimeoutError is one, and says nothing
            why = self._without_password(_first_line(error)) or f"no answer in {_ANSWER_SECONDS:g} s"
            log.error("the store failed: %s", why)  # noqa: TRY400 - a traceback would not help
            raise HttpError("store_unavailable", "the store of replies does not answer") from None

    async def _run(self, work: Callable[[Connection], _T], threads: ThreadPoolExecutor) -> _T:
        def connect() -> _T:
            with self._engine.connect() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(threads, connect)


def _make_tables(connection: Connection) -> None:
    for statement in _MAKE_VERSION:
        connection.execute(text(statement), {"version": VERSION})
    version = connection.scalar(text("SELECT max(version) FROM callboard_store")) or VERSION
    if version > VERSION:
        message = f"its tables have version {version}, and this callboard knows {VERSION} at most"
        hint = "use the callboard that wrote it or a newer one, or name another database"
        raise CallerError(message, path="store", hint=hint)
    for statement in _MAKE_TABLES:
        connection.execute(text(statement.format(bytes="BLOB" if connection.dialect.name == "sqlite" else "BYTEA")))


def _first_line(error: Exception) -> str:
    """The database's first line; the others may hold what a row holds."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def _to_response(row: Any, owner: str) -> StoredResponse:
    return StoredResponse(row.id, owner, row.previous, row.body, row.input)


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # such as for a port that is no number; what they say has the password in it
        raise CallerError("not a database's URL", path="store", hint=_HINT) from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None or not parsed.database:
        raise CallerError("no such store", path="store", hint=_HINT)
    local = driver.startswith("sqlite")
    if local:
        _make_file(parsed.database)
    # Each statement is whole by itself.
    engine = create_engine(
        parsed.set(drivername=driver),
        isolation_level="AUTOCOMMIT",
        skip_autocommit_rollback=True,
        hide_parameters=True,
        pool_pre_ping=not local,
        connect_args={} if local else {"connect_timeout": _CONNECT_SECONDS},
    )
    event.listen(engine, "connect", partial(_prepare, _SQLITE if local else _POSTGRESQL))
    return engine


def _make_file(path: str) -> None:
    """Readable by the user alone, as are the files that SQLite creates beside it."""
    try:
        os.close(os.open(Path(path), os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise CallerError(error.strerror or "cannot be written", path=f"store: {path}") from None


def _prepare(statements: Iterable[str], connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()

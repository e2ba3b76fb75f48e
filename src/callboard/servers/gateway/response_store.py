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
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.errors import CallerError
from callboard.servers.gateway.http_errors import HttpError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = logging.getLogger("callboard.gateway")

MAX_REPLIES = 10_000
"""Replies that a conversation may have."""
_PART = 16
"""A cleaning is due when this part of the size was written, and leaves as much free."""
_BETWEEN = 60.0
"""Seconds between two cleanings, if anything is written at all."""
_SQLITE = (
    "PRAGMA busy_timeout = 10000",  # milliseconds to wait for another process's write
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
)
_POSTGRESQL = ("SET enable_seqscan = off", "SET enable_hashjoin = off", "SET enable_mergejoin = off")
"""Every statement goes by an index; before a table is analysed the planner would rather read all of it."""
_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_ATTEMPTS = 3
"""To make the tables, where other processes do it as well."""
_PATIENCE = 30.0
"""Seconds until a database that says nothing is given up."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
"""What can be an identifier at all; a database does not take every text."""
_HINT = "sqlite:///FILE or postgresql://USER@HOST/NAME"


class StoredResponse(msgspec.Struct, frozen=True):
    """A reply: `body` is the whole response and `input` the items of its own turn, both as JSON.

    `previous` is the reply that it goes on from, "" for none.
    """

    identifier: str
    owner: str
    previous: str
    body: bytes
    input: bytes

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input)


class ResponseStore:
    """Replies in a database: `age` in seconds and `size` in bytes bound it, the oldest go first.

    `url` is `sqlite:///FILE`, for the processes of one machine, or `postgresql://...`, for many. One process never
    goes beyond `size`; each further one may by a sixteenth. `clock` gives seconds since 1970.

    Every method raises an HttpError where the database does not answer; what it said goes to the log.
    """

    def __init__(self, url: str, *, age: float, size: int, clock: Callable[[], float] = time.time) -> None:
        """Raises CallerError for a URL that is none of these, or if a package is missing."""
        self._clock = clock
        self._age = age
        self._most = size - size // _PART
        self._due = max(1, size // _PART)
        self._between = min(_BETWEEN, age / _PART)
        self._written = 0
        self._cleaned = 0.0
        self._writing = asyncio.Lock()
        try:
            self._engine = _engine(url)
            from callboard.servers.gateway import statements  # noqa: PLC0415 - it needs SQLAlchemy
        except ImportError as error:
            hint = "pip install 'callboard[gateway,store]'"
            raise CallerError(f"a store needs {error.name or error}", path="store", hint=hint) from None
        self._sql: Any = statements

    async def start(self) -> None:
        """Makes the tables where there are none.

        Raises CallerError for a database that cannot be had, and for tables that a newer callboard has made.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._make()
            except TimeoutError:
                raise CallerError(f"the database did not answer in {_PATIENCE:g} s", path="store", hint=_HINT) from None
            except (self._sql.Error, OSError) as error:
                # Processes that begin together may make the same table; then the others find it.
                if not attempts_left:
                    raise CallerError(self._without_password(_first_line(error)), path="store", hint=_HINT) from None
            else:
                return

    async def _make(self) -> None:
        sql = self._sql
        async with self._engine.connect() as connection:
            for statement in sql.BEGIN:
                await connection.execute(statement)
            version = await connection.scalar(sql.WRITTEN_BY)
            if version > sql.VERSION:
                message = f"its tables have version {version}, and this callboard knows {sql.VERSION} at most"
                hint = "use the callboard that wrote it or a newer one, or name another database"
                raise CallerError(message, path="store", hint=hint)
            for statement in sql.MAKE:
                await connection.execute(statement)

    def _without_password(self, text: str) -> str:
        password = self._engine.url.password
        return text.replace(str(password), "***") if password else text

    async def aclose(self) -> None:
        await self._engine.dispose()

    async def save(self, response: StoredResponse) -> bool:
        """Whether the reply is kept now; what is too large for the whole store is not."""
        if response.size > self._most:
            log.warning("a reply of %d bytes is too large to be kept", response.size)
            return False
        now = self._clock()
        row = {
            "id": response.identifier,
            "owner": response.owner,
            "previous": response.previous,
            "created": now,
            "expires": now + self._age,
            "size": response.size,
            "body": response.body,
            "input": response.input,
        }
        # SQLite has one writer; who waits here does not poll for it.
        async with self._writing:
            self._written += response.size
            cleans = self._written >= self._due or now - self._cleaned >= self._between
            async with self._connection() as connection:
                await connection.execute(self._sql.KEEP, row)
                if cleans:
                    await connection.execute(self._sql.EXPIRE, {"now": now})
                    await connection.execute(self._sql.SHRINK, {"most": self._most})
            if cleans:
                self._written, self._cleaned = 0, now
        return True

    async def find(self, identifier: str, owner: str) -> StoredResponse | None:
        """The reply, if it is this owner's."""
        if not _IDENTIFIER.fullmatch(identifier):
            return None
        parameters = {"id": identifier, "owner": owner, "now": self._clock()}
        async with self._connection() as connection:
            row = (await connection.execute(self._sql.FIND, parameters)).first()
        return None if row is None else _to_response(row, owner)

    async def conversation(self, identifier: str, owner: str, most: int) -> list[StoredResponse]:
        """The reply and those that it goes on from, the first first; empty where it is not known.

        Where `most` bytes or MAX_REPLIES replies are passed, or one is gone, the first has a `previous`.
        """
        if not _IDENTIFIER.fullmatch(identifier):
            return []
        parameters = {"id": identifier, "owner": owner, "now": self._clock(), "most": most, "longest": MAX_REPLIES}
        async with self._connection() as connection:
            rows = (await connection.execute(self._sql.CONVERSATION, parameters)).all()
        return [_to_response(row, owner) for row in rows]

    async def delete(self, identifier: str, owner: str) -> bool:
        """Whether there was such a reply."""
        if not _IDENTIFIER.fullmatch(identifier):
            return False
        parameters = {"id": identifier, "owner": owner, "now": self._clock()}
        async with self._writing, self._connection() as connection:
            return bool((await connection.execute(self._sql.FORGET, parameters)).rowcount)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[AsyncConnection]:
        try:
            async with self._engine.connect() as connection:
                yield connection
        except (self._sql.Error, OSError) as error:
            log.error("the store failed: %s", self._without_password(_first_line(error)))  # noqa: TRY400 - the statement's place tells nothing
            raise HttpError("store_unavailable", "the store of replies does not answer") from None


def _first_line(error: Exception) -> str:
    """The database's first line; the others may hold what a row holds."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def _to_response(row: Any, owner: str) -> StoredResponse:
    return StoredResponse(row.id, owner, row.previous, row.body, row.input)


def _engine(url: str) -> AsyncEngine:
    from sqlalchemy import event  # noqa: PLC0415 - imported for a store alone
    from sqlalchemy.engine import make_url  # noqa: PLC0415
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    try:
        where = make_url(url)
    except (ArgumentError, ValueError):  # such as for a port that is no number; what they say has the password in it
        raise CallerError("not a database's URL", path="store", hint=_HINT) from None
    driver = _DRIVERS.get(where.drivername)
    if driver is None or not where.database:
        raise CallerError("no such store", path="store", hint=_HINT)
    local = driver.startswith("sqlite")
    if local:
        _make_file(where.database)
    # Each statement is whole by itself.
    engine = create_async_engine(
        where.set(drivername=driver),
        isolation_level="AUTOCOMMIT",
        skip_autocommit_rollback=True,
        hide_parameters=True,
        pool_pre_ping=not local,
    )
    event.listen(engine.sync_engine, "connect", partial(_prepare, _SQLITE if local else _POSTGRESQL))
    return engine


def _make_file(path: str) -> None:
    """For the user alone: conversations are nobody else's. What SQLite puts beside it gets the same mode."""
    try:
        os.close(os.open(Path(path), os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise CallerError(error.strerror or "cannot be written", path=f"store: {path}") from None


def _prepare(statements: Iterable[str], connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()

"""Results of tools that are kept for later runs, in the database of durable jobs.

Laws: at most `MAX_ROWS` results and `MAX_BYTES` bytes are kept, the oldest go first; what has expired is never given,
and removed by the next result that is kept; whatever is in a row that is no result is passed over.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    inspect,
    or_,
    select,
)

from callboard.core import ResultCanister
from callboard.jobs.database import Database
from callboard.jobs.database_url import database_url
from callboard.jobs.tables import INSERTIONS, PREFIX, lock_tables

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 128 * 1024 * 1024
MAX_RESULT: Final = 1024 * 1024
"""Bytes of a result. One that is longer is not kept."""

_results = Table(
    f"{PREFIX}results",
    MetaData(),
    Column("key", Text, primary_key=True),
    Column("saved_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    # With the size, so that no content is read to see how much there is.
    Index(f"{PREFIX}results_sizes", "saved_at", "key", "size"),
)
"""Made where a tool asks for it: most databases have none."""
_c = _results.c
_newest_first: Any = (_c.saved_at.desc(), _c.key)
_counted = select(
    _c.key,
    func.row_number().over(order_by=_newest_first).label("place"),
    func.sum(_c.size).over(order_by=_newest_first).label("bytes"),
).subquery()
_decoder = msgspec.json.Decoder(ResultCanister)


class DatabaseResults:
    """The results in a database; see `StoredResults`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        """Takes the database, in which it makes its table, and a clock of seconds since 1970."""
        self.database = database
        self._clock = clock
        database.run_blocking(_create_table, patience=0)

    async def find(self, key: bytes, seconds: float) -> ResultCanister | None:
        """A result that was saved within the last `seconds`. Raises DatabaseUnavailable."""
        now = self._clock()
        # A clock that was set back makes nothing last longer.
        query = select(_c.content).where(
            _c.key == key.hex(), _c.expires_at > now, _c.saved_at > now - seconds, _c.saved_at <= now
        )
        content = await self.database.read(lambda connection: connection.scalar(query))
        try:
            return None if content is None else _decoder.decode(content)
        except (msgspec.MsgspecError, RecursionError):
            return None

    async def save(self, key: bytes, result: ResultCanister, seconds: float) -> None:
        """Keep a result for so long. Raises DatabaseUnavailable."""
        content = await asyncio.to_thread(msgspec.json.encode, result)
        if len(content) > MAX_RESULT:
            return
        now = self._clock()
        row = {
            "key": key.hex(),
            "saved_at": now,
            "expires_at": now + seconds,
            "size": len(content),
            "content": content,
        }

        def write(connection: Connection) -> None:
            insertion = INSERTIONS[connection.dialect.name](_results).values(row)
            connection.execute(insertion.on_conflict_do_update(index_elements=["key"], set_=row))
            connection.execute(delete(_results).where(_c.expires_at <= now))
            count, total = connection.execute(select(func.count(), func.sum(_c.size)).select_from(_results)).one()
            if count > MAX_ROWS or total > MAX_BYTES:
                too_many = or_(_counted.c.place > MAX_ROWS, _counted.c.bytes > MAX_BYTES)
                connection.execute(delete(_results).where(_c.key.in_(select(_counted.c.key).where(too_many))))

        await self.database.run(write)


def _create_table(connection: Connection) -> None:
    if not inspect(connection).has_table(_results.name):
        lock_tables(connection)
        _results.create(connection, checkfirst=True)


_open: dict[str, DatabaseResults] = {}
_opening = threading.Lock()


def open_results() -> DatabaseResults:
    """Those in the database of this process, which stays open. It blocks. Raises CallerError, DatabaseUnavailable."""
    url = database_url()
    with _opening:
        if url not in _open:
            database = Database.open(url)
            try:
                _open[url] = DatabaseResults(database)
            except BaseException:
                database.close()
                raise
        return _open[url]


@atexit.register
def close_results() -> None:
    """Close what `open_results` opened."""
    with _opening:
        for results in _open.values():
            results.database.close()
        _open.clear()

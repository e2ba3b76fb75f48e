"""The tables of durable jobs, the same for SQLite and PostgreSQL, their version, and their rows as values.

`callboard_jobs` has the fields that lists show. Its rows are small, because each write of a run changes a row. Long
fields are in other tables. Times are whole microseconds since 1970 in UTC, and JSON is text, so both databases return
exactly what was written. Entries are only added, and removed with their job.

Law: characters that a database cannot store are escaped, so a job never fails because of a file's name.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from callboard.errors import CallerError
from callboard.jobs import HINT
from callboard.text.surrogates import encode_json, escape_surrogates

T = TypeVar("T", bound=msgspec.Struct)

VERSION: Final = 6
"""Version of the tables. It increases when they change."""
_OLDEST: Final = 3
"""Oldest version that is updated in place."""
PREFIX: Final = "callboard_"
_LOCK: Final = 0x63616C6C
"""PostgreSQL's advisory lock for the creation of tables."""

_CLAIMS_LOCK: Final = 0x71756575
"""PostgreSQL's advisory lock for claims of segments."""

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""Type of keys. SQLite numbers rows automatically only if the column is INTEGER."""
_tables = sa.MetaData()


def _texts(*names: str, default: str = "") -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False, default=default) for name in names]


def _integers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer, nullable=False) for name in names]


def _job_key() -> sa.Column[int]:
    return sa.Column("job", sa.BigInteger, primary_key=True, autoincrement=False)


jobs = sa.Table(
    f"{PREFIX}jobs",
    _tables,
    sa.Column("key", _KEY, primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False, default=0),
    sa.Column("failures", sa.Integer, nullable=False, default=0),  # runners that died without progress
    # The following columns are the fields of JobSummary.
    sa.Column("id", sa.Text, nullable=False, unique=True),
    *_texts("kind", "state", "reason", "waits_for", "title", "directory", "model", "error", "phase"),
    *_texts("queue", "partition", "executor", "parent", "schedule", "usage"),
    *_integers("priority", "segment", "attempts", "rounds", "calls", "entries"),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("cost", sa.Double),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("completed_at", sa.BigInteger),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Index(f"{PREFIX}jobs_state", "state", "id"),
)
# A run changes its row often, so leave room for new versions on the same page.
_fill = sa.DDL("ALTER TABLE %(table)s SET (fillfactor = 60)")  # type: ignore[no-untyped-call]
sa.event.listen(jobs, "after_create", _fill.execute_if(dialect="postgresql"))

documents = sa.Table(
    f"{PREFIX}documents",
    _tables,
    _job_key(),
    *_texts("description", "input", "memory"),
    sa.Column("output", sa.Text),
)

entries = sa.Table(
    f"{PREFIX}entries",
    _tables,
    sa.Column("job", sa.BigInteger, nullable=False),
    *_integers("number", "round"),
    *_texts("line"),
    sa.UniqueConstraint("job", "number"),
)

open_calls = sa.Table(
    f"{PREFIX}open_calls",
    _tables,
    _job_key(),
    sa.Column("call_id", sa.Text, primary_key=True),
    *_texts("name"),
    sa.Column("begun_at", sa.BigInteger, nullable=False),
    *_integers("segment", "entries"),
)

approvals = sa.Table(
    f"{PREFIX}approvals",
    _tables,
    _job_key(),
    sa.Column("call_id", sa.Text, primary_key=True),
    *_integers("position"),
    *_texts("name", "why", "digest", "verdict", "reason", "text", "token"),
    sa.Column("arguments", sa.Text),
    sa.Column("edited", sa.Text),
    sa.Column("parameters", sa.Text),
    sa.Column("is_question", sa.Boolean, nullable=False),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("answered_at", sa.BigInteger),
)

drafts = sa.Table(
    f"{PREFIX}drafts",
    _tables,
    _job_key(),
    *_integers("entries", "characters"),
    sa.Column("begun_at", sa.BigInteger, nullable=False),
    *_texts("pieces"),
)
"""Replies that models are writing. `entries` is the number of the job's entries before the reply."""

declarations = sa.Table(
    f"{PREFIX}declarations", _tables, sa.Column("digest", sa.Text, primary_key=True), *_texts("line")
)
"""Sets of tools that models saw, by their digests. See `declared_tools.py`."""

job_tools = sa.Table(
    f"{PREFIX}job_tools",
    _tables,
    _job_key(),
    sa.Column("entries", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False, index=True),
)
"""The sets of each job. `entries` is the number of the job's entries before the set was declared."""

notifications = sa.Table(
    f"{PREFIX}notifications",
    _tables,
    _job_key(),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.Text, primary_key=True),
    *_texts("reason", "waits_for"),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("due_at", sa.BigInteger, nullable=False, index=True),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    *_texts("done", default="[]"),
)

schedules = sa.Table(
    f"{PREFIX}schedules",
    _tables,
    sa.Column("name", sa.Text, primary_key=True),
    *_texts("cron", "zone", "template", "last_job"),
    sa.Column("is_paused", sa.Boolean, nullable=False),
    sa.Column("next_at", sa.BigInteger, nullable=False),
    sa.Column("last_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

model_starts = sa.Table(
    f"{PREFIX}model_starts",
    _tables,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("next_at", sa.BigInteger, nullable=False),
)

day_costs = sa.Table(
    f"{PREFIX}day_costs",
    _tables,
    sa.Column("day", sa.Text, primary_key=True),
    sa.Column("cost", sa.Double, nullable=False),
)

segments = sa.Table(
    f"{PREFIX}segments",
    _tables,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    *_texts("queue", "partition"),
    *_integers("priority"),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("executor", sa.Text),
    sa.Column("lease_until", sa.BigInteger),
    sa.Index(f"{PREFIX}segments_due", "queue", "priority", "due_at"),
    sa.Index(f"{PREFIX}segments_partition", "queue", "partition"),
    sa.Index(f"{PREFIX}segments_executor", "executor"),
)
"""The queue: segments that are due, delayed or running. Its times are milliseconds of the database's clock."""

queue_limits = sa.Table(
    f"{PREFIX}queue_limits",
    _tables,
    sa.Column("queue", sa.Text, primary_key=True),
    *_integers("starts"),
    *_texts("started", default="[]"),
)
"""Limits of starts per minute for each queue, and the times of the last minute's starts."""

_schema = sa.Table(f"{PREFIX}schema", _tables, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))

PARTS: Final[Iterable[sa.Table]] = (documents, entries, open_calls, approvals, drafts, notifications)
"""Tables whose rows are removed with their job."""


def has_tables(connection: sa.Connection, place: str) -> bool:
    """Return whether all tables exist. Versions 4 to 6 only add tables and a column to version 3.

    Raises:
        CallerError: Another version of Callboard made them, or another program made the file.
    """
    names = set(sa.inspect(connection).get_table_names())
    if _schema.name in names:
        return _has_version(connection, place)
    if connection.dialect.name == "sqlite" and names and not any(name.startswith(PREFIX) for name in names):
        raise CallerError("the file is the database of another program", path=place, hint=HINT)
    return False


def create_tables(connection: sa.Connection, place: str) -> None:
    """Create missing tables, in one transaction.

    Args:
        connection: A connection in a transaction that writes.
        place: Name of the database, for errors.

    Raises:
        CallerError: As `has_tables`.
    """
    lock_claims(connection, _LOCK)
    if not has_tables(connection, place):
        _tables.create_all(connection)
        if "parameters" not in {each["name"] for each in sa.inspect(connection).get_columns(approvals.name)}:
            connection.execute(sa.text(f"ALTER TABLE {approvals.name} ADD COLUMN parameters TEXT"))
        connection.execute(sa.delete(_schema))
        connection.execute(sa.insert(_schema), {"version": VERSION})


def lock_claims(connection: sa.Connection, lock: int = _CLAIMS_LOCK) -> None:
    """Block other claims of segments until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite's transaction blocks every other one
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))


def _has_version(connection: sa.Connection, place: str) -> bool:
    version = connection.scalar(sa.select(sa.func.max(_schema.c.version))) or 0
    if not _OLDEST <= version <= VERSION:
        message = f"its jobs have version {version}, but this Callboard reads only version {VERSION}"
        remove = f"rm {shlex.quote(place)}*" if connection.dialect.name == "sqlite" else "drop the database"
        older = f"{remove} removes them, or name another database"
        raise CallerError(message, path=place, hint=older if version < VERSION else "update Callboard")
    return version == VERSION


_CLOCKS: Final = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
}


def clock(dialect: str) -> sa.ColumnElement[int]:
    """Return the time of the database in milliseconds, the one clock that all workers share."""
    return sa.literal_column(_CLOCKS[dialect], sa.BigInteger)


def has_lease(dialect: str) -> sa.ColumnElement[bool]:
    """Return the condition that an executor has the lease of a segment."""
    return segments.c.executor.is_not(None) & (segments.c.lease_until >= clock(dialect))


def lease_renewal(dialect: sa.Dialect, executor: str, seconds: float) -> str:
    """Return the statement that renews the leases of an executor for so many seconds, and returns their segments."""
    statement = sa.update(segments).where(segments.c.executor == executor).returning(*segments.primary_key)
    renewed = statement.values(lease_until=clock(dialect.name) + int(seconds * 1000))
    return str(renewed.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def insert_once(table: sa.Table, connection: sa.Connection) -> Any:
    """Return an insertion that keeps existing rows, which an unacknowledged commit wrote."""
    return _insert_once(table, connection.dialect.name)


@cache
def _insert_once(table: sa.Table, dialect: str) -> Any:
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415  # takes 30 ms

    return postgresql.insert(table).on_conflict_do_nothing()


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970, exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_moment(microseconds: int) -> datetime:
    """Return the time in UTC."""
    return _EPOCH + timedelta(0, 0, microseconds)


def to_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job or an approval as values of columns."""
    return {name: _to_column(value) for name, value in fields.items()}


def _to_column(value: Any) -> Any:
    match value:
        case str():
            return escape_surrogates(value).replace("\0", "\\x00")
        case datetime():
            return to_microseconds(value)
        case dict():
            return encode_json(value).decode()
        case _:
            return value


def from_rows(rows: sa.Result[Any], kind: type[T]) -> Iterator[T]:
    """Yield the values of rows. Columns have the names of the fields; other columns are ignored.

    Raises:
        CallerError: A row is in another format.
    """
    names = tuple(map(str, rows.keys()))  # SQLAlchemy's names have a type of their own
    conversions = [(name, _FROM_COLUMN[name]) for name in names if name in _FROM_COLUMN]
    for row in rows.all():
        fields = dict(zip(names, row, strict=True))
        try:
            for name, convert in conversions:
                if (value := fields[name]) is not None:
                    fields[name] = convert(value)
            yield msgspec.convert(fields, kind)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CallerError(f"not a row of a job: {error}", path=str(fields.get("id", ""))) from None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = (
    *("created_at", "started_at", "completed_at", "updated_at", "asked_at", "answered_at"),
    *("begun_at", "next_at", "last_at"),
)
_JSON: Final = ("usage", "input", "memory", "output", "arguments", "edited", "parameters", "template")
_FROM_COLUMN: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(_TIMES, to_moment),
    **dict.fromkeys(_JSON, msgspec.json.Decoder(dict[str, Any]).decode),
}

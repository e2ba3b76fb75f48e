"""The store's table, and what is said to it.

Owns the SQL, for SQLite and PostgreSQL alike. Imported when a store is configured, since it needs SQLAlchemy.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Executable,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
)
from sqlalchemy.exc import SQLAlchemyError as Error
from sqlalchemy.schema import CreateIndex, CreateTable

__all__ = [
    "BEGIN",
    "CONVERSATION",
    "EXPIRE",
    "FIND",
    "FORGET",
    "KEEP",
    "MAKE",
    "SHRINK",
    "VERSION",
    "WRITTEN_BY",
    "Error",
]

_replies = Table(
    "callboard_replies",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("input", LargeBinary, nullable=False),
)
_c = _replies.c
_written_by = Table("callboard_store", MetaData(), Column("version", Integer, primary_key=True, autoincrement=False))
"""One row: the version of the tables beside it."""
_EXPIRES = Index("callboard_replies_expires", _c.expires)
_AGES = Index("callboard_replies_created", _c.created, _c.id, _c.size)
"""With the size, so that a cleaning reads no bodies."""

VERSION = 1
"""Counts up when the tables change, with statements that change the earlier ones."""
BEGIN: tuple[Executable, ...] = (
    CreateTable(_written_by, if_not_exists=True),
    insert(_written_by).from_select(
        ["version"], select(literal(VERSION, Integer)).where(~exists(select(_written_by.c.version)))
    ),
)
"""What comes before WRITTEN_BY. A store without a version is of the first."""
WRITTEN_BY = select(func.max(_written_by.c.version))

MAKE: tuple[Executable, ...] = (
    CreateTable(_replies, if_not_exists=True),
    CreateIndex(_EXPIRES, if_not_exists=True),
    CreateIndex(_AGES, if_not_exists=True),
)

KEEP = insert(_replies)

_theirs = (_c.owner == bindparam("owner"), _c.expires > bindparam("now"))

FIND = select(_c.id, _c.previous, _c.body, _c.input).where(_c.id == bindparam("id"), *_theirs)

FORGET = delete(_replies).where(_c.id == bindparam("id"), *_theirs)

EXPIRE = delete(_replies).where(_c.expires <= bindparam("now"))

_summed = select(_c.id, func.sum(_c.size).over(order_by=(_c.created.desc(), _c.id.desc())).label("total")).subquery()
SHRINK = delete(_replies).where(_c.id.in_(select(_summed.c.id).where(_summed.c.total > bindparam("most"))))
"""Keeps the newest that are `most` bytes together."""

_last = (
    select(_c.id, _c.previous, literal(0, Integer).label("depth"), _c.size.label("total"))
    .where(_c.id == bindparam("id"), *_theirs)
    .cte("chain", recursive=True)
)
_before = _last.alias("before")
_earlier = _replies.alias("earlier")
_chain = _last.union_all(
    select(_earlier.c.id, _earlier.c.previous, _before.c.depth + 1, _before.c.total + _earlier.c.size).where(
        _earlier.c.id == _before.c.previous,
        _earlier.c.owner == bindparam("owner"),
        _earlier.c.expires > bindparam("now"),
        _before.c.total + _earlier.c.size <= bindparam("most"),
        _before.c.depth + 1 < bindparam("longest"),
    )
)
CONVERSATION = (
    select(_c.id, _c.previous, _c.body, _c.input).join(_chain, _chain.c.id == _c.id).order_by(_chain.c.depth.desc())
)
"""A reply and those before it, as far as `most` bytes and `longest` replies go."""

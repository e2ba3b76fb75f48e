"""The tools that the model of a job saw: their names, descriptions and parameters.

Each distinct set of tools is stored once, by its digest, for all jobs. A job has a row for each change of its tools.

Law: a set is removed with the last job that refers to it. An advisory lock keeps a new reference from a removed set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, exists, insert, literal, select

from callboard.core import ToolDeclaration
from callboard.jobs.database import Database
from callboard.jobs.queries import key_of
from callboard.jobs.tables import declarations, insert_once, job_tools, lock_claims
from callboard.text.surrogates import encode_json

MAX_BYTES: Final = 512 * 1024
"""Maximum bytes of a set. Only the names of further tools are stored."""
MAX_TOOLS: Final = 1000
"""Maximum tools of a set."""
MAX_CHANGES: Final = 100
"""Maximum changes of the tools of one job."""
NOT_STORED: Final = "(not stored: the tools of this job are too large)"
_MAX_NAME: Final = 200
_LOCK: Final = 0x746F6F6C
"""PostgreSQL's advisory lock for sets."""
_decoder = msgspec.json.Decoder(tuple[ToolDeclaration, ...])


class DeclaredTools(NamedTuple):
    """A set of tools, and the number of entries before it was declared."""

    entries: int
    tools: tuple[ToolDeclaration, ...]


def encode_tools(tools: Sequence[ToolDeclaration]) -> str:
    """Return a set as JSON of bounded size."""
    stored: list[Any] = []
    size = 0
    for tool in tools[:MAX_TOOLS]:
        whole = msgspec.to_builtins(tool, enc_hook=dict)
        size += len(encode_json(whole))
        stored.append(whole if size <= MAX_BYTES else {"name": tool.name[:_MAX_NAME], "description": NOT_STORED})
    return encode_json(stored).decode()


def store_tools(connection: Connection, job: int, entries: int, tools: Sequence[ToolDeclaration]) -> None:
    """Store the tools that the next reply of a job may call, unless they are the job's last ones."""
    line = encode_tools(tools)
    digest = hashlib.sha256(line.encode()).hexdigest()
    known = select(job_tools.c.digest).where(job_tools.c.job == job).order_by(job_tools.c.entries)
    digests = connection.scalars(known).all()
    if digests[-1:] == [digest] or len(digests) >= MAX_CHANGES:
        return
    lock_claims(connection, _LOCK)
    connection.execute(insert_once(declarations, connection), {"digest": digest, "line": line})
    connection.execute(delete(job_tools).where(job_tools.c.job == job, job_tools.c.entries == entries))
    connection.execute(insert(job_tools), {"job": job, "entries": entries, "digest": digest})


def copy_tools(connection: Connection, source: int, target: int, entries: int) -> None:
    """Copy the tools of a job's first entries to another job."""
    copied = select(literal(target), job_tools.c.entries, job_tools.c.digest).where(
        job_tools.c.job == source, job_tools.c.entries <= entries
    )
    lock_claims(connection, _LOCK)
    connection.execute(insert(job_tools).from_select(["job", "entries", "digest"], copied))


def remove_tools(connection: Connection, job: int) -> None:
    """Remove the tools of a job, except sets of other jobs."""
    lock_claims(connection, _LOCK)
    removed = delete(job_tools).where(job_tools.c.job == job).returning(job_tools.c.digest)
    digests = set(connection.scalars(removed))
    is_used = exists().where(job_tools.c.digest == declarations.c.digest)
    connection.execute(delete(declarations).where(declarations.c.digest.in_(digests), ~is_used))


def merge_tools(sets: Sequence[DeclaredTools]) -> tuple[ToolDeclaration, ...]:
    """Return the tools of all sets. A later declaration of a name replaces an earlier one."""
    return tuple({tool.name: tool for each in sets for tool in each.tools}.values())


async def read_tools(database: Database, identifier: str) -> Sequence[DeclaredTools]:
    """Return the sets of a job, in order. Raises CallerError if the job does not exist."""
    query = select(job_tools.c.entries, declarations.c.line).join(
        declarations, declarations.c.digest == job_tools.c.digest
    )

    def read(connection: Connection) -> list[DeclaredTools]:
        its = query.where(job_tools.c.job == key_of(connection, identifier)).order_by(job_tools.c.entries)
        return [DeclaredTools(entries, _decoder.decode(line)) for entries, line in connection.execute(its)]

    return await database.read(read)

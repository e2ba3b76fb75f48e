"""Activities of running jobs: the calls that run, and the reply that a model is writing.

The process that runs a job stores a draft of a reply that takes longer than `DRAFT_SECONDS`, and replaces it as often.
So every process can show the reply from its beginning. A draft that is older than the job's last entry is ignored. The
cost is one small commit per second for each job whose model is writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, insert, select

from callboard.core import ArgumentsPiece, Event, InvocationStarted, ReasoningPiece, RefusalPiece, TextPiece
from callboard.errors import CallboardError
from callboard.jobs.claim import Claim
from callboard.jobs.database import Database
from callboard.jobs.queries import key_of
from callboard.jobs.streams import JobStreams, OpenReply
from callboard.jobs.tables import drafts, jobs, open_calls, to_microseconds, to_moment
from callboard.text.surrogates import encode_json

DRAFT_SECONDS: Final = 1.0
"""Seconds between the drafts of a reply."""
_decode_pieces: Final = msgspec.json.Decoder(
    list[TextPiece | ReasoningPiece | RefusalPiece | InvocationStarted | ArgumentsPiece]
).decode


class Draft(NamedTuple):
    """A reply that is being written."""

    begun_at: datetime
    characters: int


class JobActivity(NamedTuple):
    """The calls that run, with their times of start, and the open reply of a job."""

    calls: Sequence[tuple[str, datetime]]
    draft: Draft | None


async def read_activities(database: Database, identifiers: Collection[str]) -> Mapping[str, JobActivity]:
    """Return what these running jobs do."""
    running = (jobs.c.state == "running") & jobs.c.id.in_(sorted(identifiers))
    calls = select(jobs.c.id, open_calls.c.name, open_calls.c.begun_at).join(jobs, jobs.c.key == open_calls.c.job)
    open_drafts = select(jobs.c.id, drafts.c.begun_at, drafts.c.characters).join(jobs, jobs.c.key == drafts.c.job)

    def read(connection: Connection) -> Mapping[str, JobActivity]:
        activities: dict[str, JobActivity] = {}
        for identifier, begun_at, characters in connection.execute(
            open_drafts.where(running, drafts.c.entries == jobs.c.entries)
        ):
            activities[identifier] = JobActivity((), Draft(to_moment(begun_at), characters))
        for identifier, name, begun_at in connection.execute(calls.where(running).order_by(open_calls.c.begun_at)):
            known = activities.get(identifier, JobActivity((), None))
            activities[identifier] = known._replace(calls=(*known.calls, (name, to_moment(begun_at))))
        return activities

    return await database.read(read) if identifiers else {}


async def read_draft(database: Database, identifier: str, entries: int) -> list[Event]:
    """Return the pieces of the reply that follows so many entries, with adjoining texts joined."""
    query = select(drafts.c.pieces).join(jobs, jobs.c.key == drafts.c.job)
    its = query.where(jobs.c.id == identifier, drafts.c.entries == entries)
    text = await database.read(lambda connection: connection.scalar(its))
    return [*_decode_pieces(text)] if text else []


def find_new_pieces(before: Sequence[Event], after: Sequence[Event]) -> list[Event]:
    """Return what a later draft of the same reply adds."""
    fresh = list(after[max(0, len(before) - 1) :])
    if before and fresh and type(fresh[0]) is type(before[-1]):
        for name in ("text", "json"):
            if (old := getattr(before[-1], name, None)) is not None:
                fresh[0] = msgspec.structs.replace(fresh[0], **{name: getattr(fresh[0], name)[len(old) :]})
                return fresh
    return fresh[1:] if before else fresh


@asynccontextmanager
async def store_drafts(database: Database, claim: Claim, streams: JobStreams) -> AsyncGenerator[None]:
    """Store drafts of the replies of a segment while it runs, and remove the last one afterwards."""
    has_stored = False
    ended = asyncio.Event()

    async def store() -> None:
        nonlocal has_stored
        written = (0, 0)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAFT_SECONDS):
                    await ended.wait()
                    return
            reply, entries = streams.open_reply(claim.job.id), claim.job.entries
            if reply is None or (entries, reply.characters) == written:
                continue
            written, has_stored = (entries, reply.characters), True
            with suppress(CallboardError):  # the database is away: the run itself notices and decides
                await _write_draft(database, claim.job.id, entries, reply)

    storing = asyncio.create_task(store())
    try:
        yield
    finally:
        ended.set()  # a draft that is being written is written, so that it can be removed
        await asyncio.gather(storing, return_exceptions=True)
        if has_stored:
            with suppress(CallboardError):
                await database.run(lambda connection: _remove_draft(connection, claim.job.id))


async def _write_draft(database: Database, identifier: str, entries: int, reply: OpenReply) -> None:
    row = {
        "entries": entries,
        "characters": reply.characters,
        "begun_at": to_microseconds(reply.begun_at),
        "pieces": encode_json(reply.pieces()).decode(),
    }

    def write(connection: Connection) -> None:
        key = _remove_draft(connection, identifier)
        connection.execute(insert(drafts), {"job": key, **row})

    await database.run(write)


def _remove_draft(connection: Connection, identifier: str) -> int:
    key = key_of(connection, identifier)
    connection.execute(delete(drafts).where(drafts.c.job == key))
    return key

"""What a running job does, as another process sees it."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text, update
from tests.jobs.test_agent_kind import Bench

from callboard.core import ArgumentsPiece, InvocationCanister, InvocationStarted, ReasoningPiece, ReplyEnded, TextPiece
from callboard.jobs import activity, tables
from callboard.jobs.activity import find_new_pieces, read_activities, read_draft
from callboard.jobs.database import Database
from callboard.jobs.streams import MAX_REPLY, JobStreams, OpenReply

PIECES = st.one_of(
    st.builds(TextPiece, st.text(max_size=3)),
    st.builds(ReasoningPiece, st.text(max_size=3)),
    st.builds(InvocationStarted, st.integers(0, 2), st.just("c"), st.just("look")),
    st.builds(ArgumentsPiece, st.integers(0, 2), st.text(max_size=3)),
)


def join(pieces):
    reply = OpenReply()
    for each in pieces:
        reply.add(each)
    return reply.pieces()


@given(st.lists(PIECES), st.data())
def test_drafts_of_a_reply_bring_each_piece_once(pieces, data):
    cut = data.draw(st.integers(0, len(pieces)))
    before, after = join(pieces[:cut]), join(pieces)
    assert join([*before, *find_new_pieces(before, after)]) == after
    assert "".join(getattr(each, "text", "") for each in after) == "".join(getattr(each, "text", "") for each in pieces)


async def test_a_late_follower_gets_the_reply_from_its_beginning():
    streams = JobStreams()
    for each in ("one ", "two "):
        streams.publish("job", TextPiece(each))
    with streams.subscribe("job") as news:
        streams.publish("job", TextPiece("three"))
        assert [await news.next(0) for _ in range(3)] == [TextPiece("one two "), TextPiece("three"), None]
    streams.announce("job", 1)
    with streams.subscribe("job") as news:
        assert await news.next(0) is None


def test_an_endless_reply_is_kept_in_part():
    reply = OpenReply()
    for _ in range(300):
        reply.add(TextPiece("x" * 1000))
    assert reply.characters == 300_000
    assert sum(len(each.text) for each in reply.pieces()) == MAX_REPLY


async def test_another_process_sees_what_is_written_and_what_runs(database, monkeypatch):
    monkeypatch.setattr(activity, "DRAFT_SECONDS", 0.01)
    goes_on = asyncio.Event()

    async def reply(_):
        yield [TextPiece("Once upon ")]
        yield [TextPiece("a time")]
        await goes_on.wait()
        yield [ReplyEnded("stop")]

    bench = Bench([])
    monkeypatch.setattr(bench.model, "batches", reply)
    queue = bench.queue(database)
    job = await queue.submit()
    running = asyncio.create_task(queue.drain())
    while not (found := await read_activities(database, [job.id])):  # noqa: ASYNC110  # it happens in a database
        await asyncio.sleep(0.01)
    assert found[job.id].draft.characters == 16
    entries = (await queue.store.get(job.id)).entries
    assert await read_draft(database, job.id, entries) == [TextPiece("Once upon a time")]
    assert await read_draft(database, job.id, entries - 1) == []
    goes_on.set()
    await running
    assert database.read_blocking(lambda connection: connection.execute(select(tables.drafts)).all()) == []
    assert await read_activities(database, [job.id]) == {}


async def test_calls_that_run(store):
    job = await store.create("agent")
    claim = await store.claim(job.id, 1, "worker")
    calls = [InvocationCanister(identifier=name, name=name, arguments={}) for name in ("look", "change")]
    await claim.append(calls, rounds=1)
    await claim.begin_calls(calls)
    found = await read_activities(store.database, [job.id, "unknown"])
    assert sorted(name for name, _ in found[job.id].calls) == ["change", "look"]


def test_a_database_of_an_earlier_version_is_updated(url):
    with Database.open(url) as database:
        database.run_blocking(lambda connection: connection.execute(text("DROP TABLE callboard_drafts")))
        column = f"ALTER TABLE {tables.approvals.name} DROP COLUMN parameters"
        database.run_blocking(lambda connection: connection.execute(text(column)))
        database.run_blocking(lambda connection: connection.execute(update(tables._schema).values(version=3)))
    with Database.open(url) as database:
        for table in (tables.drafts, tables.approvals):
            assert database.read_blocking(lambda connection, of=table: connection.execute(select(of)).all()) == []
        version = select(tables._schema.c.version)
        assert database.read_blocking(lambda connection: connection.scalars(version).all()) == [tables.VERSION]

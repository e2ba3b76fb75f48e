"""The cost of a long job is proportional to its transcript, and it resumes with as few queries as a short job."""

import os

from sqlalchemy import event
from tests.jobs.local_queue import LocalQueue, new_watch

from callboard import Agent, Limits, tool
from callboard.jobs.database import Database
from callboard.testing import Call, ScriptedModel

ROUNDS = 1000
KILOBYTES = 200


@tool
async def read(page: int) -> str:
    """Read a page."""
    return f"{page:04}" * (KILOBYTES * 1000 // ROUNDS // 4)


def reply(request):
    page = (len(request.canisters) - 1) // 2
    return "Done." if page == ROUNDS else Call("read", {"page": page})


def new_agent(replies):
    return Agent(ScriptedModel(replies), [read], limits=Limits(rounds=2 * ROUNDS))


async def test_the_database_is_at_most_twice_the_transcript(tmp_path):
    path = tmp_path / "jobs.db"
    with Database.open(f"sqlite:///{path}") as database:
        queue = LocalQueue(database, {"test:agent": new_agent(iter(lambda: reply, None))})
        job = await queue.submit()
        assert await queue.drain() == ROUNDS // 50 + 1
        job = await queue.store.get(job.id)
        assert (job.state, job.rounds, job.entries) == ("completed", ROUNDS + 1, 2 * ROUNDS + 2)
        transcript = sum(len(each.line) + 1 for each in await queue.store.read_entries(job.id))
    assert transcript > KILOBYTES * 1000
    assert os.stat(path).st_size <= 2 * transcript  # noqa: PTH116  # closed, it is one file


async def count_queries(database, rounds):
    """Return the number of queries to continue a job of so many rounds, before the model is asked."""
    counts = []
    replies = [
        *[Call("read", {"page": page}) for page in range(rounds)],
        lambda _: counts.append(len(queries)) or "Done.",
    ]
    queue = LocalQueue(database, {"test:agent": new_agent(replies)})
    job = await queue.submit()
    queries = []

    def note(_connection, _cursor, statement, *_):
        queries.append(statement)

    watch = new_watch()
    while len(queue.queued) and (await queue.store.get(job.id)).rounds < rounds:
        await queue.runner(*queue.queued.popleft(), watch)
    event.listen(database.engine, "before_cursor_execute", note)
    queries.clear()
    await queue.drain()
    event.remove(database.engine, "before_cursor_execute", note)
    return counts[0]


async def test_a_job_is_found_again_in_as_many_queries_however_long_it_is(database):
    short, long = await count_queries(database, 50), await count_queries(database, 150)
    assert 0 < short == long

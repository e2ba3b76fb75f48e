"""Segments are queued in our transactions, and each runs once, in order and within limits."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
import sqlalchemy as sa

from callboard.coding.job import Notice
from callboard.configuration.jobs import QueueSettings
from callboard.core import AssistantCanister
from callboard.jobs import engine as engine_module
from callboard.jobs import worker as worker_module
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.job import DurableJob
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import EmbeddedWorker, Worker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = 120


def make_job(identifier, **fields):
    return DurableJob(id=identifier, kind="test", created_at=NOW, updated_at=NOW, **fields)


@pytest.fixture
def engine(database):
    return EmbeddedEngine(database)


class Runner:
    """Records which segments run, and how many at once."""

    def __init__(self, hold=False, fail=()):
        self.begun = []
        self.at_once = 0
        self.together = []
        self.go = asyncio.Event()
        self.fail = set(fail)
        if not hold:
            self.go.set()

    async def __call__(self, job_id, number, control):
        self.begun.append(f"{job_id}-{number}")
        if job_id in self.fail:
            raise OSError("no disk")
        self.at_once += 1
        self.together.append(self.at_once)
        await self.go.wait()
        await asyncio.sleep(0)
        self.at_once -= 1


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in a database
            await asyncio.sleep(0.01)


async def wait_for_end(store, job):
    async with asyncio.timeout(PATIENCE):
        while not (job := await store.get(job.id)).has_ended:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.05)
    return job


@asynccontextmanager
async def serve(engine, runner, **settings):
    async with Worker(engine, DurableStore(engine.database, engine.enqueue), runner, **settings) as worker:
        yield worker


async def enqueue(engine, *jobs):
    await engine.database.run(lambda connection: [engine.enqueue(connection, job) for job in jobs])


def read_rows(engine):
    with engine.database.engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT * FROM callboard_segments ORDER BY job, segment"))
        return [dict(row._mapping) for row in rows]


async def test_a_segment_runs_once_however_often_it_is_queued(engine):
    runner = Runner()
    await enqueue(engine, make_job("a"), make_job("a"))
    async with serve(engine, runner) as worker:
        await enqueue(engine, make_job("a"))
        await worker.run(until_idle=0.2)
        await enqueue(engine, make_job("a", segment=2))
        await until(lambda: len(runner.begun) > 1)
    assert runner.begun == ["a-1", "a-2"]
    assert read_rows(engine) == []


async def test_a_claim_whose_commit_went_unnoticed_is_not_lost(engine, monkeypatch):
    """Each transaction runs twice, as after a connection that broke after the commit."""
    run, runner = engine.database.run, Runner()

    async def run_twice(work):
        await run(work)
        return await run(work)

    await enqueue(engine, make_job("a"), make_job("b", partition="p"), make_job("c", partition="p"))
    monkeypatch.setattr(engine.database, "run", run_twice)
    async with serve(engine, runner, concurrency=2) as worker:
        await worker.run(until_idle=0.2)
    assert sorted(runner.begun) == ["a-1", "b-1", "c-1"]
    assert read_rows(engine) == []


async def test_what_is_rolled_back_was_never_queued(engine):
    def fail(connection):
        engine.enqueue(connection, make_job("a"))
        raise LookupError

    with pytest.raises(LookupError):
        await engine.database.run(fail)
    assert read_rows(engine) == []


async def test_the_lowest_priority_comes_first_and_then_the_oldest(engine):
    runner = Runner()
    for name, priority in (("c", 0), ("d", 0), ("e", 5), ("b", -1), ("a", -9)):
        await enqueue(engine, make_job(name, priority=priority))
    async with serve(engine, runner, concurrency=1) as worker:
        await worker.run(until_idle=0.2)
    assert runner.begun == ["a-1", "b-1", "c-1", "d-1", "e-1"]


async def test_one_job_of_a_partition_runs_at_a_time_and_both_queues_share_the_places(engine):
    runner = Runner(hold=True)
    jobs = [make_job(f"{name}{number}", partition=name) for name in "ab" for number in range(2)]
    await enqueue(engine, *jobs, *[make_job(f"free{number}") for number in range(4)])
    async with serve(engine, runner, concurrency=8) as worker:
        await until(lambda: runner.at_once == 6)
        assert {name[0] for name in runner.begun} == {"a", "b", "f"}
        runner.go.set()
        await worker.run(until_idle=0.2)
    assert max(runner.together) == 6
    assert len(runner.begun) == 8


async def test_no_more_run_here_than_there_are_places(engine):
    runner = Runner()
    await enqueue(engine, *[make_job(f"a{number}", partition=str(number % 7)) for number in range(12)])
    await enqueue(engine, *[make_job(f"b{number}") for number in range(12)])
    async with serve(engine, runner, concurrency=3) as worker:
        await worker.run(until_idle=0.2)
    assert len(runner.begun) == 24
    assert max(runner.together) <= 3


@pytest.mark.parametrize("partition", ["", "of its own"])
async def test_a_queue_that_is_limited_starts_so_many_a_minute(engine, partition):
    runner = Runner()
    jobs = [make_job(f"slow{number}", queue="slow", partition=partition and f"{number}") for number in range(5)]
    await enqueue(engine, *jobs)
    queues = {"slow": QueueSettings(starts_per_minute=2), "fast": QueueSettings()}
    async with serve(engine, runner, queues=queues, concurrency=1):
        await until(lambda: len(runner.begun) == 2)
        for number in range(3):  # both queues are looked at after each
            await enqueue(engine, make_job(f"fast{number}", queue="fast"))
            await until(lambda number=number: f"fast{number}-1" in runner.begun)
    assert [name[:4] for name in runner.begun] == ["slow", "slow", "fast", "fast", "fast"]


async def test_a_worker_that_says_nothing_of_a_limit_leaves_it_and_one_that_says_0_lifts_it(engine):
    runner = Runner()
    await enqueue(engine, *[make_job(f"a{number}", queue="slow") for number in range(3)])
    async with serve(engine, runner, queues={"slow": QueueSettings(starts_per_minute=2)}):
        await until(lambda: len(runner.begun) == 2)
    for starts, begun in ((None, 2), (0, 3)):
        queues = {"slow": QueueSettings(starts_per_minute=starts), "fast": QueueSettings()}
        async with serve(engine, runner, queues=queues):
            await enqueue(engine, make_job(f"b{starts}", queue="fast"))
            await until(lambda starts=starts: f"b{starts}-1" in runner.begun)
            await until(lambda begun=begun: sum(name[0] == "a" for name in runner.begun) == begun)


async def test_a_queue_may_have_fewer_places_than_its_worker(engine):
    runner = Runner(hold=True)
    await enqueue(engine, *[make_job(f"few{number}", queue="few", partition="ab"[:number]) for number in range(3)])
    await enqueue(engine, *[make_job(f"many{number}", queue="many") for number in range(4)])
    queues = {"few": QueueSettings(concurrency=1), "many": QueueSettings()}
    async with serve(engine, runner, queues=queues, concurrency=5) as worker:
        await until(lambda: runner.at_once == 5)
        assert [name[:3] for name in runner.begun].count("few") == 1
        runner.go.set()
        await worker.run(until_idle=0.2)
    assert len(runner.begun) == 7


async def test_a_segment_that_raises_restarts_until_its_job_is_given_up(engine, monkeypatch):
    monkeypatch.setattr(engine_module, "PAUSE_SECONDS", 0)
    store, attempts = DurableStore(engine.database, engine.enqueue), []

    async def run(job_id, number, control):
        await store.claim(job_id, number, control.executor)
        attempts.append(number)
        raise OSError("no disk")

    job = await store.create("test")
    async with Worker(engine, store, run):
        job = await wait_for_end(store, job)
    assert attempts == [1] * 6
    assert (job.state, job.reason) == ("interrupted", "its worker died or failed 6 times at the same place")


async def test_a_segment_that_comes_further_each_time_is_not_given_up(engine, monkeypatch):
    monkeypatch.setattr(engine_module, "PAUSE_SECONDS", 0)
    store = DurableStore(engine.database, engine.enqueue)
    replies = 8

    async def run(job_id, number, control):
        claim = await store.claim(job_id, number, control.executor)
        if claim.job.rounds < replies:
            await claim.append([Notice("another attempt")])
            await claim.append([AssistantCanister("a reply")], rounds=claim.job.rounds + 1)
        else:
            await claim.append([Notice("and nothing came of it")])
        raise OSError("no disk")

    job = await store.create("test")
    async with Worker(engine, store, run):
        job = await wait_for_end(store, job)
    assert (job.state, job.rounds) == ("interrupted", replies)
    assert job.attempts == replies + 5


async def test_a_segment_that_is_left_to_others_always_restarts(engine, monkeypatch):
    monkeypatch.setattr(engine_module, "PAUSE_SECONDS", 0)
    store, attempts = DurableStore(engine.database, engine.enqueue), []
    job = await store.create("test")

    async def run(job_id, number, control):
        attempts.append(number)
        await store.claim(job_id, number, control.executor, lambda _: "it is for another" if len(attempts) < 10 else "")

    async with Worker(engine, store, run):
        await until(lambda: not read_rows(engine))
    assert (attempts, (await store.get(job.id)).state) == ([1] * 10, "running")


async def test_a_delayed_segment_waits_and_keeps_a_worker_until_it_is_due(engine):
    runner = Runner()
    await engine.database.run(lambda connection: engine.enqueue(connection, make_job("a"), 0.3))
    async with serve(engine, runner) as worker:
        assert not await engine.is_idle()
        await worker.run(until_idle=0.2)
    assert runner.begun == ["a-1"]


async def test_a_segment_whose_lease_has_passed_is_taken_over(engine):
    runner = Runner()
    await enqueue(engine, make_job("a"), make_job("b", partition="p"), make_job("c", partition="p"))
    with engine.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE callboard_segments SET executor = 'dead', lease_until = 1 WHERE job < 'c'"))
    async with serve(engine, runner) as worker:
        await worker.run(until_idle=0.2)
    assert sorted(runner.begun) == ["a-1", "b-1", "c-1"]


async def test_a_segment_with_a_lease_is_left_to_its_worker_and_so_is_its_partition(engine):
    runner = Runner()
    await enqueue(engine, make_job("a"), make_job("b", partition="p"), make_job("c", partition="p"))
    with engine.database.engine.begin() as connection:
        change = "UPDATE callboard_segments SET executor = 'alive', lease_until = 9e15 WHERE job = 'b'"
        connection.execute(sa.text(change))
    async with serve(engine, runner):
        await until(lambda: runner.begun == ["a-1"] and len(read_rows(engine)) == 2)
        await engine.stop_taking()
    assert [(row["job"], row["executor"]) for row in read_rows(engine)] == [("b", "alive"), ("c", None)]


async def test_a_worker_that_stops_hands_back_at_once_what_does_not_end(engine, monkeypatch):
    monkeypatch.setattr(worker_module, "GRACE_SECONDS", 0)
    runner = Runner(hold=True)
    await enqueue(engine, make_job("a"))
    async with serve(engine, runner):
        await until(lambda: runner.at_once)
    [row] = read_rows(engine)
    assert (row["executor"], row["lease_until"]) == (None, None)
    runner.go.set()
    async with serve(engine, runner):
        await until(lambda: runner.begun == ["a-1", "a-1"])


async def test_a_worker_that_stops_lets_segments_come_to_an_end(engine):
    ended = []

    async def run(_job_id, _number, control):
        ended.append("begun")
        await control.stopping.wait()
        ended.append("ended")

    await enqueue(engine, make_job("a"))
    async with serve(engine, run):
        await until(lambda: ended)
    assert ended == ["begun", "ended"]
    assert read_rows(engine) == []


async def test_a_running_job_is_cancelled_within_a_second(engine):
    store = DurableStore(engine.database, engine.enqueue)
    seen = []

    async def run(job_id, number, control):
        await store.claim(job_id, number, control.executor)
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(control.cancel_requested)

    job = await store.create("test")
    async with Worker(engine, store, run):
        await until(lambda: seen)
        await store.request_cancel(job.id)
        await until(lambda: seen == ["begun", True])


@pytest.fixture
def restarting(engine, monkeypatch):
    """An engine whose workers restart at once."""
    monkeypatch.setattr(worker_module, "RESTART_SECONDS", 0)
    return engine


async def test_running_segments_are_stopped_and_another_worker_starts_them(restarting):
    executors, stopped, gate = [], [], asyncio.Event()

    async def run(_job_id, _number, control):
        executors.append(control.executor)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            stopped.append(control.executor)
            raise

    await enqueue(restarting, make_job("a"))
    store = DurableStore(restarting.database, restarting.enqueue)
    async with EmbeddedWorker(partial(Worker, restarting, store, run)):
        await until(lambda: executors)
        restarting._lease._on_loss("a test says so")
        await until(lambda: len(executors) == 2)
        assert stopped == executors[:1]
        assert executors[0] != executors[1]
        gate.set()
        await until(lambda: not read_rows(restarting))


async def test_it_hands_back_in_good_order_when_it_is_left(restarting):
    runner = Runner()
    await enqueue(restarting, make_job("a"))
    async with EmbeddedWorker(partial(Worker, restarting, DurableStore(restarting.database), runner)):
        await until(lambda: runner.begun)
    assert read_rows(restarting) == []


async def test_what_keeps_the_first_worker_from_beginning_is_raised():
    def fail(**_):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        async with EmbeddedWorker(fail):
            pass

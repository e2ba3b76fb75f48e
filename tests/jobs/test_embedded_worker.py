"""A process that runs jobs beside other work outlives the loss of its lease."""

import asyncio
from functools import partial

import pytest
from tests.jobs.test_engine import Runner, enqueue, make_job, read_rows, until

from callboard.jobs import worker
from callboard.jobs.database import Database
from callboard.jobs.embedded_engine import EmbeddedEngine
from callboard.jobs.store import DurableStore
from callboard.jobs.worker import EmbeddedWorker, Worker


@pytest.fixture
def engine(url, monkeypatch):
    monkeypatch.setattr(worker, "RESTART_SECONDS", 0)
    with Database.open(url) as database:
        yield EmbeddedEngine(database)


async def test_what_runs_is_stopped_and_begun_by_another_worker(engine):
    executors, stopped, gate = [], [], asyncio.Event()

    async def run(_job_id, _number, control):
        executors.append(control.executor)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            stopped.append(control.executor)
            raise

    await enqueue(engine, make_job("a"))
    store = DurableStore(engine.database, engine.enqueue)
    async with EmbeddedWorker(partial(Worker, engine, store, run)):
        await until(lambda: executors)
        engine._lease._on_loss("a test says so")
        await until(lambda: len(executors) == 2)
        assert stopped == executors[:1]
        assert executors[0] != executors[1]
        gate.set()
        await until(lambda: not read_rows(engine))


async def test_it_hands_back_in_good_order_when_it_is_left(engine):
    runner = Runner()
    await enqueue(engine, make_job("a"))
    async with EmbeddedWorker(partial(Worker, engine, DurableStore(engine.database), runner)):
        await until(lambda: runner.begun)
    assert read_rows(engine) == []


async def test_what_keeps_the_first_worker_from_beginning_is_raised():
    def fail(**_):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        async with EmbeddedWorker(fail):
            pass

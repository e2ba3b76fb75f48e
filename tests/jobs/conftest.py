"""A database for durable jobs, once on SQLite and once on PostgreSQL, and a queue in it."""

import os

import pytest
from sqlalchemy import Column, Double, Integer, MetaData, Table, Text, insert, select
from tests.jobs.temporal_server import TemporalServer

from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore

_queue = Table(
    "queue",
    MetaData(),
    Column("job", Text, primary_key=True),
    Column("segment", Integer, primary_key=True),
    Column("delay", Double),
)


class Queue:
    """What was queued, as the engine does it: in the transaction that queues, and a segment once however often it is queued."""

    def __init__(self, database):
        self.database = database
        database.run_blocking(_queue.metadata.create_all)

    def __call__(self, connection, job, delay):
        row = {"job": job.id, "segment": job.segment}
        if connection.execute(select(_queue).filter_by(**row)).one_or_none() is None:
            connection.execute(insert(_queue), {**row, "delay": delay})

    def segments(self, job):
        """The segments of a job that were queued, and not before how many seconds each begins."""
        query = select(_queue.c.segment, _queue.c.delay).where(_queue.c.job == job.id).order_by(_queue.c.segment)
        return self.database.run_blocking(lambda connection: dict(connection.execute(query).all()))


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Nobody takes the power away from a test, so that none waits for the disk."""
    monkeypatch.setattr("callboard.jobs.database.SYNCHRONOUS", "OFF")


@pytest.fixture(autouse=True)
def quick_end(monkeypatch):
    """A worker ends when its lease next looks around, which is soon."""
    monkeypatch.setattr("callboard.jobs.lease._WAIT_SECONDS", 0.05)
    monkeypatch.setattr("callboard.jobs.lease._LOOK_SECONDS", 0.02)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of an empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("empty_postgresql")


@pytest.fixture
def temporal(tmp_path):
    """A server of Temporal."""
    server = TemporalServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def address(request):
    """The address of a server of Temporal if ENGINE says that workers use it, else ""."""
    return request.getfixturevalue("temporal").address if os.environ.get("ENGINE") == "temporal" else ""


@pytest.fixture
def database(url):
    with Database.open(url) as database:
        yield database


@pytest.fixture
def queue(database):
    return Queue(database)


@pytest.fixture
def store(database, queue):
    return DurableStore(database, queue)

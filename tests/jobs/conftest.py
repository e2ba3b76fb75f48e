"""A database for durable jobs, on SQLite and on PostgreSQL, and its queue."""

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
    """A queue like the engine's: it uses the transaction, and queues a segment only once."""

    def __init__(self, database):
        self.database = database
        database.run_blocking(_queue.metadata.create_all)

    def __call__(self, connection, job, delay):
        row = {"job": job.id, "segment": job.segment}
        if connection.execute(select(_queue).filter_by(**row)).one_or_none() is None:
            connection.execute(insert(_queue), {**row, "delay": delay})

    def segments(self, job):
        """Return the queued segments of a job, with the seconds until each may start."""
        query = select(_queue.c.segment, _queue.c.delay).where(_queue.c.job == job.id).order_by(_queue.c.segment)
        return self.database.run_blocking(lambda connection: dict(connection.execute(query).all()))


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Do not wait for the disk, because tests do not lose power."""
    monkeypatch.setattr("callboard.jobs.database.SYNCHRONOUS", "OFF")


@pytest.fixture(autouse=True)
def quick_end(monkeypatch):
    """Let workers end soon after they lose their lease."""
    monkeypatch.setattr("callboard.jobs.lease._WAIT_SECONDS", 0.05)
    monkeypatch.setattr("callboard.jobs.lease._LOOK_SECONDS", 0.02)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of an empty database of each kind."""
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
    """The address of a Temporal server if ENGINE selects Temporal, else ""."""
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

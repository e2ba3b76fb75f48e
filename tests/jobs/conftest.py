"""A database for durable jobs, once on SQLite and once on PostgreSQL, and a queue in it."""

from itertools import count

import pytest
from sqlalchemy import Column, Double, Integer, MetaData, Table, Text, insert, select

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
    """What was queued, as DBOS does it: in the transaction that queues, and a segment once however often it is queued."""

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


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of an empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("empty_postgresql")


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


_numbers = count(1)


def create_database(server, worker, template="template1"):
    """The URL of a database of its own on a server, as it is in a template."""
    import psycopg

    name = f"jobs_{worker}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return server.removesuffix("postgres") + name


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server, worker_id):
    """The name of a database with DBOS's tables and ours: making DBOS's takes a second, or several."""
    from callboard.jobs.engine import Engine

    url = create_database(postgresql_server, worker_id)
    with Database.open(url) as database:
        Engine(database).close()
    return url.rpartition("/")[2]


@pytest.fixture
def ready_postgresql(postgresql_server, postgresql_template, worker_id):
    """The URL of a database with all tables and nothing in them."""
    return create_database(postgresql_server, worker_id, postgresql_template)


@pytest.fixture(params=["sqlite", "postgresql"])
def ready_url(request, tmp_path):
    """The URL of a database, once for each kind, with all tables in it where they take long to make."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("ready_postgresql")

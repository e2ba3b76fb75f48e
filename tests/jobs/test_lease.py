"""A lease is renewed while its process lives, and a process that cannot renew it is notified."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import select, text, update

from callboard.jobs import lease as lease_module
from callboard.jobs.database import Database
from callboard.jobs.engine import enqueue
from callboard.jobs.job import DurableJob
from callboard.jobs.lease import EXIT_STATUS, Lease
from callboard.jobs.tables import segments

PATIENCE = 120
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def database(url):
    with Database.open(url) as database:
        jobs = [DurableJob(id=name, kind="test", created_at=NOW, updated_at=NOW) for name in "ab"]
        database.run_blocking(lambda connection: [enqueue(connection, job) for job in jobs])
        statement = update(segments).values(executor="me", lease_until=0)
        database.run_blocking(lambda connection: connection.execute(statement))
        yield database


@contextmanager
def take_lease(database, on_write=lambda: None, read_running=lambda: {("a", 1)}):
    """Take a lease. Return it with the reasons for its loss."""
    losses, lost = [], threading.Event()
    lease = Lease(database, "me", on_write, read_running, lambda why: (losses.append(why), lost.set()))
    try:
        yield losses, lost
    finally:
        lease.close()


def read_end(database):
    return database.read_blocking(lambda connection: connection.scalar(select(segments.c.lease_until)))


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end


def end_sessions(database):
    with psycopg.connect(url_of(database), autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'callboard lease' AND datname = current_database()"
        )


def test_a_lease_is_renewed_until_it_is_closed(database, monkeypatch):
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1)
    with take_lease(database) as (losses, _):
        wait_for(lambda: (first := read_end(database)) and read_end(database) > first)
    assert losses == []


def test_a_connection_that_breaks_is_made_again(empty_postgresql, monkeypatch):
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 5)
    with Database.open(empty_postgresql) as database:
        wrote = threading.Event()
        with take_lease(database, wrote.set) as (losses, _):
            assert wrote.wait(PATIENCE)
            end_sessions(database)
            wrote.clear()
            assert wrote.wait(PATIENCE)
        assert losses == []


def test_a_lease_that_cannot_be_renewed_is_lost(database, monkeypatch):
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1)
    with take_lease(database) as (losses, lost):
        database.run_blocking(lambda connection: connection.execute(text("DROP TABLE callboard_segments")))
        assert lost.wait(PATIENCE)
    assert "; the database was away for " in losses[0]
    assert "callboard_segments" in losses[0]


def stand_still():
    """Return one of two claimed segments, after longer than the lease of these tests."""
    time.sleep(0.1)
    return {("a", 1)}


def test_a_process_that_stood_still_ends_if_another_has_its_segment(database, monkeypatch):
    statement = update(segments).where(segments.c.job == "a").values(executor="other")
    database.run_blocking(lambda connection: connection.execute(statement))
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.05)
    with take_lease(database, read_running=stand_still) as (losses, lost):
        assert lost.wait(PATIENCE)
    assert losses[0].startswith("it stood still for ")


def test_a_process_that_stood_still_continues_if_its_segments_are_its_own(database, monkeypatch):
    """Loading a model may hold Python's lock for longer than the lease."""
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.05)
    with take_lease(database, read_running=stand_still) as (losses, _):
        wait_for(lambda: (first := read_end(database)) and read_end(database) > first)
    assert losses == []


SCRIPT = """
import subprocess
import sys
from callboard.jobs.lease import end_process

child = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); print('ok', flush=True); sys.stdin.read()"
process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True, stdin=-1, stdout=-1)
process.stdout.readline()
end_process("the connection broke")
"""


def test_what_its_tools_have_started_ends_with_a_process_that_lost_its_lease():
    """Each child has its own session. Their standard error is open until the last child has ended."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stderr) == (EXIT_STATUS, "callboard: lost its lease: the connection broke\n")


def test_writes_of_another_process_are_noticed(database):
    told = threading.Event()
    with take_lease(database, told.set), Database.open(url_of(database)) as other:
        assert told.wait(PATIENCE)
        told.clear()
        statement = "CREATE TABLE written (x INTEGER)" if database.is_sqlite else "NOTIFY callboard_jobs"
        other.run_blocking(lambda connection: connection.execute(text(statement)))
        assert told.wait(PATIENCE)


def url_of(database):
    return database.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")

"""A lease is held by the process that took it alone, and whoever lost it is told."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import text

from callboard.jobs import lease as lease_module
from callboard.jobs.database import Database
from callboard.jobs.lease import EXIT_STATUS, Lease, open_leases

PATIENCE = 30


@pytest.fixture
def database(ready_url):
    with Database.open(ready_url) as database:
        yield database


@contextmanager
def take_lease(database, on_write=lambda: None):
    """A lease, and what was said when it was lost."""
    losses, lost = [], threading.Event()
    lease = Lease(open_leases(database), on_write, lambda why: (losses.append(why), lost.set()))
    try:
        yield lease, losses, lost
    finally:
        lease.close()


def is_dead(database, executor):
    with open_leases(database).seize(executor) as dead:
        return dead


def wait_for_death(database, executor):
    """PostgreSQL ends a session some time after its client has."""
    end = time.monotonic() + PATIENCE
    while not is_dead(database, executor):
        assert time.monotonic() < end


def test_the_holder_of_a_lease_lives_until_it_is_given_back(database):
    with take_lease(database) as (first, losses, _), take_lease(database) as (second, _, _):
        assert first.executor != second.executor
        assert not is_dead(database, first.executor)
        assert not is_dead(database, first.executor)
    wait_for_death(database, first.executor)
    wait_for_death(database, second.executor)
    assert is_dead(database, "nobody/../never")
    assert losses == []


def test_one_process_at_a_time_finds_that_a_holder_is_dead(database, monkeypatch):
    """On SQLite the file of a process that was killed is still there."""
    with take_lease(database) as (lease, _, _):
        monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    wait_for_death(database, lease.executor)
    leases = open_leases(database)
    with leases.seize(lease.executor) as first, leases.seize(lease.executor) as second:
        assert (first, second) == (True, False)


def test_a_lease_that_is_lost_is_told_within_seconds(database):
    with take_lease(database) as (lease, losses, lost):
        if database.is_sqlite:
            [path] = open_leases(database)._directory.iterdir()
            path.unlink()
        else:
            with psycopg.connect(database.engine.url.set(drivername="postgresql").render_as_string(False)) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'callboard lease' AND datname = current_database()"
                )
        assert lost.wait(PATIENCE)
        wait_for_death(database, lease.executor)
    assert len(losses) == 1


def test_whoever_stood_still_ends_before_it_asks_anybody(database, monkeypatch):
    """It was stopped for so long that others may have its jobs, and its connection does not know yet."""
    monkeypatch.setattr(lease_module, "SILENCE_SECONDS", 0)
    with take_lease(database) as (_, losses, lost):
        assert lost.wait(PATIENCE)
    assert losses[0].startswith("it stood still for ")


SCRIPT = """
import subprocess
import sys
from callboard.jobs.lease import _end_process

child = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); print('ok', flush=True); sys.stdin.read()"
process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True, stdin=-1, stdout=-1)
process.stdout.readline()
_end_process("the connection broke")
"""


def test_what_its_tools_have_started_ends_with_a_process_that_lost_its_lease():
    """Each of them in a session of its own; their standard error is open until the last of them has ended."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stderr) == (EXIT_STATUS, "callboard: lost its lease: the connection broke\n")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_was_forked_does_not_hold_the_lease(tmp_path):
    """What a tool forks may outlive the worker."""
    with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database, take_lease(database) as (lease, _, _):
        reading, writing = os.pipe()
        begun, begins = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.write(begins, b".")
            os.read(reading, 1)
            os._exit(0)
        assert os.read(begun, 1) == b"."
        lease._hold._close_descriptor()  # as the system does it when we die
        assert is_dead(database, lease.executor)
        for each in (reading, writing, begun, begins):
            os.close(each)
        os.waitpid(child, 0)


def test_what_another_process_writes_is_told(database):
    told = threading.Event()
    with take_lease(database, told.set), Database.open(url_of(database)) as other:
        told.clear()
        statement = "CREATE TABLE written (x INTEGER)" if database.is_sqlite else "NOTIFY callboard_jobs"
        asyncio.run(other.run(lambda connection: connection.execute(text(statement))))
        assert told.wait(PATIENCE)


def url_of(database):
    return database.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")

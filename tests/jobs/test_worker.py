"""Processes that are killed, stopped, cut off and told to stop: every job ends, and nothing is done twice."""

import signal

import psycopg
import pytest
from tests.jobs.fleet import open_fleet

from callboard.jobs.lease import EXIT_STATUS


@pytest.fixture
def fleet(ready_url, tmp_path):
    with open_fleet(ready_url, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def remote_fleet(ready_postgresql, tmp_path):
    with open_fleet(ready_postgresql, tmp_path) as fleet:
        yield fleet


def end_sessions(fleet, name):
    """End the sessions of an application, as a server or a network does that fails."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
    with psycopg.connect(fleet.url, autocommit=True) as connection:
        return connection.execute(query, [name, fleet.url.rpartition("/")[2]]).fetchone()[0]


def test_the_jobs_of_a_killed_worker_are_taken_over(fleet):
    victim, *others = fleet.start(3)
    fleet.create(8, rounds=12)  # so many that the others do not take all before the victim looks
    fleet.wait_for(lambda: fleet.owners()[victim.executor])
    victim.end(signal.SIGKILL)
    fleet.wait_for_jobs()
    assert len({worker.executor for worker in fleet.workers}) == 3
    assert all("Traceback" not in worker.end(signal.SIGTERM) for worker in others)
    assert [worker.returncode for worker in others] == [0, 0]


def test_a_stopped_worker_goes_on_or_ends_and_nothing_is_done_twice(fleet):
    """PostgreSQL takes it for dead after some seconds; on SQLite its jobs wait for it, and perhaps all writers do."""
    sleeper, _ = fleet.start(2)
    fleet.create(4, rounds=4)
    fleet.wait_for(lambda: fleet.owners()[sleeper.executor] and fleet.read_lines())
    sleeper.send(signal.SIGSTOP)
    if not fleet.database.is_sqlite:
        fleet.wait_for(lambda: not fleet.owners()[sleeper.executor])
    sleeper.send(signal.SIGCONT)
    fleet.wait_for_jobs()
    if not fleet.database.is_sqlite:
        assert sleeper.wait(60) == EXIT_STATUS


def test_a_worker_that_lost_its_lease_ends_and_its_jobs_are_taken_over(remote_fleet):
    fleet = remote_fleet
    [victim] = fleet.start()
    fleet.create(3, rounds=5)
    fleet.wait_for(fleet.read_lines)
    assert end_sessions(fleet, "callboard lease") == 1
    assert victim.wait(60) == EXIT_STATUS
    assert "callboard: lost its lease: " in victim.read()
    fleet.start()
    fleet.wait_for_jobs()


def test_a_worker_that_is_told_to_stop_hands_back_at_once(fleet):
    [first] = fleet.start()
    fleet.create(3, rounds=6)
    fleet.wait_for(fleet.read_lines)
    assert first.end(signal.SIGTERM) == ""
    assert first.returncode == 0
    assert not fleet.owners()
    fleet.start()
    fleet.wait_for_jobs()
    assert len(fleet.read_lines()) == 18

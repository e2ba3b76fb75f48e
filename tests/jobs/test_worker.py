"""Processes are killed, suspended, cut off and stopped. Every job ends, and nothing is done twice."""

import asyncio
import os
import signal
import sqlite3

import psycopg
import pytest
from tests.jobs.fleet import open_fleet

from callboard.jobs.database import DatabaseUnavailable
from callboard.jobs.lease import EXIT_STATUS
from callboard.jobs.store import DEAD


@pytest.fixture
def fleet(url, tmp_path):
    with open_fleet(url, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def remote_fleet(empty_postgresql, tmp_path):
    with open_fleet(empty_postgresql, tmp_path) as fleet:
        yield fleet


def end_sessions(fleet, name):
    """End the sessions of an application, like a failing server or network."""
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


def test_a_stopped_worker_ends_and_nothing_is_done_twice(fleet):
    """Others take over its jobs after some seconds, unless it was stopped during a write to SQLite."""
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


def test_a_worker_whose_sessions_are_ended_works_on(remote_fleet):
    fleet = remote_fleet
    [worker] = fleet.start()
    fleet.create(3, rounds=5)
    fleet.wait_for(fleet.read_lines)
    assert end_sessions(fleet, "callboard lease") == 1
    fleet.wait_for_jobs()
    assert worker.end(signal.SIGTERM) == ""


def test_a_stopping_worker_hands_back_at_once(fleet):
    [first] = fleet.start()
    fleet.create(3, rounds=6)
    fleet.wait_for(fleet.read_lines)
    assert first.end(signal.SIGTERM) == ""
    assert first.returncode == 0
    assert not fleet.owners()
    fleet.start()
    fleet.wait_for_jobs()
    assert len(fleet.read_lines()) == 18


@pytest.fixture
def local_fleet(tmp_path):
    with open_fleet(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path) as fleet:
        yield fleet


def replace_file(path):
    """Replace a database with an empty file."""
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.rename(path)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), replace_file], ids=["deleted", "replaced"])
def test_a_worker_ends_if_its_file_is_deleted_or_replaced(local_fleet, change):
    fleet = local_fleet
    workers = fleet.start(2)
    fleet.create(2, rounds=1000)
    fleet.wait_for(fleet.read_lines)
    change(fleet.folder / "jobs.db")
    assert [each.wait(60) for each in workers] == [EXIT_STATUS] * 2
    assert all("jobs.db: the file was deleted or replaced while it was open" in each.read() for each in workers)
    with pytest.raises(DatabaseUnavailable, match="the file was deleted or replaced"):
        fleet.create(1)


def damage(fleet):
    """Overwrite all pages of a database."""
    fleet.database.run_blocking(lambda connection: connection.exec_driver_sql("SELECT 1"))
    other = sqlite3.connect(fleet.folder / "jobs.db")
    fleet.wait_for(lambda: other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    other.close()
    file = os.open(fleet.folder / "jobs.db", os.O_WRONLY)
    size = os.fstat(file).st_size
    os.pwrite(file, b"\xff" * (size - 100), 100)
    os.close(file)


def test_a_worker_with_running_jobs_ends_if_its_file_is_damaged(local_fleet):
    fleet = local_fleet
    workers = fleet.start(2)
    fleet.create(4, rounds=1000)
    fleet.wait_for(lambda: len(fleet.owners()) == 2)
    damage(fleet)
    assert [each.wait(60) for each in workers] == [EXIT_STATUS] * 2
    assert all(
        "callboard: lost its lease: " in each.read() and "jobs.db: the file is " in each.read() for each in workers
    )


def test_a_worker_that_cannot_hand_back_its_segments_still_ends(remote_fleet):
    fleet = remote_fleet
    [worker] = fleet.start()
    fleet.create(2, rounds=1000)
    fleet.wait_for(fleet.read_lines)
    with psycopg.connect(fleet.url, autocommit=True) as connection:
        connection.execute("DROP TABLE callboard_open_calls CASCADE")
    fleet.wait_for(lambda: worker.read().count("begins again later") == 2)
    worker.end(signal.SIGTERM)
    assert worker.returncode == 0


def see(fleet):
    return {each.id: (each.state, each.reason) for each in fleet.store.mark_abandoned(fleet.list())}


def wait_until_dead(fleet, jobs):
    """PostgreSQL ends a session some time after its client has."""
    fleet.wait_for(lambda: all(see(fleet)[each.id] == ("interrupted", DEAD) for each in jobs))


@pytest.mark.parametrize("state", ["interrupted", "cancelled"])
def test_a_job_of_a_killed_worker_is_ended_and_resumed(fleet, state):
    [victim] = fleet.start()
    jobs = fleet.create(2, rounds=60)
    fleet.wait_for(lambda: len(fleet.read_lines()) > 2)
    alive = [asyncio.run(fleet.store.end_abandoned(each.id, state)) for each in jobs]
    assert {each.state for each in alive} == {"running"}
    victim.end(signal.SIGKILL)
    wait_until_dead(fleet, jobs)
    assert {each.state for each in fleet.list()} == {"running"}
    ended = [asyncio.run(fleet.store.end_abandoned(each.id, state, "why")) for each in jobs]
    assert {(each.state, each.reason) for each in ended} == {(state, "why")}
    asyncio.run(fleet.store.resume(jobs[0].id))
    # The next worker finds both segments of the dead one, and leaves them as they are.
    fleet.start()
    fleet.wait_for(lambda: not fleet.owners() and see(fleet)[jobs[0].id][0] == "completed")
    assert see(fleet)[jobs[1].id] == (state, "why")
    asyncio.run(fleet.store.resume(jobs[1].id))
    fleet.wait_for_jobs()


def test_a_job_that_another_worker_took_over_is_left_to_it(fleet):
    victim, _ = fleet.start(2)
    jobs = fleet.create(4, rounds=8)
    fleet.wait_for(lambda: fleet.owners()[victim.executor])
    victim.end(signal.SIGKILL)
    fleet.wait_for(lambda: all(each.executor != victim.executor for each in fleet.list() if not each.has_ended))
    assert "interrupted" not in {asyncio.run(fleet.store.end_abandoned(each.id)).state for each in jobs}
    fleet.wait_for_jobs()

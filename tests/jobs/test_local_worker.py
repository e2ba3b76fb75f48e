"""A job of this host gets a worker, even if the last worker is just ending."""

import asyncio
import fcntl
import subprocess
import threading

import pytest

from callboard.jobs.database import Database
from callboard.jobs.direct import start_worker
from callboard.jobs.engine import enqueue
from callboard.jobs.store import DurableStore


@pytest.fixture
def database(tmp_path):
    with Database.open(f"sqlite:///{tmp_path / 'jobs.db'}") as database:
        asyncio.run(DurableStore(database, enqueue).create("test", queue="here"))
        yield database


@pytest.fixture
def started(monkeypatch):
    """Record commands instead of starting processes."""
    commands = []

    class Process:
        pid = 1

        def __init__(self, command, **_):
            commands.append(command[2:])

    monkeypatch.setattr(subprocess, "Popen", Process)
    return commands


def test_a_job_that_is_queued_while_the_worker_ends_gets_another_one(database, started, tmp_path):
    with (tmp_path / "jobs.db-coding-worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.2, fcntl.flock, (lock, fcntl.LOCK_UN)).start()
        assert start_worker(database, "here") == tmp_path / "jobs.db-coding-worker.log"
    assert started == [["-m", "callboard", "worker", "--queue", "here", "--until-idle", "60"]]


def test_no_second_worker_is_started(database, started, tmp_path):
    with (tmp_path / "jobs.db-coding-worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert start_worker(database, "another queue, in which nothing waits") is None
        assert start_worker(database, "here") is None
    assert started == []

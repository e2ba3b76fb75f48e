"""Jobs that a worker runs, which is started where there is none."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.coding import conftest as coding

from callboard.jobs.database import Database
from callboard.jobs.store import DurableStore
from callboard.testing import FakeBackend

repository, faulty, home = coding.repository, coding.faulty, coding.home
MEND = "It subtracts.\n\ncalc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
DEBUG = ("debug", "--symptoms", "test_add fails", "--workflow", "short", "--background")
WAIT = 0.05


@pytest.fixture
def place(tmp_path, home, monkeypatch):
    """The directories of a user, and where their jobs are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")  # noqa: PTH120
    return tmp_path / "state" / "callboard" / "jobs"


def submit(repository, url, *more):
    arguments = [sys.executable, "-c", coding.PROGRAM, *DEBUG, "--model", "fake-model", "--base-url", url, *more]
    return subprocess.run(arguments, cwd=repository.root, capture_output=True, text=True, check=False)


async def wait_until_ended(store, identifier):
    while not (job := await store.get(identifier)).has_ended:  # noqa: ASYNC110  # another process ends it
        await asyncio.sleep(WAIT)
    return job


@contextmanager
def stopped_worker(place):
    """Ends the worker that was started, and waits until it is gone."""
    try:
        yield
    finally:
        with (place / "jobs.db-coding-worker.lock").open("r+") as lock:
            os.kill(int(lock.read()), signal.SIGTERM)
            fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_worker_runs_the_jobs_and_is_started_once(place, repository):
    async def scenario():
        async with FakeBackend([MEND, MEND]) as backend:
            first = await asyncio.to_thread(submit, repository, backend.url)
            assert first.returncode == 0, first.stderr
            with stopped_worker(place), Database.open(f"sqlite:///{place / 'jobs.db'}") as database:
                store = DurableStore(database)
                async with asyncio.timeout(coding.LIMIT):
                    job = await wait_until_ended(store, first.stdout.strip())
                    second = await asyncio.to_thread(submit, repository, backend.url, "--json")
                    other = await wait_until_ended(store, json.loads(second.stdout)["id"])
                return first, job, second, other

    first, job, second, other = asyncio.run(scenario())
    log = place / "jobs.db-coding-worker.log"
    assert f"a worker was started, and ends when it is idle; it writes to {log}" in first.stderr
    assert "a worker was started" not in second.stderr
    for each in (job, other):
        assert (each.state, each.kind, each.rounds) == ("completed", "debug", 1), (each.error, log.read_text())
        assert repository.git("show", f"{each.output['branch']}:calc.py").endswith("a + b\n")
    assert log.stat().st_mode & 0o777 == 0o600

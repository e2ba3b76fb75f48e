"""The database crashes under the workers. They end, and restarted workers do each job once."""

import shutil
import signal
from collections import Counter
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url
from tests.jobs.fleet import open_fleet
from tests.postgresql import PostgresServer, require_control

from callboard.jobs.lease import EXIT_STATUS

ROWS = 12


@pytest.fixture
def server():
    with crashing_server() as server:
        yield server


def crash_while_rows_are_handed_back(server, folder, rows):
    """Kill a worker with many segments, and crash the database while they are handed back.

    Return the outcome of each call: "done" or "outcome unknown".
    """
    with open_fleet(server.url, folder, seconds=600, concurrency=rows) as fleet:
        [victim] = fleet.start()
        fleet.create(rows, rounds=2)
        fleet.wait_for(lambda: fleet.owners()[victim.executor] == rows)
        fleet.settings = 0.01, 4
        reapers = fleet.start(2)
        victim.end(signal.SIGKILL)
        fleet.wait_for(lambda: fleet.owners()[victim.executor] < rows)
        server.crash()
        codes = [worker.wait(60) for worker in reapers]
        errors = [worker.read() for worker in reapers]
        assert codes == [EXIT_STATUS] * 2, errors
        assert all("Traceback" not in error for error in errors)
        server.start()
        fleet.start(2)
        fleet.wait_for_jobs()
        return Counter(fleet.read_results().values())


def test_the_database_crashes_while_rows_are_handed_back(server, tmp_path):
    """The kill cuts the first call of each job. The crash cuts some of the second calls."""
    outcomes = crash_while_rows_are_handed_back(server, tmp_path, ROWS)
    assert outcomes.total() == 2 * ROWS
    assert outcomes["outcome unknown"] >= ROWS
    assert outcomes["done"] > 0


class CrashingServer:
    """Its `url`, and ways to stop and start it."""

    def __init__(self, server):
        self._server = server
        self.url = server.start()
        self._options = f"-h 127.0.0.1 -p {make_url(self.url).port} -k '' -F"

    def crash(self):
        self._server.run("stop", "-m", "immediate")

    def start(self):
        self._server.run("start", "-w", "-l", str(self._server.room / "log"), "-o", self._options)

    def runs(self):
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def crashing_server():
    """A server that ends with the test, even if it has crashed."""
    control = require_control()
    server = PostgresServer.make(control)
    try:
        crashing = CrashingServer(server)
        yield crashing
        if crashing.runs():
            crashing.crash()
    finally:
        shutil.rmtree(server.room, ignore_errors=True)

"""Several processes that work on the jobs of one database, and the results of the jobs."""

import asyncio
import signal
import time
from collections import Counter
from contextlib import contextmanager

from sqlalchemy import text
from tests.jobs import worker_process
from tests.jobs.forked import ForkedProcess, processes

from callboard.core import ResultCanister
from callboard.jobs.database import Database
from callboard.jobs.engine import enqueue
from callboard.jobs.store import DurableStore

PATIENCE = 120


class WorkerProcess(ForkedProcess):
    """One process; `executor` is the id that it works under."""

    def __init__(self, url, effects, settings, output):
        self._ready, ready = processes.Pipe(duplex=False)
        super().__init__(worker_process.main, url, effects, *settings, ready, output=output)
        ready.close()
        self._executor = ""

    @property
    def executor(self):
        """Id of the executor. Reading it waits until the process works."""
        if not self._executor:
            try:
                self._executor = self._ready.recv()
            except EOFError:
                raise AssertionError(self.read()) from None
        return self._executor

    def end(self, number=signal.SIGKILL):
        """Send a signal, wait for the end, and return the output."""
        if self.returncode is None:
            self.send(signal.SIGCONT)
            self.send(number)
        self.wait(PATIENCE)
        return self.read()


class Fleet:
    """The database, and the processes that were started on it."""

    def __init__(self, url, folder, seconds=0.05, concurrency=2, address=""):
        self.url = url
        self.folder = folder
        self.effects = folder / "effects"
        self.effects.touch()
        self.settings = seconds, concurrency
        self.address = address
        self.workers = []
        self.database = Database.open(url)
        self.store = DurableStore(self.database, enqueue)

    def start(self, count=1, clock_error=0):
        """Start processes, and wait until they work."""
        numbers = range(len(self.workers), len(self.workers) + count)
        settings = (*self.settings, self.address, clock_error)
        outputs = [self.folder / f"output-{number}" for number in numbers]
        new = [WorkerProcess(self.url, self.effects, settings, output) for output in outputs]
        self.workers += new
        assert all(each.executor for each in new)
        return new

    def create(self, count, rounds=3):
        async def create():
            return [await self.store.create("test", input={"rounds": rounds}) for _ in range(count)]

        return asyncio.run(create())

    def list(self):
        return asyncio.run(self.store.list(limit=10_000))

    def read_lines(self):
        """Return the lines that the tools wrote."""
        return self.effects.read_text("utf-8").split()

    def read_results(self):
        """Return the result of each call from the jobs, by its name."""
        jobs = self.list()

        async def read():
            return [entry.item for job in jobs for entry in await self.store.read_entries(job.id)]

        return {item.invocation_id: item.text for item in asyncio.run(read()) if isinstance(item, ResultCanister)}

    def owners(self):
        """Return the number of running segments by executor."""
        query = "SELECT executor, count(*) FROM callboard_segments WHERE executor IS NOT NULL GROUP BY 1"
        with self.database.engine.connect() as connection:
            return Counter(dict(connection.execute(text(query)).all()))

    def wait_for(self, condition):
        """Wait until the condition is true."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "nothing came of it"
            time.sleep(0.02)

    def wait_for_jobs(self):
        """Wait until all jobs have ended, and check that each was done once."""
        self.database.engine.dispose()  # what a crash of the server may have left
        self.wait_for(lambda: all(job.has_ended for job in self.list()))
        assert [(job.state, job.reason) for job in self.list() if job.state != "completed"] == []
        lines = Counter(self.read_lines())
        assert max(lines.values(), default=1) == 1
        assert {call for call, text in self.read_results().items() if text == "done"} <= set(lines)

    def close(self):
        for worker in self.workers:
            worker.end()
        self.database.close()


@contextmanager
def open_fleet(url, folder, **settings):
    """A fleet whose processes end with the test."""
    fleet = Fleet(url, folder, **settings)
    try:
        yield fleet
    finally:
        fleet.close()

"""Processes that start with their imports done, because imports are most of the time of a short process."""

import os
import sys
from multiprocessing import get_context
from pathlib import Path

from callboard.configuration.jobs import JobSettings, TemporalSettings
from callboard.jobs.services import make_engine

processes = get_context("forkserver")
# The server of a process that tests begins with its first use, and this is one list for all tests.
processes.set_forkserver_preload(
    ["tests.jobs.killed_worker", "tests.jobs.worker_process", "tests.jobs.coding_worker", "tests.jobs.forked"]
)


class ForkedProcess:
    """A process that calls a function of a module, with the environment of its creator, and writes to a file."""

    def __init__(self, function, *arguments, output):
        self._output = Path(output)
        self._process = processes.Process(target=run, args=(function, arguments, str(output), dict(os.environ)))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        """Return code, None while the process runs."""
        return self._process.exitcode

    def send(self, number):
        os.kill(self.pid, number)

    def wait(self, seconds):
        """Wait for the end, and return the return code."""
        self._process.join(seconds)
        assert self.returncode is not None, "it does not end"
        return self.returncode

    def read(self):
        """Return the output."""
        return self._output.read_text("utf-8")


def run(function, arguments, output, environment):
    """Run in the process itself."""
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for each in (1, 2):
        os.dup2(file, each)
    # What the server has may write to where the tests do.
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    function(*arguments)


def open_engine(database, address):
    """The embedded engine, or Temporal if there is the address of a server."""
    name = "temporal" if address else "embedded"
    return make_engine(database, JobSettings(engine=name, temporal=TemporalSettings(address=address)))

"""The order in which the workers of pytest-xdist read the files of tests.

Each begins at another folder. Workers that read in one order would all compile the same files at the same time; so
each compiles a part, and reads the other parts as the others compiled them. `dealt` of conftest.py orders the tests
afterwards, for all of them alike.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class TestsFolder(pytest.Dir):
    """The folder of all tests."""

    def collect(self):
        entries = list(super().collect())
        worker = self.config.workerinput
        start = len(entries) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        return entries[start:] + entries[:start]


def pytest_collect_directory(path, parent):
    if path == TESTS and hasattr(parent.config, "workerinput"):
        return TestsFolder.from_parent(parent, path=path)
    return None

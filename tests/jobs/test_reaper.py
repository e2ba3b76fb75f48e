"""What a dead process claimed is handed back: all of it, also after an error in the middle, and nobody else's."""

import threading

import pytest
from sqlalchemy.exc import OperationalError

from callboard.jobs import reaper as reaper_module
from callboard.jobs.reaper import Reaper

PATIENCE = 30


class Leases:
    """Says who is dead."""

    def __init__(self, *dead):
        self.dead = dead

    def seize(self, executor):
        return Seized(executor in self.dead)


class Seized:
    def __init__(self, dead):
        self.dead = dead

    def __enter__(self):
        return self.dead

    def __exit__(self, *_):
        return None


class Engine:
    """Owners and how many segments each has; handing back fails where it is told to."""

    def __init__(self, owners, failures=()):
        self.owners = dict(owners)
        self.failures = list(failures)
        self.empty = threading.Event()

    def find_owners(self):
        if set(self.owners) <= {"me", "living"}:
            self.empty.set()
        return set(self.owners)

    def hand_back(self, executor):
        if self.failures:
            self.owners[executor] -= 1
            raise self.failures.pop()
        del self.owners[executor]


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(reaper_module, "REAP_SECONDS", 0.001)


@pytest.mark.parametrize("failures", [[], [OperationalError("", {}, Exception("gone"))] * 3, [OSError("no lock")]])
def test_all_of_a_dead_process_is_handed_back(failures):
    engine = Engine({"me": 1, "living": 2, "dead": 5, "gone": 1}, failures)
    reaper = Reaper(engine, Leases("me", "dead", "gone"), "me")
    try:
        assert engine.empty.wait(PATIENCE)
    finally:
        reaper.close()
    assert engine.owners == {"me": 1, "living": 2}


def test_a_reaper_that_is_closed_looks_no_more():
    engine = Engine({"dead": 1})
    reaper = Reaper(engine, Leases(), "me")
    reaper.close()
    reaper._leases.dead = ("dead",)
    reaper.reap()
    assert engine.owners == {"dead": 1}

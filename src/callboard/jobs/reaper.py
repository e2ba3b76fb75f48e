"""The reaper: hands back what dead processes have claimed, in every process that works.

Once a second it asks who owns segments that have begun, and tries the lock of each that is not this process. Whose lock
can be had is dead, and its segments are queued again. Nothing is noted down about it: as long as a segment of a dead one
is left, because the database went away in the middle, the next look finds it again.
"""

from __future__ import annotations

import threading
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from callboard.jobs.engine import Engine
from callboard.jobs.lease import Leases

REAP_SECONDS: Final = 1.0


class Reaper:
    """Looks after dead processes in a thread, until it is closed."""

    def __init__(self, engine: Engine, leases: Leases, executor: str) -> None:
        """`executor` is this process."""
        self._engine = engine
        self._leases = leases
        self._executor = executor
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look, name="callboard-reaper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def reap(self) -> None:
        """Look once. Raises what SQLAlchemy raises, and OSError."""
        for owner in self._engine.find_owners() - {self._executor}:
            if self._closing.is_set():
                return
            with self._leases.seize(owner) as is_dead:
                if is_dead:
                    self._engine.hand_back(owner)

    def _look(self) -> None:
        while not self._closing.wait(REAP_SECONDS):
            try:
                self.reap()
            except (SQLAlchemyError, OSError):  # the database is away; the next look finds the same
                continue

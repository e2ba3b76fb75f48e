"""When DBOS's queue threads look for segments, and how many they may take.

DBOS looks at each queue in a thread of its own, once in a fixed interval, and what a queue allows a worker stands in the
database, the same for all workers. Two things are better known here: that something was queued just now, and how many
segments this process may run at once, whatever queues they come from.

So the event that these threads wait on is replaced by a bell, and two answers that they ask for are ours. DBOS has no
public way to either; the places that are replaced are listed in `Dispatch.install`, and a test holds what they do.

Laws: a ring is never lost, whether it comes before, during or after a poll; one thread polls at a time, so that two
queues do not both take the last free place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import dbos._dbos
from dbos import DBOS

_THREAD: Final = "queue-worker-"
"""How DBOS names the thread of a queue: this and the queue's name."""
_SLOW_SECONDS: Final = 15.0
"""How often DBOS looks after its own queue, and for queues that are new: nothing of ours is in either."""


class Dispatch:
    """The bell and the free places of one process."""

    def __init__(
        self,
        instance: DBOS,
        queues: Sequence[str],
        places: int,
        is_due: Callable[[], bool],
        limits: Mapping[str, tuple[int, Sequence[str]]] | None = None,
    ) -> None:
        """Takes a DBOS that is not launched yet.

        Args:
            instance: Of this process.
            queues: Whose threads the bell wakes.
            places: How many segments run here at once.
            is_due: Whether a segment waits in one of the queues; asked before they are woken.
            limits: Of the queues that may have fewer places: how many, and which queues share them.
        """
        self._instance = instance
        self._names = frozenset(f"{_THREAD}{queue}" for queue in queues)
        self._places = places
        self._is_due = is_due
        self._limits = limits or {}
        self._tasks = instance._workflow_tasks  # noqa: SLF001  # as below
        self._over: set[asyncio.Task[Any]] = set()
        self._changed = threading.Condition()
        self._rings = 0
        self._closed = False
        self._poll = threading.Lock()
        self._of_thread = threading.local()

    @contextmanager
    def install(self) -> Iterator[None]:
        """DBOS, launched within, waits on the bell and counts by our places."""
        module: Any = dbos._dbos  # noqa: SLF001  # DBOS has no public way, here and below
        start = module.queue_thread

        def start_limited(stop: threading.Event, instance: Any) -> None:
            database, active = instance._sys_db, instance._active_workflows_set  # noqa: SLF001
            database.get_queue = self._limit(database.get_queue)
            active.count_for_queue = self._count(active.count_for_queue)
            start(_Bell(self, stop), instance)

        module.queue_thread = start_limited
        try:
            yield
        finally:
            module.queue_thread = start

    def ring(self) -> None:
        """Wake the queues' threads, if there is something for them."""
        if self.count_segments() < self._places and self._is_due():
            self._strike()

    def close(self) -> None:
        """Let no thread poll again, and wait for the one that does."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with self._poll:
            pass

    def wait_for_outcomes(self, seconds: float) -> None:
        """Wait until DBOS has noted down how the segments ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks, seconds)

    def end_segment(self) -> None:
        """Free the place of the segment whose task calls. DBOS has its outcome still to write, which frees its partition."""
        task = asyncio.current_task()
        if task is not None:
            with self._changed:
                self._over.add(task)
            task.add_done_callback(lambda _: self._strike())
        self._strike()

    def count_segments(self) -> int:
        """How many places are taken."""
        tasks = self._tasks.copy()
        with self._changed:
            self._over &= tasks
            return len(tasks - self._over)

    def wait(self, stop: threading.Event, timeout: float) -> bool:
        """Wait for a ring and for the turn to poll; the turn lasts until the same thread waits again.

        Args:
            stop: What DBOS stops its threads by.
            timeout: Seconds after which the thread polls without a ring.

        Returns:
            Whether the thread is to end.
        """
        if threading.current_thread().name not in self._names:
            with self._changed:
                return self._changed.wait_for(lambda: self._closed or stop.is_set(), max(timeout, _SLOW_SECONDS))
        mine = self._of_thread
        if getattr(mine, "polls", False):
            mine.polls = False
            self._poll.release()
        rings = getattr(mine, "rings", 0)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or stop.is_set() or self._rings != rings, timeout)
            mine.rings = self._rings
        self._poll.acquire()
        mine.polls = not (self._closed or stop.is_set())
        if not mine.polls:
            self._poll.release()
        return not mine.polls

    def _strike(self) -> None:
        with self._changed:
            self._rings += 1
            self._changed.notify_all()

    def _limit(self, get_queue: Callable[[str], Any]) -> Callable[[str], Any]:
        def get_limited(name: str) -> Any:
            queue = get_queue(name)
            if queue is not None:
                queue._worker_concurrency = self._places  # noqa: SLF001
            return queue

        return get_limited

    def _count(self, count_active: Callable[[str], int]) -> Callable[[str], int]:
        async def wait_for_turn() -> None:
            """What was claimed before is counted as soon as its task has had its first turn, which comes before this."""

        def count(queue: str) -> int:
            taken = self.count_segments()
            if queue not in self._limits:
                return taken
            limit, queues = self._limits[queue]
            self._instance._background_event_loop.submit_coroutine(wait_for_turn())  # noqa: SLF001  # as above
            return max(taken, self._places - limit + sum(map(count_active, queues)))

        return count


class _Bell:
    """What DBOS takes for the event that stops its queue threads."""

    def __init__(self, dispatch: Dispatch, stop: threading.Event) -> None:
        self._dispatch = dispatch
        self._stop = stop

    def is_set(self) -> bool:
        return self._stop.is_set()

    def wait(self, timeout: float) -> bool:
        return self._dispatch.wait(self._stop, timeout)
